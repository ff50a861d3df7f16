/**
 * Stop requests between processes of a shared store: one process asks another to suspend or cancel an execution that the other one
 * runs. The request is a row. A process that runs executions reads these rows at an interval, and the requester reads the execution
 * until it has settled. If the store can notify other processes, each of the two is notified by the other. Requests to resume a step
 * are rows with the same prefix.
 */

import { randomBytes } from "node:crypto";
import { messageOf } from "../../lib/errors.ts";
import type { EventProducer } from "../../lib/event-sink.ts";
import { Interval } from "../../lib/interval.ts";
import {
  indexedExecution,
  openExecutionKey,
  processKey,
  requestedExecution,
  resumeRequestKey,
  STOP_REQUESTS,
  stopRequestKey,
} from "../../storage/keys.ts";
import { Watch } from "../../storage/ranges.ts";
import { type Row, removeUnchanged, type Store, unlessConflict } from "../../storage/store.ts";
import type { Outline } from "../definition/definition.ts";
import type { Engine } from "../engine.ts";
import { type JournalEntry, parseEntries, parseOpenRow, type StepPath } from "../journal/entries.ts";
import {
  alreadyResumed,
  type FoundExecution,
  firstEntries,
  incompleteJournal,
  loadExecution,
  noExecution,
  readExecution,
  readJournal,
  stillRunning,
} from "../journal/load.ts";
import { applyEntry, initialState, type JournalState, timeAfter } from "../journal/state.ts";
import type { Execution } from "../run/execution.ts";
import { openReader, sendEntries } from "../run/follow.ts";
import type { Stop } from "../run/lifetime.ts";
import { resumeBeside, takesResume } from "../run/resume-beside.ts";

/*
 * Requests to resume a waiting step of an execution that another process runs. They work like stop requests: the request is a row,
 * which the process that runs the execution reads, and the requester watches the execution. The journal records the token of each
 * request that was carried out, so that it is carried out only once, whichever process dies in between.
 */

/** `open`: revision of the open row that the request refers to, as in a stop request. Missing data is left out. */
type ResumeRequest = readonly [kind: "resume", token: string, open: number, path: StepPath, data?: unknown];

const parseResume = (row: Row): ResumeRequest => JSON.parse(row.value) as ResumeRequest;

type Look<T> = () => Promise<T | null>;

/**
 * Resolves when the execution has settled after the resume, whichever process runs it by then.
 *
 * @param token of the request; default: a new one
 * @returns its state; null when it settled, or the step was resumed, before the request was carried out
 * @throws ServiceError `conflict` while another request for the step is pending
 */
export async function resumeRemoteExecution(
  store: Store,
  { start, recordRow }: FoundExecution,
  path: StepPath,
  data: unknown,
  token = randomBytes(12).toString("base64url"),
): Promise<JournalState | null> {
  const watch = new Watch(store, openExecutionKey(start.number));
  const read = async () => {
    const found = await readExecution(store, start.number, start.id);
    if (found === null) throw noExecution(start.id);
    return found;
  };
  try {
    const isGiven = await poll(watch, start.id, asking(store, read, token, path, data));
    if (!isGiven) return null;
    return await poll(watch, start.id, async () => {
      const found = await read();
      // A changed record row means that the execution settled and was resumed since.
      if (found.openRow !== null && found.recordRow?.revision === recordRow?.revision) return null;
      return (await loadExecution(store, found))?.state ?? null;
    });
  } finally {
    watch.end();
  }
}

async function poll<T>(watch: Watch, id: string, look: Look<T>, { first, longest } = READ_PAUSES): Promise<T> {
  const end = performance.now() + GIVE_UP_AFTER_MS;
  for (let pause = first; performance.now() < end; pause = Math.min(pause * 2, longest)) {
    const seen = await look();
    if (seen !== null) return seen;
    await watch.wait(pause);
  }
  throw stillRunning(id);
}

/** Checks whether the request was carried out. Writes it when there is none yet, or when it refers to a run that has ended. */
function asking(
  store: Store,
  read: () => Promise<FoundExecution>,
  token: string,
  path: StepPath,
  data: unknown,
): Look<boolean> {
  /** The revision of the open row to which the written request refers. */
  let asked: number | null = null;
  return async () => {
    const found = await read();
    const { openRow, start } = found;
    const key = resumeRequestKey(start.number, path);
    const row = await store.get(key);
    const isOwn = row !== undefined && parseResume(row)[1] === token;
    if (isOwn && openRow?.revision === asked) return null;
    const loaded = await loadExecution(store, found);
    if (loaded === null) return null;
    if (loaded.entries.some(([kind, , , given]) => kind === "answer" && given === token)) return true;
    if (openRow === null || loaded.state.steps.get(path)?.status !== "waiting") {
      if (isOwn) await removeUnchanged(store, row);
      return false;
    }
    if (row !== undefined && !isOwn && parseResume(row)[2] === openRow.revision) throw alreadyResumed(path);
    const about = ["resume", token, openRow.revision, path] as const;
    if (await writeRequest(store, openRow, key, row, data === undefined ? about : [...about, data]))
      asked = openRow.revision;
    return null;
  };
}

