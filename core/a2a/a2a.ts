/** A2A in a service. The cleanup of tasks always runs; the SDK and everything else is loaded with the first request. */
import type { Logger } from "pino";
import type { Agent } from "../agents/agent.ts";
import type { Approvals } from "../approvals/approvals.ts";
import type { Delivery } from "../approvals/upkeep.ts";
import { isIsolated } from "../identity/principal.ts";
import type { Manifest } from "../manifest/manifest.ts";
import type { CountRefusal } from "../observability/metrics/limit-meters.ts";
import type { Membership } from "../storage/membership.ts";
import type { Store } from "../storage/store.ts";
import type { A2aEndpoint } from "./endpoint.ts";
import { PushSender } from "./push-sender.ts";
import type { Answered } from "./questions.ts";
import { isOver } from "./task.ts";
import { TaskKeeper } from "./task-keeper.ts";
import { TaskRows } from "./task-rows.ts";

/** The share of `limits.request` for which a reply may wait for its task, so that it is sent before the limit. */
const REPLY_TIMEOUT_SHARE = 0.9;

type Agents = ReadonlyMap<string, Agent>;

interface A2aSource {
  readonly agents: Agents;
  readonly approvals: Approvals;
  readonly store: Store;
  /** The processes that share the store. */
  readonly membership: Membership | null;
  readonly logger: Logger;
  /** Called for each task that a limit refuses. */
  readonly refused: CountRefusal;
}

export class A2a {
  readonly #keeper: TaskKeeper;
  readonly pushes: PushSender;
  readonly #load: () => Promise<A2aEndpoint>;
  #endpoint: Promise<A2aEndpoint> | null = null;
  #agents: Agents;
  readonly #rows: TaskRows;

  constructor(manifest: Manifest, { agents, approvals, store, membership, logger, refused }: A2aSource) {
    this.#agents = agents;
    const isolated = isIsolated(manifest);
    const rows = new TaskRows(store, isolated, membership);
    this.#rows = rows;
    this.pushes = new PushSender(rows, { settings: () => manifest.server.push, logger });
    rows.onEvent = () => this.pushes.hurry();
    // Getters, because a reload may change the values.
    this.#keeper = new TaskKeeper(rows, {
      get hasAgents() {
        return Object.keys(manifest.agents).length > 0;
      },
      get retention() {
        return manifest.history.retention;
      },
      logger,
    });
    const source = {
      rows,
      logger,
      isolated,
      approvals,
      pushes: this.pushes,
      refused: () => refused("server.limits.userTasks"),
      agent: (id: string) => this.#agents.get(id),
      get openTasks() {
        return manifest.server.limits.userTasks;
      },
      get replyTimeout() {
        return manifest.server.limits.request * REPLY_TIMEOUT_SHARE;
      },
    };
    this.#load = async () => {
      const { A2aEndpoint } = await import("./endpoint.ts");
      return new A2aEndpoint(source);
    };
  }

  endpoint(): Promise<A2aEndpoint> {
    this.#endpoint ??= this.#load();
    return this.#endpoint;
  }

  /** Ends the tasks that an earlier process left open, and sends outstanding notifications. */
  async start(): Promise<void> {
    await this.#keeper.start();
    await this.pushes.start();
  }

  /** Notifies a task that an approval it waits for was answered. */
  async tellAnswer(answered: Answered): Promise<Delivery> {
    return (await this.endpoint()).questions.tell(answered);
  }

  /** Whether the task of a question is over. */
  async hasEnded({ agentId = "", taskId = "" }: Answered): Promise<boolean> {
    const found = await this.#rows.read(agentId, taskId);
    return found === undefined || isOver(found.record.task);
  }

  /** Must be called when a reload has changed the agents. */
  adopt(agents: Agents): void {
    this.#agents = agents;
    this.#keeper.adopt();
  }

  /** Waits for tasks, at most some milliseconds. Outstanding notifications survive the process if the store does. */
  async idle(timeout: number): Promise<void> {
    await (await this.#endpoint)?.tasks.idle(timeout);
  }

  async close(): Promise<void> {
    await (await this.#endpoint)?.tasks.close();
    await this.#keeper.close();
    await this.pushes.close();
  }
}
