/** A2A in a service: its tasks, and who is told of them. The SDK is loaded with the first request. */
import type { Logger } from "pino";
import type { Agent } from "../agents/agent.ts";
import type { Context, RawReply } from "../http/route.ts";
import { isIsolated } from "../identity/principal.ts";
import type { Manifest } from "../manifest/manifest.ts";
import type { CountRefusal } from "../observability/metrics/meters.ts";
import type { KeptRuns } from "../runs/kept-runs.ts";
import type { Membership } from "../storage/membership.ts";
import type { Store } from "../storage/store.ts";
import type { Engine } from "../workflows/engine.ts";
import type { AgentRequest } from "./endpoint.ts";
import { PushSender } from "./push-sender.ts";
import { TaskKeeper } from "./task-keeper.ts";
import { TaskRows } from "./task-rows.ts";
import { type TaskApprovals, Tasks } from "./tasks.ts";

/** The share of `limits.request` for which a reply may wait for its task, so that it is sent before the limit. */
const REPLY_TIMEOUT_SHARE = 0.9;

type Agents = ReadonlyMap<string, Agent>;

interface A2aSource {
  readonly agents: Agents;
  readonly approvals: TaskApprovals;
  readonly runs: KeptRuns;
  readonly engine: Engine;
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
  readonly #manifest: Manifest;
  readonly #tasks: Tasks;
  #agents: Agents;

  /** @param manifest read when it is needed, because a reload may change it */
  constructor(manifest: Manifest, { agents, store, membership, logger, refused, ...parts }: A2aSource) {
    this.#agents = agents;
    this.#manifest = manifest;
    const rows = new TaskRows(store, isIsolated(manifest), membership);
    const tasks = new Tasks(rows, {
      ...parts,
      logger,
      agent: (id) => this.#agents.get(id),
      openTasks: () => manifest.server.limits.userTasks,
      refused: () => refused("server.limits.userTasks"),
    });
    this.#tasks = tasks;
    this.pushes = new PushSender(rows, {
      settings: () => manifest.server.push,
      whole: (record) => tasks.whole(record),
      logger,
    });
    rows.onEvent = () => this.pushes.hurry();
    this.#keeper = new TaskKeeper(rows, {
      takeUp: (agent, task) => tasks.takeUp(agent, task),
      get hasAgents() {
        return Object.keys(manifest.agents).length > 0;
      },
      get retention() {
        return manifest.history.retention;
      },
      logger,
    });
  }

  async answer(request: AgentRequest, call: Context<unknown>): Promise<RawReply> {
    const { answerRequest } = await import("./endpoint.ts");
    return answerRequest(request, call, {
      tasks: this.#tasks,
      pushes: this.pushes,
      isolated: isIsolated(this.#manifest),
      replyTimeout: this.#manifest.server.limits.request * REPLY_TIMEOUT_SHARE,
    });
  }

  /** Goes on with the tasks that an earlier process left, and sends outstanding notifications. */
  async start(): Promise<void> {
    await this.#keeper.start();
    await this.pushes.start();
  }

  /** Must be called when a reload has changed the agents. */
  adopt(agents: Agents): void {
    this.#agents = agents;
    this.#keeper.adopt();
  }

  /** Outstanding notifications survive the process if the store does. */
  async close(): Promise<void> {
    await this.#keeper.close();
    await this.#tasks.close();
    await this.pushes.close();
  }
}
