/** Stored responses, and those in the background: read, continued, cancelled and deleted by their owners, and kept as long as runs are. */

import { setTimeout as sleep } from "node:timers/promises";
import type { Logger } from "pino";
import { defaults } from "../../generated/defaults.ts";
import type { ResponseItemsQuery, ResponseQuery } from "../../generated/types.ts";
import type { AgentPart } from "../agents/run/parts.ts";
import type { KeptStart } from "../agents/run-requests.ts";
import { hearing } from "../agents/stream/raw.ts";
import { EVENT_HEADERS } from "../http/event-writer.ts";
import type { Charge } from "../http/exchange.ts";
import type { TextStream } from "../http/route.ts";
import {
  isIsolated,
  isSomebody,
  mayAccess,
  type Principal,
  principalOf,
  type Requester,
} from "../identity/principal.ts";
import { invalid, messageOf, quoted, rateLimited, ServiceError, unlessNotFound } from "../lib/errors.ts";
import type { EventProducer, EventSink } from "../lib/event-sink.ts";
import { KeyCounts } from "../lib/key-counts.ts";
import { Uses } from "../lib/uses.ts";
import type { Manifest } from "../manifest/manifest.ts";
import type { KeptRuns } from "../runs/kept-runs.ts";
import type { RunStanding } from "../runs/scoped.ts";
import { nullOnConflict, type Store, unlessConflict } from "../storage/store.ts";
import { codeOfKind, OpenaiError, unsupported } from "./errors.ts";
import {
  CANCELLED,
  type ConversationItem,
  type EarlierItems,
  failedEnd,
  IN_PROGRESS,
  type ResponseResource,
} from "./items.ts";
import { DONE, ResponseEvents, ResponseOutput, sseTexts } from "./response-events.ts";
import { type FoundResponse, MAX_STORED_CHARACTERS, type ResponseRecord, ResponseRows } from "./response-rows.ts";
import { HEARTBEAT, RunReader, type Said } from "./run-parts.ts";

/*
 * Responses in the background: each is a kept run of its agent, which continues without its client and after its process. The row of the
 * response is written before the run starts. Its end is stored when the run has ended, by the process that ran it or by the first request
 * that reads it: both compute the same from the journal.
 */

/** Limit per owner, because a response continues when its client leaves. For all users together `server.limits.executions` applies. */
const MAX_RUNNING_OF_USER = 100;

class BackgroundResponses {
  readonly #rows: ResponseRows;
  readonly #runs: KeptRuns;
  readonly #logger: Logger;
  /** How many that started here are running, by owner. */
  readonly #running = new KeyCounts();
  #closed = false;

  constructor(rows: ResponseRows, runs: KeptRuns, logger: Logger) {
    this.#rows = rows;
    this.#runs = runs;
    this.#logger = logger;
  }

