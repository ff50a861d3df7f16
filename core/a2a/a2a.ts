/** A2A in a service: the cleanup of tasks always runs; the SDK and everything else is loaded with the first request. */
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
import type { Answered } from "./questions.ts";
import { TaskKeeper } from "./task-keeper.ts";
import { TaskRows } from "./task-rows.ts";

/** A reply waits for its task for this share of `limits.request`, so that it is sent before the limit. */
const REPLY_TIMEOUT_SHARE = 0.9;

type Agents = ReadonlyMap<string, Agent>;

interface A2aSource {
  readonly agents: Agents;
  readonly approvals: Approvals;
  readonly store: Store;
  /** The processes that share the store. */
  readonly membership: Membership | null;
  readonly logger: Logger;
  /** Told of what a limit refuses. */
  readonly refused: CountRefusal;
}

export class A2a {
  readonly #keeper: TaskKeeper;
  readonly #load: () => Promise<A2aEndpoint>;
  #endpoint: Promise<A2aEndpoint> | null = null;
  #agents: Agents;

  constructor(manifest: Manifest, { agents, approvals, store, membership, logger, refused }: A2aSource) {
    this.#agents = agents;
    const isolated = isIsolated(manifest);
    const rows = new TaskRows(store, isolated, membership);
    // Read when they are used, since a reload may change them.
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

  /** Ends the tasks that an earlier process left open. */
  start(): Promise<void> {
    return this.#keeper.start();
  }

  /** Tells a task that what it asks has been answered. */
  async tellAnswer(answered: Answered): Promise<Delivery> {
    return (await this.endpoint()).questions.tell(answered);
  }

  /** To be called when the manifest has other agents. */
  adopt(agents: Agents): void {
    this.#agents = agents;
    this.#keeper.adopt();
  }

  /** Waits for tasks, at most some milliseconds. */
  async idle(timeout: number): Promise<void> {
    await (await this.#endpoint)?.tasks.idle(timeout);
  }

  async close(): Promise<void> {
    await (await this.#endpoint)?.tasks.close();
    await this.#keeper.close();
  }
}
