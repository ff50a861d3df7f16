/** Starts new executions for a request. */

import { isDeepStrictEqual } from "node:util";
import { defaults } from "../../generated/defaults.ts";
import type {
  AttachQuery,
  ExecuteWorkflowRequest,
  ExecutionStarted,
  ExecutionsQuery,
  ResumeExecutionRequest,
} from "../../generated/types.ts";
import { requireExact } from "../http/decode.ts";
import { actingUser, lendToken, type Principal, seesEverything } from "../identity/principal.ts";
import { storedTime } from "../lib/clock.ts";
import { CommitConflict, invalid, notFound } from "../lib/errors.ts";
import { parseInstant } from "../lib/instant.ts";
import { isObject } from "../lib/is-object.ts";
import { isoTime } from "../lib/iso-time.ts";
import { changedInteger } from "../lib/large-integers.ts";
import { jsonBytes } from "../lib/size.ts";
import { resumeRemoteExecution } from "./cluster/requests.ts";
import type { Outline } from "./definition/definition.ts";
import type { Engine } from "./engine.ts";
import { type ExecutionStart, type ExecutionStatus, executionOwner, liveKey } from "./journal/entries.ts";
import { executionIdTaken, findExecution, notSuspended, startsWithId, stillRunning } from "./journal/load.ts";
import type { JournalState } from "./journal/state.ts";
import { type StoredExecution, waitForRest } from "./list/lookup.ts";
import type { Execution } from "./run/execution.ts";
import { unlessNumberTaken } from "./run/execution-rows.ts";
import { planResume, planResumeBeside } from "./run/replay.ts";
import { resumeBeside, takesResume } from "./run/resume-beside.ts";
import type { ExecutionQuery, WorkflowCall } from "./workflows.ts";

/**
 * @param number internal number of the new execution
 * @throws ServiceError as documented at `WorkflowAccess`
 */
export async function beginExecution(
  engine: Engine,
  principal: Principal,
  number: number,
  workflowId: string,
  body: ExecuteWorkflowRequest,
  call: WorkflowCall,
): Promise<Execution> {
  const definition = engine.declared(workflowId);
  engine.capacity.requireFree(call.user);
  const { input = null, options = {} } = body;
  const problem = definition.inputCheck?.(input, "input") ?? null;
  if (problem !== null) throw invalid(problem);
  const userId = actingUser(principal, options.userId) || undefined;
  const room = engine.store.requireRoom?.(userId, () => jsonBytes(input));
  if (room !== undefined) await room;
  const { executionId, conversationId, context, workflowState, metadata } = options;
  if (executionId === "." || executionId === "..")
    throw invalid('options.executionId must not be "." or "..", which cannot stand in a path');
  if (executionId !== undefined) {
    // The first commit ensures that the id is free. This check keeps an execution with a taken id from running its first steps.
    // Nothing may be awaited between the last check and the start.
    const exists = isLive(engine, executionId, userId) || (await isStored(engine, executionId, userId));
    if (exists || isLive(engine, executionId, userId)) throw executionIdTaken(executionId);
  }
  const start: ExecutionStart = {
    id: executionId ?? engine.newId(number),
    number,
    workflowId,
    workflowName: definition.name,
    definition: definition.hash,
    at: storedTime(),
    ownId: executionId !== undefined && engine.spaces.isolated ? true : undefined,
    input,
    context: context ?? {},
    state: workflowState ?? {},
    userId,
    conversationId,
    metadata,
    user: call.user ?? undefined,
    caller: seesEverything(call.caller) ? call.caller.kind : undefined,
  };
  return engine.begin(start, definition, call);
}

/** Makes the error for an execution whose first commit conflicted with one of another process. */
export type Lost = (conflict: CommitConflict) => Error;

export const lostBegin =
  ({ state: { start } }: Execution): Lost =>
  (conflict) =>
    unlessNumberTaken(conflict, start.number, executionIdTaken(start.id));

/** @param lost the error when the execution did not start here; one that another process has recovered is still running */
export async function unlessLost(execution: Execution, waiting: Promise<void>, lost: Lost): Promise<void> {
  try {
    await waiting;
  } catch (error) {
    if (!(error instanceof CommitConflict)) throw error;
    throw execution.isRecorded ? stillRunning(execution.state.start.id) : lost(error);
  }
}