  /**
   * Stores the response and begins its run. Resolves when both are on disk, to the response: that of an earlier request where one with the
   * same key has come before.
   *
   * @throws ServiceError `rate_limited` when too many of its owner run, `unavailable` when too many executions run or the store fails
   */
  async begin(record: ResponseRecord, run: KeptStart, principal: Principal): Promise<ResponseRecord> {
    const { owner } = record;
    if (isSomebody(owner) && this.#running.of(owner) >= MAX_RUNNING_OF_USER)
      throw rateLimited(
        `${MAX_RUNNING_OF_USER} responses of this user run in the background: try again when some have ended`,
      );
    this.#running.add(owner, 1);
    let stored: FoundResponse | undefined;
    let isOurs = false;
    try {
      stored = await this.#rows.createOnce(record, JSON.stringify(record));
      isOurs = await run.start();
    } catch (error) {
      if (stored?.record === record) await this.#rows.write(stored.id, stored, undefined).catch(() => {});
      throw error;
    } finally {
      if (!isOurs) this.#running.add(owner, -1);
    }
    const begun = stored;
    if (isOurs)
      void run.left.then(() => {
        this.#running.add(owner, -1);
        return this.#settleHere(begun, principal);
      });
    return begun.record;
  }

  /** The current state of the response. If its run has ended, adds the end and stores it unless that has happened before. */
  async settled(found: FoundResponse, principal: Principal): Promise<FoundResponse> {
    const { id, record, revision } = found;
    const { resource, owner, waits } = record;
    if (resource.status !== "in_progress" && waits !== true) return found;
    const standing = await this.#ofRun(record, (agentId, runId) =>
      this.#runsOf(principal).standing(agentId, runId, owner || undefined),
    );
    if (standing === undefined)
      return waits === true ? found : { ...found, record: { ...record, resource: lost(resource) } };
    const { endedAt } = standing.state;
    if (endedAt === null) return found;
    const output = new ResponseOutput(resource.id, () => Math.floor(endedAt / 1000));
    await read(record, await this.#events(record, principal), (said) => void output.of(said));
    const whole = { ...record, waits: undefined, resource: ended(resource, standing, output) };
    const changed = await nullOnConflict(this.#rows.write(id, found, whole));
    return { ...found, record: whole, revision: changed ?? revision };
  }

  /** Resolves when its run has ended, here or in another process. */
  async cancel(record: ResponseRecord, principal: Principal): Promise<void> {
    await this.#ofRun(record, async (agentId, runId) => {
      try {
        await this.#runsOf(principal).cancel(agentId, runId, record.owner || undefined);
      } catch (error) {
        // The run has ended meanwhile.
        if (!(error instanceof ServiceError) || error.kind !== "invalid_input") throw error;
      }
    });
  }

  /**
   * The events after the one numbered `after`, then new ones until the run has ended. That it waits for a person is not its end.
   *
   * @param find reads the response when its run has ended
   * @throws OpenaiError when its run no longer exists
   */
  async follow(
    record: ResponseRecord,
    principal: Principal,
    after: number,
    find: () => Promise<FoundResponse>,
  ): Promise<TextStream> {
    const { resource } = record;
    await this.#events(record, principal);
    const follow = this.#runsOf(principal).followOn(
      resource.model,
      responseRunId(resource.id),
      record.owner || undefined,
    );
    const begun: ResponseResource = { ...resource, ...IN_PROGRESS, output: [], usage: null };
    const output = new ResponseOutput(resource.id, () => 0);
    const events = new ResponseEvents(begun, output);
    return {
      status: 200,
      headers: EVENT_HEADERS,
      heartbeat: HEARTBEAT,
      failure: (message) => sseTexts([events.cut(message)]),
      async stream(sink) {
        const send = (text: string) => (text === "" ? undefined : sink.send(text));
        await send(sseTexts(events.begin(), after));
        await read(record, follow, (said) => send(sseTexts(events.of(said), after)), sink);
        if (!sink.closed) await sink.send(sseTexts(events.end((await find()).record.resource), after) + DONE);
      },
    };
  }

  /** From now on the ends of responses are stored only by requests that read them. */
  close(): void {
    this.#closed = true;
  }

  async #settleHere(found: FoundResponse, principal: Principal): Promise<void> {
    if (this.#closed) return;
    try {
      await this.settled(found, principal);
    } catch (error) {
      const { id } = found.record.resource;
      this.#logger.warn({ err: error, response: id }, `the end of a response is not stored: ${messageOf(error)}`);
    }
  }

  async #events(record: ResponseRecord, principal: Principal): Promise<EventProducer> {
    const events = await this.#ofRun(record, (agentId, runId) =>
      this.#runsOf(principal).attach(agentId, runId, 0, { userId: record.owner || undefined }),
    );
    if (events !== undefined) return events;
    throw new OpenaiError(
      "not_found",
      "stream is not available: the events of this response are gone",
      "not_found",
      "stream",
    );
  }

  /** The runs, including those of agents that no longer exist. */
  #runsOf = (principal: Principal) => this.#runs.for(principal, { ofRemoved: true });

  /** Undefined when there is no such run. */
  #ofRun<T>(
    { resource: { id, model } }: ResponseRecord,
    work: (agentId: string, runId: string) => Promise<T>,
  ): Promise<T | undefined> {
    return unlessNotFound(work(model, responseRunId(id)));
  }
}