/**
 * Carries out a request for an execution that runs here. Resolves when the resume is on disk. False when the request has to wait: the
 * execution is about to settle, which the requester will notice.
 */
async function carryOutResume(execution: Execution, request: ResumeRequest): Promise<boolean> {
  const [, token, , path, ...data] = request;
  const { state } = execution;
  if (!takesResume(execution)) return false;
  // Another request has resumed the step, which the requester notices as well.
  if (state.steps.get(path)?.status !== "waiting") return true;
  const at = timeAfter(state);
  const entry: JournalEntry = data.length === 0 ? ["resume", path, at] : ["resume", path, at, data[0]];
  await resumeBeside(execution, entry, token);
  return true;
}

// The events of an execution that another process of a shared store runs, read from its journal.

/** Pause between two reads of the journal when the store does not notify of new entries. */
const JOURNAL_POLL_MS = 250;

/**
 * The events after the one numbered `after`, until the execution settles.
 *
 * @param found a running execution
 * @param pollInterval milliseconds
 */
export function followRemoteExecution(
  store: Store,
  found: FoundExecution,
  outline: Outline,
  after: number,
  pollInterval = JOURNAL_POLL_MS,
): EventProducer {
  const { start } = found;
  return async (sink) => {
    const state = initialState(start);
    const reader = await openReader(state, outline, after, sink);
    const send = async (entries: readonly JournalEntry[]) => {
      for (const entry of entries) applyEntry(state, entry);
      await sendEntries(entries, reader);
    };
    let rowsSent = 0;
    let last: string | undefined;
    /** Revision of a record row that counts fewer journal rows than were read. */
    let outdated: number | undefined;
    const watch = new Watch(store, openExecutionKey(start.number));
    try {
      await send(firstEntries(found));
      while (!sink.closed) {
        const now = await readExecution(store, start.number, start.id);
        // Retention has removed the execution.
        if (now === null) return;
        const rows = await readJournal(store, start.number, last);
        rowsSent += rows.length;
        last = rows.at(-1)?.key ?? last;
        await send(rows.flatMap((row) => parseEntries(row.value)));
        const { record: rest, recordRow } = now;
        if (now.open === null && rest !== null) {
          if (rowsSent === rest.rows) return await send(rest.tail);
          // There are more rows than the record counts: the execution was resumed between the two reads, so a new record will follow.
          if (rowsSent < rest.rows || recordRow!.revision === outdated) throw incompleteJournal(start.id);
          outdated = recordRow!.revision;
        } else await watch.wait(pollInterval);
      }
    } finally {
      watch.end();
    }
  };
}

/** How long the steps of a cancelled execution may continue after their signal has aborted. */
const CANCEL_GRACE_MS = 5_000;
/** Pauses between two reads of the execution that is to stop. */
const READ_PAUSES: ReadPauses = { first: 50, longest: 1_000 };
const GIVE_UP_AFTER_MS = 600_000;
const MAX_REQUESTS_PER_READ = 1_000;

export type StopRequest = Pick<Stop, "reason"> & { readonly kind: "suspend" | "cancel" };

/** Milliseconds; each pause is twice the one before. */
interface ReadPauses {
  readonly first: number;
  readonly longest: number;
}

export const stopFromRequest = ({ kind, reason }: StopRequest): Stop => ({
  kind,
  reason,
  gracePeriod: kind === "cancel" ? CANCEL_GRACE_MS : Number.POSITIVE_INFINITY,
});

/** Enough for a stop request. The data of a resume may be larger, and is then read separately. */
const MAX_BYTES_PER_ROW = 65_536;

/** `open`: revision of the open row that the request refers to, so that an execution which was resumed since is not stopped. */
type StoredRequest = readonly [kind: StopRequest["kind"], reason: string, open: number];

const parseRequest = (row: Row): StoredRequest => JSON.parse(row.value) as StoredRequest;

/**
 * Requests to stop an execution that another process runs. Resolves when it has settled, whichever process runs it by then.
 *
 * @returns its state; "running" when it settled and was resumed before this process noticed
 */
export async function stopRemoteExecution(
  store: Store,
  { start, recordRow }: FoundExecution,
  request: StopRequest,
  pauses?: ReadPauses,
): Promise<JournalState> {
  const watch = new Watch(store, openExecutionKey(start.number));
  let asked: number | null = null;
  const look = async () => {
    const found = await readExecution(store, start.number, start.id);
    if (found === null) throw noExecution(start.id);
    const { openRow } = found;
    if (openRow === null || found.recordRow?.revision !== recordRow?.revision) {
      const loaded = await loadExecution(store, found);
      if (loaded === null) return null;
      return loaded.state;
    }
    // When another process has recovered the execution, the request refers to a row that no longer exists: write it again.
    else if (openRow.revision !== asked && (await askToStop(store, openRow, start.number, request)))
      asked = openRow.revision;
    return null;
  };
  try {
    return await poll(watch, start.id, look, pauses);
  } finally {
    watch.end();
  }
}

