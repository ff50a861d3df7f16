/** A2A as the service has it: the little that runs without a request, and the rest when there is one. */
import type { Logger } from "pino";
import { isIsolated } from "../identity/principal.ts";
import type { Manifest } from "../manifest/manifest.ts";
import type { Store } from "../storage/store.ts";
import type { A2aEndpoint } from "./endpoint.ts";
import { TaskKeeper } from "./task-keeper.ts";
import { TaskRows } from "./task-rows.ts";

/** A reply waits for its task as long as this part of `limits.request`, so that it is out before the limit. */
const PATIENCE = 0.9;

export interface A2aSource {
  readonly store: Store;
  readonly logger: Logger;
}

export class A2a {
  readonly #keeper: TaskKeeper;
  readonly #load: () => Promise<A2aEndpoint>;
  #endpoint: Promise<A2aEndpoint> | null = null;

  constructor(manifest: Manifest, { store, logger }: A2aSource) {
    const { agents, history, server } = manifest;
    const isolated = isIsolated(manifest);
    const rows = new TaskRows(store, isolated);
    const hasAgents = Object.keys(agents).length > 0;
    this.#keeper = new TaskKeeper(rows, { hasAgents, retention: history.retention, logger });
    const patience = server.limits.request * PATIENCE;
    this.#load = async () => {
      const { A2aEndpoint } = await import("./endpoint.ts");
      return new A2aEndpoint({ rows, logger, isolated, patience });
    };
  }

  endpoint(): Promise<A2aEndpoint> {
    this.#endpoint ??= this.#load();
    return this.#endpoint;
  }

  /** Ends what an earlier process left. */
  start(): Promise<void> {
    return this.#keeper.start();
  }

  /** Waits for tasks, at most some milliseconds. */
  async idle(patience: number): Promise<void> {
    await (await this.#endpoint)?.tasks.idle(patience);
  }

  async close(): Promise<void> {
    await (await this.#endpoint)?.tasks.close();
    await this.#keeper.close();
  }
}
