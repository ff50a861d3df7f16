/**
 * Responses in the background: each is a kept run of its agent, which continues without its client and after its process. The row of the
 * response is written before the run starts. Its end is stored when the run has ended, by the process that ran it or by the first request
 * that reads it: both compute the same from the journal.
 */
import type { Logger } from "pino";
import type { AgentPart } from "../agents/run/parts.ts";
import type { KeptStart } from "../agents/run-requests.ts";
import { hearing } from "../agents/stream/raw.ts";
import { EVENT_HEADERS } from "../http/event-writer.ts";
import type { TextStream } from "../http/route.ts";
import { isSomebody, type Principal } from "../identity/principal.ts";
import { messageOf, rateLimited, ServiceError, unlessNotFound } from "../lib/errors.ts";
import type { EventProducer, EventSink } from "../lib/event-sink.ts";
import { KeyCounts } from "../lib/key-counts.ts";
import type { KeptRuns } from "../runs/kept-runs.ts";
import type { RunStanding } from "../runs/scoped.ts";
import { nullOnConflict } from "../storage/store.ts";
import { codeOfKind, OpenaiError } from "./errors.ts";
import { CANCELLED, failedEnd, IN_PROGRESS, type ResponseResource } from "./resource.ts";
import { ResponseEvents } from "./response-events.ts";
import { ResponseOutput } from "./response-output.ts";
import { type FoundResponse, MAX_STORED_CHARACTERS, type ResponseRecord, type ResponseRows } from "./response-rows.ts";
import { DONE, sseTexts } from "./response-stream.ts";
import { RunReader, type Said } from "./run-parts.ts";
import { HEARTBEAT } from "./run-sink.ts";

/** Limit per owner, because a response continues when its client leaves. For all users together `server.limits.executions` applies. */
const MAX_RUNNING_OF_USER = 100;

export class BackgroundResponses {
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
