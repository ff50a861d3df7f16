/** Takes up what a process that is gone left running. */
import { CommitConflict } from "../errors.ts";
import { indexedExecution, OPEN_EXECUTIONS } from "../storage/keys.ts";
import type { Row } from "../storage/store.ts";
import type { Definition } from "./definition.ts";
import type { Engine } from "./engine.ts";
import type { Execution } from "./execution.ts";
import { loadExecution, readExecution } from "./load.ts";
import { parseOpen, reopenedText } from "./rows.ts";

const BATCH = 200;

/**
 * Runs every open execution on whose process is gone. Resolves when all of them run here.
 *
 * @param gone whether a process, other than this one, will not come back
 */
export async function takeUp(engine: Engine, gone: (process: string) => boolean): Promise<number> {
  let count = 0;
  for (let after: string | undefined; ; ) {
    const range = { prefix: OPEN_EXECUTIONS, limit: BATCH };
    const rows = await engine.store.scan(after === undefined ? range : { ...range, after });
    for (const row of rows) if (await takeUpOne(engine, row, gone)) count++;
    if (rows.length < BATCH) return count;
    after = rows.at(-1)?.key;
  }
}

async function takeUpOne(engine: Engine, row: Row, gone: (process: string) => boolean): Promise<boolean> {
  const { process } = parseOpen(row.value);
  const own = process === engine.around.process;
  const number = indexedExecution(row.key);
  if (own ? isLive(engine, number) : !gone(process)) return false;
  const found = await readExecution(engine.store, number);
  if (found?.open?.revision !== row.revision || engine.live.has(found.start.id)) return false;
  let open = found.open;
  if (engine.around.shared && !own) {
    const claimed = await claim(engine, found.open);
    if (claimed === null) return false;
    open = claimed;
  }
  const loaded = await loadExecution(engine.store, found);
  if (loaded === null) return false;
  const { definition, problem } = await definitionOf(engine, found.start.definition);
  const caller = { requestId: "", logger: engine.logger };
  const execution = engine.restore(loaded.fold, definition, caller, { loaded, open, rest: null });
  if (problem !== null) engine.run(execution, (it) => restWith(it, problem));
  else if (definition.recovery === "fail") engine.run(execution, fail);
  else engine.run(execution);
  return true;
}

const isLive = ({ live }: Engine, number: number): boolean => {
  for (const { fold } of live.values()) if (fold.start.number === number) return true;
  return false;
};

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
): Promise<{ definition: Definition; problem: string | null }> {
  try {
    return { definition: await definitions.pinned(hash), problem: null };
  } catch (error) {
    const outline = await definitions.outline(hash);
    return { definition: { outline } as Definition, problem: (error as Error).message };
  }
}

/** Nothing is lost: it can be resumed once what it needs is back. */
function restWith(execution: Execution, reason: string): Promise<void> {
  execution.append(["suspend", "", Date.now(), reason, null]);
  return execution.rest();
}

function fail(execution: Execution): Promise<void> {
  const running = [...execution.fold.steps.values()].find(({ status }) => status === "running");
  execution.append(["error", running?.path ?? "", Date.now(), "interrupted: the process ended while it ran"]);
  return execution.rest();
}
