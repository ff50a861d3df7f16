/** Recovers executions: those that a dead process left running continue here. */
import { counted } from "../../lib/counted.ts";
import { CommitConflict, messageOf } from "../../lib/errors.ts";
import { isStoreUnavailable } from "../../storage/away.ts";
import { indexedExecution, journalKey, OPEN_EXECUTIONS, stopRequestKey } from "../../storage/keys.ts";
import { allRows } from "../../storage/ranges.ts";
import type { Row } from "../../storage/store.ts";
import type { WorkflowDefinition } from "../definition/definition.ts";
import type { Engine } from "../engine.ts";
import {
  type ExecutionStart,
  type JournalEntry,
  liveKey,
  parseOpenRow,
  type Recovered,
  takenOverRowText,
} from "../journal/entries.ts";
import { type FoundExecution, loadExecution, readExecution, readJournal } from "../journal/load.ts";
import { isRun } from "../journal/record.ts";
import { isSuperseded, timeAfter } from "../journal/state.ts";
import type { StoredRows } from "../run/environment.ts";
import type { Execution } from "../run/execution.ts";
import { type StopRequest, stopsAsked } from "./requests.ts";

/** Counts the entries that show progress. The parts of an agent's answer do not: each try of its step records them again. */
const countProgress = (entries: readonly JournalEntry[]): number => entries.filter(([kind]) => kind !== "part").length;

/**
 * The count of recoveries after a further one. An execution that kills its process would otherwise be recovered forever, and the
 * service would never come up.
 *
 * @param before the count after the last recovery
 */
function countRecovery(before: Recovered, entries: readonly JournalEntry[]): Recovered {
  const progress = countProgress(entries);
  if (progress === before.progress) return { times: before.times + 1, progress };
  // An `interrupt` says that the last process stopped cleanly.
  return { times: entries.at(-1)?.[0] === "interrupt" ? 0 : 1, progress };
}

/** Open rows read at once; each may hold the whole input of its execution. */
const ROWS_PER_READ = 100;

/**
 * Continues every open execution whose process is dead, as soon as there are free slots. Resolves when all of them run here or
 * have run. Those that cannot continue are logged and tried again the next time.
 *
 * @param isGone whether a process, other than this one, will not come back
 * @param isStopped whether recovery has been stopped
 * @throws ServiceError `unavailable` while the store cannot be used
 */
export async function recoverExecutions(
  engine: Engine,
  isGone: (process: string) => boolean | Promise<boolean>,
  isStopped: () => boolean = () => false,
): Promise<number> {
  let count = 0;
  const live = engine.liveNumbers();
  const leftAlone = new Map<number, number>();
  for await (const rows of allRows(engine.store, { prefix: OPEN_EXECUTIONS }, ROWS_PER_READ)) {
    for (const row of rows) {
      if (isStopped()) return count;
      try {
        const { process } = parseOpenRow(row.value);
        const own = process === engine.environment.process;
        const number = indexedExecution(row.key);
        if (own ? live.has(number) || engine.abandoned.has(number) : !(await isGone(process))) continue;
        // By the time that a slot is free, this process may be shutting down.
        const recovered = await engine.capacity.whenFree(async () => !isStopped() && recoverOne(engine, row, number));
        if (recovered === true) count++;
        else if (recovered === LEFT_ALONE) leftAlone.set(number, row.revision);
      } catch (error) {
        if (isStoreUnavailable(error)) throw error;
        const message = `an execution cannot be recovered: ${messageOf(error)}`;
        engine.logger.error({ err: error, execution: indexedExecution(row.key) }, message);
      }
    }
  }
  engine.leftAlone = leftAlone;
  return count;
}

/** The execution needs something that this process does not have, but another one may. */
const LEFT_ALONE = "left alone";

async function recoverOne(engine: Engine, row: Row, number: number): Promise<boolean | typeof LEFT_ALONE> {
  const found = await readExecution(engine.store, number);
  if (found?.openRow?.revision !== row.revision || engine.live.has(liveKey(found.start))) return false;
  const { definition, problem } = await findDefinition(engine, found.start.definition);
  let asked: StopRequest | undefined;
  if (problem !== null && engine.environment.shared) {
    [asked] = await stopsAsked(engine.store, new Map([[number, row.revision]]));
    if (asked === undefined) return leaveAlone(engine, found.start, problem);
  }
  const claimed = await claim(engine, found);
  if (claimed === null || engine.live.has(liveKey(found.start))) return false;
  const { recovered } = claimed;
  const caller = { requestId: "", logger: engine.logger, trace: engine.trace };
  const execution = engine.restore(claimed, definition, caller);
  engine.beginTrace(execution, "recovery");
  if (asked !== undefined) engine.run(execution, (it) => stopAsAsked(it, asked));
  else if (problem !== null && isRun(found.start.workflowId)) engine.run(execution, failWithoutAgent);
  else if (problem !== null) engine.run(execution, (it) => suspendFor(it, problem));
  else if (definition.recovery === "fail") engine.run(execution, (it) => endInterrupted(it, INTERRUPTED_MESSAGE));
  else if (recovered.times > definition.recoveries)
    engine.run(execution, (it) => endInterrupted(it, `stopped its process ${counted(recovered.times, "times")}`));
  else engine.run(execution);
  return true;
}