/** False when the execution, or an existing request for it, has changed meanwhile. */
async function askToStop(store: Store, open: Row, number: number, { kind, reason }: StopRequest): Promise<boolean> {
  const key = stopRequestKey(number);
  const known = await store.get(key);
  if (known !== undefined) {
    const [knownKind, , about] = parseRequest(known);
    // A request to suspend does not replace one to cancel.
    if (about === open.revision && (knownKind === "cancel" || knownKind === kind)) return true;
  }
  return writeRequest(store, open, key, known, [kind, reason, open.revision]);
}

/** @param known the request in whose place it comes. @returns as `askToStop` */
async function writeRequest(
  store: Store,
  open: Row,
  key: string,
  known: Row | undefined,
  request: StoredRequest | ResumeRequest,
): Promise<boolean> {
  const expect: [string, number | null][] = [
    [open.key, open.revision],
    [key, known?.revision ?? null],
  ];
  const isWritten = await unlessConflict(store.commit({ put: [[key, JSON.stringify(request)]], expect }));
  store.wake?.(processKey(parseOpenRow(open.value).process));
  return isWritten;
}

/**
 * Reads the stop requests for executions that no process runs.
 *
 * @param open numbers of executions, and the revisions of their open rows
 */
export async function stopsAsked(store: Store, open: ReadonlyMap<number, number>): Promise<StopRequest[]> {
  const rows = await store.getMany([...open.keys()].map(stopRequestKey));
  return rows.flatMap((row) => {
    if (row === undefined) return [];
    const [kind, reason, about] = parseRequest(row);
    return about === open.get(indexedExecution(row.key)) ? [{ kind, reason }] : [];
  });
}

/** Reads the requests for executions that run in this process, and carries them out. */
export class StopRequests {
  readonly #engine: Engine;
  readonly #reads: Interval;
  /** Tokens of resumes that were carried out, and whose rows could not be removed yet. */
  readonly #answered = new Set<string>();
  /** Whether there may be requests for what ran here when it last read. */
  #isDue = true;
  #endWatch: (() => void) | undefined;

  /** @param interval milliseconds between two reads; nothing is read while nothing runs here */
  constructor(engine: Engine, interval: number) {
    this.#engine = engine;
    this.#reads = new Interval(
      interval,
      () => this.#read(),
      (error) => {
        const message = `stop requests of other processes could not be read: ${messageOf(error)}`;
        engine.logger.warn({ err: error }, message);
      },
    );
  }

  async start(): Promise<void> {
    const { store, environment } = this.#engine;
    this.#endWatch = store.watch?.(processKey(environment.process), () => this.#reads.hurry());
    await this.#read();
    this.#reads.start();
  }

  close(): Promise<void> {
    this.#endWatch?.();
    return this.#reads.stop();
  }

  async #read(): Promise<void> {
    const { store, live } = this.#engine;
    const isAtWork = live.size > 0;
    if (!isAtWork && !this.#isDue) return;
    const rows = await store.scan({ prefix: STOP_REQUESTS, limit: MAX_REQUESTS_PER_READ, longest: MAX_BYTES_PER_ROW });
    const open = rows.map((row) => openExecutionKey(requestedExecution(row.key)));
    const revisions = (await store.getMany(open, MAX_BYTES_PER_ROW)).map((row) => row?.revision);
    const running = new Map([...live.values()].map((execution) => [execution.state.start.number, execution]));
    for (const [index, row] of rows.entries()) {
      const request = await readRequest(store, row);
      if (request === null) continue;
      const execution = running.get(requestedExecution(row.key));
      // For a run that has ended, or that another process has taken up: who asked asks again, or is gone.
      if (request[2] !== revisions[index]) await removeUnchanged(store, row);
      else if (execution?.revision !== request[2]) continue;
      else if (request[0] === "resume") await this.#resume(execution, request, row);
      else {
        execution.stop(stopFromRequest({ kind: request[0], reason: request[1] }));
        // If this process dies before the execution has settled, the requester writes the request for the next process.
        await removeUnchanged(store, row);
      }
    }
    this.#isDue = isAtWork;
  }

  async #resume(execution: Execution, request: ResumeRequest, row: Row): Promise<void> {
    const [, token] = request;
    if (!this.#answered.has(token) && !(await carryOutResume(execution, request))) return;
    this.#answered.add(token);
    await removeUnchanged(this.#engine.store, row);
    this.#answered.delete(token);
  }
}

/** Reads a request as a whole. Null when it was removed meanwhile. */
async function readRequest(store: Store, row: Row): Promise<StoredRequest | ResumeRequest | null> {
  const whole = row.size === undefined ? row : await store.get(row.key);
  return whole === undefined ? null : (JSON.parse(whole.value) as StoredRequest | ResumeRequest);
}
