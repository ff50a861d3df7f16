/**
 * Requests to resume a waiting step of an execution that another process runs. They work like stop requests: the request is a row,
 * which the process that runs the execution reads, and the requester watches the execution. The journal records the token of each
 * request that was carried out, so that it is carried out only once, whichever process dies in between.
 */
import { randomBytes } from "node:crypto";
import { removeUnchanged, unlessConflict } from "../../storage/conflict.ts";
import { openExecutionKey, processKey, resumeRequestKey } from "../../storage/keys.ts";
import type { Row, Store } from "../../storage/store.ts";
import { Watch } from "../../storage/watch.ts";
import type { JournalEntry, StepPath } from "../journal/entries.ts";
import { alreadyResumed, noExecution, stillRunning } from "../journal/errors.ts";
import { type FoundExecution, loadExecution, readExecution } from "../journal/load.ts";
import { parseOpenRow } from "../journal/rows.ts";
import { type JournalState, timeAfter } from "../journal/state.ts";
import type { Execution } from "../run/execution.ts";
import { resumeBeside, takesResume } from "../run/resume-beside.ts";

const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 1_000;
const GIVE_UP_AFTER_MS = 600_000;

/** `open`: revision of the open row that the request refers to, as in a stop request. Missing data is left out. */
export type ResumeRequest = readonly [kind: "resume", token: string, open: number, path: StepPath, data?: unknown];

const parseRequest = (row: Row): ResumeRequest => JSON.parse(row.value) as ResumeRequest;

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

async function poll<T>(watch: Watch, id: string, look: Look<T>): Promise<T> {
  const end = performance.now() + GIVE_UP_AFTER_MS;
  for (let pause = FIRST_PAUSE_MS; performance.now() < end; pause = Math.min(pause * 2, LONGEST_PAUSE_MS)) {
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
    const isOwn = row !== undefined && parseRequest(row)[1] === token;
    if (isOwn && openRow?.revision === asked) return null;
    const loaded = await loadExecution(store, found);
    if (loaded === null) return null;
    if (loaded.entries.some(([kind, , , given]) => kind === "answer" && given === token)) return true;
    if (openRow === null || loaded.state.steps.get(path)?.status !== "waiting") {
      if (isOwn) await removeUnchanged(store, row);
      return false;
    }
    if (row !== undefined && !isOwn && parseRequest(row)[2] === openRow.revision) throw alreadyResumed(path);
    const about = ["resume", token, openRow.revision, path] as const;
    const request: ResumeRequest = data === undefined ? about : [...about, data];
    const expect: [string, number | null][] = [
      [openRow.key, openRow.revision],
      [key, row?.revision ?? null],
    ];
    if (await unlessConflict(store.commit({ put: [[key, JSON.stringify(request)]], expect }))) asked = openRow.revision;
    store.wake?.(processKey(parseOpenRow(openRow.value).process));
    return null;
  };
}

/**
 * Carries out a request for an execution that runs here. Resolves when the resume is on disk. False when the request has to wait: the
 * execution is about to settle, which the requester will notice.
 */
export async function carryOutResume(execution: Execution, request: ResumeRequest): Promise<boolean> {
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