interface Claimed extends StoredRows {
  readonly recovered: Recovered;
}

/**
 * Writes this process into the open row, so that commits of the previous process fail, and counts the recovery. Both are on disk before
 * the execution continues, because it may kill this process too. Null when another process was first, or the execution has settled.
 */
async function claim({ store, environment }: Engine, found: FoundExecution): Promise<Claimed | null> {
  const { number } = found.start;
  const { key, value, revision } = found.openRow!;
  const { process, recovered: before } = found.open!;
  const read = await loadExecution(store, found);
  if (read === null) return null;
  // An execution of this very process that stopped because the store was unavailable has not killed a process.
  const recovered = process === environment.process ? before : countRecovery(before, read.entries);
  const taken = takenOverRowText(value, environment.process, recovered);
  try {
    const openRow = {
      key,
      value: taken,
      // A request to stop it is one to the process before: whoever waits for that asks again.
      revision: await store.commit({
        put: [[key, taken]],
        delete: [stopRequestKey(number)],
        expect: [[key, revision]],
      }),
    };
    // The previous process may have written entries after the read and before its commits began to fail.
    const isBehind =
      (await readJournal(store, number, read.rows === 0 ? undefined : journalKey(number, read.rows - 1))).length > 0;
    const loaded = isBehind ? await loadExecution(store, found) : read;
    return loaded === null ? null : { found: { openRow, recordRow: null }, loaded, recovered };
  } catch (error) {
    if (error instanceof CommitConflict) return null;
    throw error;
  }
}

/** When plugins of the definition are missing, the result has only its outline, and `problem` names what is missing. */
async function findDefinition(
  { definitions }: Engine,
  hash: string,
): Promise<{ definition: WorkflowDefinition; problem: string | null }> {
  const found = await definitions.find(hash);
  if (typeof found !== "string") return { definition: found, problem: null };
  return { definition: { outline: await definitions.outline(hash) } as WorkflowDefinition, problem: found };
}

/** Leaves the execution to a process that has what it needs, at the latest when such a process starts. */
function leaveAlone(
  { leftAlone, logger }: Engine,
  { id, number, workflowId }: ExecutionStart,
  problem: string,
): typeof LEFT_ALONE {
  if (!leftAlone.has(number))
    logger.warn({ executionId: id, workflowId }, `an execution is left to other processes: ${problem}`);
  return LEFT_ALONE;
}

function stopAsAsked(execution: Execution, { kind, reason }: StopRequest): Promise<void> {
  const at = timeAfter(execution.state);
  execution.append(kind === "cancel" ? ["cancel", "", at, reason] : ["suspend", "", at, reason, null]);
  return execution.writeRecord();
}

/** Suspends the execution: it can be resumed once what it needs is back. */
function suspendFor(execution: Execution, reason: string): Promise<void> {
  execution.append(["suspend", "", timeAfter(execution.state), reason, null]);
  return execution.writeRecord();
}

/** Ends the run of an agent that does not exist any more: it could never be resumed. */
function failWithoutAgent(execution: Execution): Promise<void> {
  execution.append([
    "error",
    "",
    timeAfter(execution.state),
    "interrupted: this service does not have the agent any more",
  ]);
  return execution.writeRecord();
}

/**
 * Ends an execution with `recovery: fail`, or one that kills its process. The step that started last is the one that was interrupted; the
 * steps that contain it started before it. Steps of branches that had already lost were not interrupted.
 */
export function endInterrupted(execution: Execution, message: string): Promise<void> {
  const { state, definition } = execution;
  const running = [...state.steps.values()]
    .filter(({ status, path }) => status === "running" && !isSuperseded(path, state, definition.outline))
    .reverse();
  const at = timeAfter(execution.state);
  for (const { path } of running) execution.append(["fail", path, at, message]);
  execution.append(["error", running[0]?.path ?? "", at, message]);
  return execution.writeRecord();
}

const INTERRUPTED_MESSAGE = "interrupted: the process ended while it ran";