/** Waits until a new execution is in the store. */
export async function untilRecorded(execution: Execution): Promise<Execution> {
  while (!execution.isRecorded) {
    await unlessLost(execution, Promise.race([execution.progress(), execution.settled]), lostBegin(execution));
  }
  return execution;
}

/** For a request that does not wait for its execution. */
export function acknowledge({ start }: JournalState): ExecutionStarted {
  const { id: executionId, workflowId, at } = start;
  return { executionId, workflowId, status: "running", startAt: isoTime(at) };
}

/** Whether an execution with this id runs here: with isolation one of the user, without it one of anybody. */
export function isLive(engine: Engine, id: string, userId = ""): boolean {
  const execution = engine.liveExecution(id, userId);
  return execution !== undefined && (!engine.spaces.isolated || executionOwner(execution.state.start) === userId);
}

/** Whether an execution with this id is in the store, with the same scope as `isLive`. */
export async function isStored({ store, spaces }: Engine, id: string, userId = ""): Promise<boolean> {
  const { isolated, owned } = spaces;
  if (owned && !isolated) return (await startsWithId(store, spaces, id)).length > 0;
  const matches = (start: ExecutionStart) => !isolated || executionOwner(start) === userId;
  return (await findExecution(store, id, { spaces, owner: userId, matches })) !== null;
}

// Resumes an execution for a request: a suspended one, a running one with a waiting step, or one that another process runs.

/** An execution that has settled in another process. */
interface Rested {
  readonly state: JournalState;
  readonly outline: Outline;
}

/** The execution that was resumed and runs here, or how it settled elsewhere. Null when it has changed meanwhile: look again. */
type Resumed = Execution | Rested | null;

/** @param find looks for the execution, and is called again when it has changed meanwhile */
export async function resumeExecution(
  engine: Engine,
  find: () => Promise<Execution | StoredExecution>,
  body: ResumeExecutionRequest,
  call: WorkflowCall,
): Promise<Execution | Rested> {
  for (;;) {
    const found = await find();
    const resumed =
      "loaded" in found ? await resumeStored(engine, found, body, call) : await resumeRunning(found, body, call);
    if (resumed !== null) return resumed;
  }
}

async function resumeRunning(
  execution: Execution,
  body: ResumeExecutionRequest,
  { keyed }: WorkflowCall,
): Promise<Execution | null> {
  const entry = planResumeBeside(execution.state, execution.definition, body);
  if (takesResume(execution)) {
    // A failed write is reported by the execution itself.
    resumeBeside(execution, entry, keyed?.runId).catch(() => {});
    return execution;
  }
  await waitForRest(execution);
  return null;
}

async function resumeStored(
  engine: Engine,
  stored: StoredExecution,
  body: ResumeExecutionRequest,
  call: WorkflowCall,
): Promise<Resumed> {
  const { found, loaded } = stored;
  const { start, status } = loaded.state;
  const isOpen = found.openRow !== null;
  if (isOpen ? !engine.environment.shared : status !== "suspended") throw notSuspended(start.id, status);
  const definition = await engine.definitions.pinned(start.definition);
  if (isOpen) {
    const [, path, , data] = planResumeBeside(loaded.state, definition, body);
    const state = await resumeRemoteExecution(engine.store, found, path, data, call.keyed?.runId);
    return state === null ? null : { state, outline: definition.outline };
  }
  const entry = planResume(loaded.state, definition, body);
  const namesStep = body.options?.stepId !== undefined;
  if (engine.live.has(liveKey(start))) return lostTo(start.id, namesStep);
  engine.capacity.requireFree(start.user);
  lendToken(call.user, start.user);
  const execution = engine.restore(stored, definition, call);
  engine.beginTrace(execution, "resume");
  execution.append(entry);
  if (call.keyed !== undefined) execution.append(["answer", entry[1], entry[2], call.keyed.runId]);
  engine.run(execution);
  return (await isFirst(engine, execution)) ? execution : lostTo(start.id, namesStep);
}

/** Another resume was first. Only a resume that names its step may be tried again: without a step both mean the same. */
function lostTo(id: string, namesStep: boolean): null {
  if (namesStep) return null;
  throw notSuspended(id, "running");
}

/** False when another process has resumed it before: nothing has had an effect then. */
async function isFirst({ environment }: Engine, execution: Execution): Promise<boolean> {
  if (!environment.shared) return true;
  try {
    while (!execution.isRecorded) await Promise.race([execution.progress(), execution.settled]);
    return true;
  } catch (error) {
    if (error instanceof CommitConflict && !execution.isRecorded) return false;
    throw error;
  }
}

