/** Responses that go on without their clients, in this process. Each one has a row from its beginning to its end. */
import { setMaxListeners } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import type { Logger } from "pino";
import { isSomebody } from "../identity/ownership.ts";
import { messageOf, ServiceError, unavailable } from "../lib/errors.ts";
import { responseKey } from "../storage/keys.ts";
import type { Membership } from "../storage/membership.ts";
import { nameProcess } from "../storage/process-name.ts";
import { isShared } from "../storage/sharing.ts";
import { Watch } from "../storage/watch.ts";
import type { ResponseResource } from "./resource.ts";
import type { ResponseRecord, ResponseRows } from "./response-rows.ts";

/** Responses that may run at once: a client that leaves does not end its own. */
const MAX_RUNNING = 1_000;
const MAX_RUNNING_OF_USER = 100;
/** Between two looks whether another process has ended a response of this one. */
const POLL_INTERVAL_MS = 1_000;
/** Until an end that the store did not take is written again. */
const WRITE_RETRY_DELAY_MS = 1_000;
/** For agents to stop once their signal has aborted, when the service ends. */
const SHUTDOWN_TIMEOUT_MS = 1_000;

interface Running {
  readonly record: ResponseRecord;
  readonly abort: AbortController;
  /** Of its row. */
  readonly revision: number;
  /** Resolves when its end is written, or is somebody else's. */
  over: Promise<void>;
}

export class BackgroundResponses {
  readonly #rows: ResponseRows;
  readonly #membership: Membership | null;
  readonly #logger: Logger;
  readonly #alone = nameProcess();
  readonly #running = new Map<string, Running | null>();
  readonly #closing = new AbortController();

  constructor(rows: ResponseRows, membership: Membership | null, logger: Logger) {
    this.#rows = rows;
    this.#membership = membership;
    this.#logger = logger;
  }

  /** Who works on what begins here. */
  get process(): string {
    return this.#membership?.name ?? this.#alone;
  }

  /** Whether nobody works on the response any more, although its row does not say so. */
  async isAbandoned({ process, resource }: ResponseRecord): Promise<boolean> {
    if (process === undefined) return false;
    // The process has another name once it has lost its lease.
    if (this.#running.has(resource.id)) return false;
    if (process === this.process) return true;
    return this.#membership === null || this.#membership.goneCheck()(process);
  }

  /**
   * Stores the response, and lets it run. Resolves when it is stored.
   *
   * @param work runs it, and gives the resource as it has ended
   * @param abort what `work` listens to
   * @throws ServiceError `unavailable` when too many run, and when the store does not take it
   */
  async begin(record: ResponseRecord, abort: AbortController, work: () => Promise<ResponseResource>): Promise<void> {
    const { id } = record.resource;
    if (this.#closing.signal.aborted) throw unavailable("the server is stopping");
    if (this.#running.size >= MAX_RUNNING)
      throw unavailable(`${MAX_RUNNING} responses run in the background: try again when some have ended`);
    const { owner } = record;
    const own = [...this.#running.values()].filter((run) => run?.record.owner === owner);
    if (isSomebody(owner) && own.length >= MAX_RUNNING_OF_USER) {
      const message = `${MAX_RUNNING_OF_USER} responses of this user run in the background: try again when some have ended`;
      throw new ServiceError("rate_limited", message);
    }
    // Every tool that runs at the same time adds a listener.
    setMaxListeners(0, abort.signal);
    this.#running.set(id, null);
    let revision: number;
    try {
      revision = await this.#rows.create(record, JSON.stringify(record));
    } catch (error) {
      this.#running.delete(id);
      throw error;
    }
    const run: Running = { record, abort, revision, over: Promise.resolve() };
    this.#running.set(id, run);
    if (this.#closing.signal.aborted) abort.abort(new Error("the server is stopping"));
    run.over = this.#work(run, work).finally(() => this.#running.delete(id));
    if (isShared(this.#rows.store)) void this.#follow(run);
  }

  /** Stops a response whose end is written already. */
  stop(id: string): void {
    this.#running.get(id)?.abort.abort(new Error("the response was cancelled"));
  }

  /** Waits for all that runs, at most some milliseconds. */
  async idle(timeout: number): Promise<void> {
    await atMost(timeout, this.#all());
  }

  /** Ends all that runs. */
  async close(): Promise<void> {
    this.#closing.abort();
    for (const run of this.#running.values()) run?.abort.abort(new Error("the server is stopping"));
    await atMost(SHUTDOWN_TIMEOUT_MS, this.#all());
  }

  #all = () => Promise.all([...this.#running.values()].map((run) => run?.over));

  async #work({ record, revision }: Running, work: () => Promise<ResponseResource>): Promise<void> {
    const resource = await work();
    const { process: _, ...rest } = record;
    for (;;) {
      try {
        // Whoever has cancelled or deleted it was first.
        await this.#rows.change({ ...rest, resource }, revision);
        return;
      } catch (error) {
        this.#logger.error({ err: error, response: resource.id }, `the end of a response: ${messageOf(error)}`);
        if (this.#closing.signal.aborted) return;
        await sleep(WRITE_RETRY_DELAY_MS, undefined, { signal: this.#closing.signal, ref: false }).catch(() => {});
      }
    }
  }

  /** Stops the run when another process has changed or deleted its row. */
  async #follow({ record, revision, abort, over }: Running): Promise<void> {
    const key = responseKey(record.resource.id);
    const ended = new AbortController();
    void over.finally(() => ended.abort());
    const watch = new Watch(this.#rows.store, key);
    while (!ended.signal.aborted) {
      await watch.wait(POLL_INTERVAL_MS, ended.signal);
      const row = await this.#rows.store.getMany([key], 0).then(
        ([found]) => found?.revision,
        () => revision,
      );
      if (row !== revision) abort.abort(new Error("the response was cancelled"));
      if (abort.signal.aborted) break;
    }
    watch.end();
  }
}

async function atMost(milliseconds: number, work: Promise<unknown>): Promise<void> {
  const over = new AbortController();
  await Promise.race([work, sleep(milliseconds, undefined, { signal: over.signal }).catch(() => {})]);
  over.abort();
}