/** The id of the run of a response. */
export const responseRunId = (responseId: string): string => responseId.slice("resp_".length);

/** @param hear may return a promise, which resolves when its reader has caught up */
async function read(
  { run }: ResponseRecord,
  follow: EventProducer,
  hear: (said: Said) => Promise<void> | undefined,
  reader?: Pick<EventSink, "closed" | "onLeave">,
): Promise<void> {
  const parts = new RunReader(run ?? { isJson: false, clientTools: [] });
  const each = (part: AgentPart) => {
    let behind: Promise<void> | undefined;
    for (const said of parts.read(part)) behind = hear(said);
    return behind;
  };
  await follow(hearing(each, reader));
}

function ended(resource: ResponseResource, standing: RunStanding, output: ResponseOutput): ResponseResource {
  const { usage, end } = output;
  const { status, error } = standing.state;
  const failed = (code: string, message: string) => ({ ...resource, ...failedEnd(code, message), usage });
  const whole: ResponseResource =
    status === "completed" && end !== null
      ? { ...resource, ...end, output: output.items, usage }
      : status === "cancelled"
        ? { ...resource, ...CANCELLED, output: output.cutOff(), usage }
        : { ...failed(codeOfKind(standing.failure), error?.message ?? "internal error"), output: output.cutOff() };
  if (JSON.stringify(whole).length <= MAX_STORED_CHARACTERS / 2) return whole;
  return failed("server_error", "the response is too large to be stored");
}

/** The state of a response whose process ended before the run was on disk, or whose run was removed. */
const lost = (resource: ResponseResource): ResponseResource => ({
  ...resource,
  ...failedEnd("server_error", "the run of the response is gone"),
});

/*  * The newest response of each open WebSocket, so that the next one can continue it although it is not stored. When all of them exceed
   a bound the oldest are dropped: their clients get the error that the response does not exist, and send the whole conversation again.
 */

/** Most characters of all of them together, and of a single one. */
const MAX_CHARACTERS = 64 * 1024 * 1024;
const MAX_CHARACTERS_OF_ONE = 8 * 1024 * 1024;

interface Recent {
  readonly id: string;
  /** The items of the conversation up to its end. */
  readonly items: EarlierItems;
}

export class RecentResponses {
  /** Responses by their socket, the oldest first. */
  readonly #bySocket = new Map<object, Recent>();
  #size = 0;

  /** The conversation up to that response, if it is the newest of the socket. */
  get(socket: object, id: string): EarlierItems | undefined {
    const recent = this.#bySocket.get(socket);
    return recent?.id === id ? recent.items : undefined;
  }

  set(socket: object, id: string, items: EarlierItems): void {
    this.forget(socket);
    if (items.size > MAX_CHARACTERS_OF_ONE) return;
    this.#bySocket.set(socket, { id, items });
    this.#size += items.size;
    for (const oldest of this.#bySocket.keys()) {
      if (this.#size <= MAX_CHARACTERS) return;
      this.forget(oldest);
    }
  }

  forget(socket: object): void {
    this.#size -= this.#bySocket.get(socket)?.items.size ?? 0;
    this.#bySocket.delete(socket);
  }
}

interface ResponsesSource {
  readonly store: Store;
  readonly runs: KeptRuns;
  readonly logger: Logger;
}

export class Responses {
  readonly rows: ResponseRows;
  readonly background: BackgroundResponses;
  /** The newest responses of open WebSockets. */
  readonly recent = new RecentResponses();
  /** Streamed runs that are heard to the end although their clients leave, so that their responses are stored. */
  readonly storing = new Set<string>();
  /** Counts responses over WebSockets, because sockets do not show whether they are busy. */
  readonly working = new Uses();
  /** Once true, sockets start no more responses. */
  stopping = false;
  readonly #manifest: Manifest;
  readonly #removal: ReturnType<ResponseRows["removal"]>;