// Parses parameters of requests about executions: status, dates, metadata, event cursor.

const MAX_ID_LENGTH = 128;
const MAX_VALUE_LENGTH = 4096;
const MAX_METADATA_KEYS = 64;
/** Brackets allowed in a value: the comparison recurses once per level. */
const MAX_BRACKETS = 256;
const METADATA_PREFIX = "metadata.";

/** The statuses that a filter may name: those of executions, and two aliases. */
const STATUS: Readonly<Record<NonNullable<ExecutionsQuery["status"]>, ExecutionStatus>> = {
  running: "running",
  suspended: "suspended",
  completed: "completed",
  cancelled: "cancelled",
  error: "error",
  success: "completed",
  pending: "running",
};

export function executionIdParam(params: Record<string, string>): string {
  const id = params.executionId!;
  // No client can choose a longer id.
  if (id.length > MAX_ID_LENGTH) throw notFound("no execution has such a long id");
  return id;
}

/** @throws ServiceError `invalid_input` for a date or metadata that does not parse */
export function executionQuery(query: ExecutionsQuery): ExecutionQuery {
  const { workflowId, status, from, to, userId } = query;
  const { limit = defaults.ExecutionsQuery.limit, offset = defaults.ExecutionsQuery.offset } = query;
  const list: ExecutionQuery = { limit, offset };
  if (workflowId !== undefined) list.workflowId = workflowId;
  if (status !== undefined) list.status = STATUS[status];
  if (from !== undefined) list.from = parseInstant("from", from);
  if (to !== undefined) list.to = parseInstant("to", to);
  if (userId !== undefined) list.userId = userId;
  const metadata = parseMetadata(query);
  if (metadata.size > 0) list.metadata = metadata;
  return list;
}

function parseMetadata(query: ExecutionsQuery): Map<string, readonly unknown[]> {
  const wanted = new Map<string, readonly unknown[]>();
  if (query.metadata !== undefined) {
    for (const [key, value] of Object.entries(parseObject(query.metadata))) wanted.set(key, [value]);
  }
  for (const [name, value] of Object.entries(query as Record<string, unknown>)) {
    if (!name.startsWith(METADATA_PREFIX)) continue;
    const key = name.slice(METADATA_PREFIX.length);
    if (key === "") throw invalid("metadata. needs the name of a key: metadata.team=sales");
    const text = value as string;
    if (text.length > MAX_VALUE_LENGTH)
      throw invalid(`${name.slice(0, 100)} must not be longer than ${MAX_VALUE_LENGTH} characters`);
    const values = possibleValues(text);
    const others = wanted.get(key);
    wanted.set(
      key,
      others === undefined ? values : values.filter((each) => others.some((other) => isDeepStrictEqual(each, other))),
    );
  }
  if (wanted.size > MAX_METADATA_KEYS) throw invalid(`metadata must not name more than ${MAX_METADATA_KEYS} keys`);
  return wanted;
}

function parseObject(text: string): object {
  const hint = 'metadata must be a JSON object such as {"team":"sales"}, URL-encoded';
  if (bracketsIn(text) > MAX_BRACKETS) throw invalid("metadata is nested too deeply");
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw invalid(hint);
  }
  if (!isObject(value)) throw invalid(hint);
  requireExact(text, "metadata");
  return value;
}

/** The values that a text may stand for: `7` may be the text and the number. */
function possibleValues(text: string): unknown[] {
  if (bracketsIn(text) > MAX_BRACKETS) return [text];
  try {
    const value: unknown = JSON.parse(text);
    return changedInteger(text) === null ? [text, value] : [text];
  } catch {
    return [text];
  }
}

const bracketsIn = (text: string): number => text.match(/[[{]/g)?.length ?? 0;

/**
 * The number of the last event that a client has. The header takes precedence over the query, because a client that lost its connection
 * requests the same URL again.
 *
 * @throws ServiceError `invalid_input` when the header is not a number
 */
export function parseEventCursor(query: AttachQuery, headers: Readonly<Record<string, string>>): number {
  const last = headers["last-event-id"];
  if (last === undefined || last === "") return query.fromSequence ?? defaults.AttachQuery.fromSequence;
  if (!/^\d{1,15}$/.test(last)) throw invalid("Last-Event-ID must be the number of an event");
  return Number(last);
}
