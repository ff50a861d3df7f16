/** Takes up what a process that is gone left running. */

import { CommitConflict, messageOf } from "../../lib/errors.ts";
import { indexedExecution, OPEN_EXECUTIONS } from "../../storage/keys.ts";
import type { Row } from "../../storage/store.ts";
import type { WorkflowDefinition } from "../definition/definition.ts";
import type { Engine } from "../engine.ts";
import { nameOf } from "../journal/ids.ts";
import { loadExecution, readExecution } from "../journal/load.ts";
import { parseOpen, reopenedText } from "../journal/rows.ts";
import { timeAfter } from "../journal/state.ts";
import { isSuperseded } from "../journal/superseded.ts";
import { isStoreUnavailable } from "../run/commit.ts";
import type { Execution } from "../run/execution.ts";

/** Open rows read at once: each has the input of its execution. */
const BATCH = 100;

export type DeadProcess = (process: string) => boolean | Promise<boolean>;

/**
 * Runs every open execution on whose process is gone, as there are places for them. Resolves when all of them run here, or have
 * run, but for those that cannot: the log names them, and the next time it is tried again.
 *
 * @param gone whether a process, other than this one, will not come back
 * @param over whether nothing is to be taken up any more
 * @throws ServiceError `unavailable` while the store cannot be used
 */
export async function recoverExecutions(
  engine: Engine,
  gone: DeadProcess,
  over: () => boolean = () => false,
): Promise<number> {
  let count = 0;
  const live = engine.numbers();
  for (let after: string | undefined; ; ) {
    const range = { prefix: OPEN_EXECUTIONS, limit: BATCH };
    const rows = await engine.store.scan(after === undefined ? range : { ...range, after });
    for (const row of rows) {
      if (over()) return count;
      try {
        const { process } = parseOpen(row.value);
        const own = process === engine.around.process;
        const number = indexedExecution(row.key);
        if (own ? live.has(number) || engine.givenUp.has(number) : !(await gone(process))) continue;
        // It may have to wait for a place for so long that nothing is to be taken up any more.
        if (await engine.room.keep(async () => !over() && takeUpOne(engine, row, number))) count++;
      } catch (error) {
        if (isStoreUnavailable(error)) throw error;
        const message = `an execution cannot be taken up: ${messageOf(error)}`;
        engine.logger.error({ err: error, execution: indexedExecution(row.key) }, message);
      }
    }
    if (rows.length < BATCH) return count;
    after = rows.at(-1)?.key;
  }
}

async function takeUpOne(engine: Engine, row: Row, number: number): Promise<boolean> {
  const found = await readExecution(engine.store, number);
  if (found?.open?.revision !== row.revision || engine.live.has(nameOf(found.start))) return false;
  const { definition, problem } = await definitionOf(engine, found.start.definition);
  let open = found.open;
  if (engine.around.shared) {
    // One of our own too: it may have run, and have ended, since its row was read.
    const claimed = await claim(engine, found.open);
    if (claimed === null) return false;
    open = claimed;
  }
  const loaded = await loadExecution(engine.store, found);
  if (loaded === null || engine.live.has(nameOf(found.start))) return false;
  const caller = { requestId: "", logger: engine.logger, trace: engine.trace };
  const execution = engine.restore(loaded.state, definition, caller, { loaded, open, rest: null });
  engine.follow(execution, "recovery");
  if (problem !== null) engine.run(execution, (it) => restWith(it, problem));
  else if (definition.recovery === "fail") engine.run(execution, fail);
  else engine.run(execution);
  return true;
}

/** Ours from now on: a commit of the process that had it loses. Null when another was first. */
async function claim({ store, around }: Engine, { key, value, revision }: Row): Promise<Row | null> {
  const [, start, first] = JSON.parse(value) as [string, unknown, unknown];
  const ours = start === null ? reopenedText(around.process) : JSON.stringify([around.process, start, first]);
  try {
    return { key, value: ours, revision: await store.commit({ put: [[key, ours]], expect: [[key, revision]] }) };
  } catch (error) {
    if (error instanceof CommitConflict) return null;
    throw error;
  }
}

/** A definition whose plugins are gone can only be described. */
async function definitionOf(
  { definitions }: Engine,
  hash: string,
): Promise<{ definition: WorkflowDefinition; problem: string | null }> {
  const found = await definitions.find(hash);
  if (typeof found !== "string") return { definition: found, problem: null };
  return { definition: { outline: await definitions.outline(hash) } as WorkflowDefinition, problem: found };
}

/** Nothing is lost: it can be resumed once what it needs is back. */
function restWith(execution: Execution, reason: string): Promise<void> {
  execution.append(["suspend", "", timeAfter(execution.state), reason, null]);
  return execution.rest();
}

/**
 * The step that was begun last is the one that was interrupted; those that hold it began before. Those of branches that had lost
 * were not.
 */
function fail(execution: Execution): Promise<void> {
  const { state, definition } = execution;
  const running = [...state.steps.values()]
    .filter(({ status, path }) => status === "running" && !isSuperseded(path, state, definition.outline))
    .reverse();
  const at = timeAfter(execution.state);
  for (const { path } of running) execution.append(["fail", path, at, INTERRUPTED]);
  execution.append(["error", running[0]?.path ?? "", at, INTERRUPTED]);
  return execution.rest();
}

const INTERRUPTED = "interrupted: the process ended while it ran";