  /** @param manifest read when it is needed, because a reload may change it */
  constructor(manifest: Manifest, { store, runs, logger }: ResponsesSource) {
    this.#manifest = manifest;
    this.rows = new ResponseRows(store);
    this.background = new BackgroundResponses(this.rows, runs, logger);
    this.#removal = this.rows.removal({
      room: "responses",
      kept: () => manifest.history.retention,
      stays: ({ record }) => record.resource.status === "in_progress",
      failed: (error) => logger.warn({ err: error }, `old responses could not be removed: ${messageOf(error)}`),
    });
  }

  start(): void {
    this.#removal.start();
  }

  /** Waits for the responses over WebSockets, at most some milliseconds. */
  async idle(timeout: number): Promise<void> {
    this.stopping = true;
    await Promise.race([this.working.whenOver(), sleep(timeout, undefined, { ref: false })]);
  }

  async close(): Promise<void> {
    this.background.close();
    await this.#removal.stop();
  }

  principalOf = (requester: Requester): Principal => principalOf(requester, isIsolated(this.#manifest));

  /** @throws OpenaiError when it does not exist for this principal */
  async get(id: string, principal: Principal, charge?: Charge): Promise<ResponseResource> {
    return (await this.#find(id, principal, charge)).record.resource;
  }

  /**
   * The events after the one numbered `query.starting_after`, then new ones.
   *
   * @throws OpenaiError for a response that did not run in the background
   */
  async follow(id: string, { starting_after: after = -1 }: ResponseQuery, principal: Principal): Promise<TextStream> {
    const { record } = await this.#find(id, principal);
    if (!record.resource.background) throw unsupported("stream", "is for responses that run in the background");
    return this.background.follow(record, principal, after, () => this.#find(id, principal));
  }

  /** Deletes a response; one that runs in the background is stopped. */
  async delete(id: string, principal: Principal): Promise<{ id: string; object: "response"; deleted: true }> {
    for (;;) {
      const found = await this.#find(id, principal);
      const { record } = found;
      if (record.resource.status === "in_progress" || record.waits === true)
        await this.background.cancel(record, principal);
      else if (await unlessConflict(this.rows.write(id, found, undefined)))
        return { id, object: "response", deleted: true };
    }
  }

  /** Cancels a response and returns it; one that had ended before is unchanged. */
  async cancel(id: string, principal: Principal): Promise<ResponseResource> {
    for (;;) {
      const { record } = await this.#find(id, principal);
      if (!record.resource.background)
        throw invalid("response_id must be that of a response in the background: others end with their request");
      if (record.resource.status !== "in_progress") return record.resource;
      await this.background.cancel(record, principal);
    }
  }

  async inputItems(id: string, query: ResponseItemsQuery, principal: Principal, charge?: Charge) {
    const { input } = (await this.#find(id, principal, charge)).record;
    return itemPage(input, query);
  }

  /** The response; undefined when it does not exist for this principal. */
  async lookUp(id: string, principal: Principal, charge?: Charge): Promise<FoundResponse | undefined> {
    const found = await this.rows.read(id);
    if (found === undefined || !mayAccess(principal, found.record.owner, undefined)) return undefined;
    charge?.copies(found.size);
    return this.background.settled(found, principal);
  }

  async #find(id: string, principal: Principal, charge?: Charge): Promise<FoundResponse> {
    const found = await this.lookUp(id, principal, charge);
    if (found === undefined)
      throw new OpenaiError("not_found", `response ${quoted(id)} does not exist`, "not_found", "response_id");
    return found;
  }
}

const { limit: LIMIT, order: ORDER } = defaults.ResponseItemsQuery;

function itemPage(input: readonly ConversationItem[], { limit = LIMIT, order = ORDER, after }: ResponseItemsQuery) {
  const items = order === "asc" ? input : input.toReversed();
  const begin = after === undefined ? 0 : items.findIndex(({ id }) => id === after) + 1;
  if (begin === 0 && after !== undefined) throw invalid("after must be the id of an item of the input");
  const data = items.slice(begin, begin + limit);
  return {
    object: "list",
    data,
    first_id: data[0]?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
    has_more: begin + limit < items.length,
  };
}
