/** What steps did outside, by their marks in a file: no two processes at one execution, nothing again that was told to be done. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Deeds } from "./cluster.ts";

/** One run of a step. */
interface Run {
  readonly key: string;
  readonly execution: string;
  readonly pid: number;
  readonly begin: number;
  /** Infinite: there is no mark of its end. */
  end: number;
}

export function readRuns(folder: string): Run[] {
  const runs: Run[] = [];
  const open = new Map<string, Run>();
  for (const line of readFileSync(join(folder, "effects.log"), "utf8").split("\n")) {
    const [what, pid, time, key] = line.split(" ") as [string, string, string, string];
    if (key === undefined) continue;
    const name = `${pid} ${key}`;
    if (what === "end") {
      open.get(name)!.end = Number(time);
      open.delete(name);
      continue;
    }
    const run = {
      key,
      execution: key.slice(0, key.lastIndexOf(":")),
      pid: Number(pid),
      begin: Number(time),
      end: Number.POSITIVE_INFINITY,
    };
    runs.push(run);
    open.set(name, run);
  }
  return runs;
}

/** A process that is frozen for less is not taken for dead. */
const TAKE_OVER_MS = 4_000;

/**
 * What is wrong, in words. A step may run again after a crash. While one process works on an execution no other one may, unless the
 * first was stopped at that time: then what it had begun may end when it goes on. Nothing goes from a process that lives to another one;
 * one that ends while it boots, since the database has gone away, leaves what it had taken up.
 *
 * @param told when a client has read of each step that it is complete
 * @param mayMove whether another process may go on with an execution because a client has asked it to
 */
export function judgeRuns(
  runs: readonly Run[],
  deeds: Deeds,
  told: ReadonlyMap<string, number>,
  mayMove: (execution: string) => boolean,
): string[] {
  const problems: string[] = [];
  for (const { key, pid, begin } of runs) {
    const known = told.get(key);
    if (known !== undefined && begin > known)
      problems.push(`${key} ran in ${pid} ${begin - known} ms after a client had read that it is complete`);
  }
  const executions = new Map<string, Run[]>();
  for (const run of runs) executions.set(run.execution, [...(executions.get(run.execution) ?? []), run]);
  for (const [execution, mine] of executions) {
    for (const [index, later] of mine.entries()) {
      const before = mine[index - 1];
      if (before !== undefined && before.pid !== later.pid && !mayMove(execution) && lives(before, later.begin, deeds))
        problems.push(
          `${execution}: ${later.pid} has taken it from ${before.pid}, which was alive${troublesOf(before.pid, later.begin, deeds)}`,
        );
      for (const earlier of mine.slice(0, index)) {
        // Branches of one execution run beside each other.
        if (earlier.pid === later.pid && earlier.key !== later.key) continue;
        const end = Math.min(earlier.end, deeds.kills.get(earlier.pid) ?? Number.POSITIVE_INFINITY);
        // When one ended by itself is known by its marks alone.
        const isUnknown = end === Number.POSITIVE_INFINITY && deeds.failedBoots.has(earlier.pid);
        if (end <= later.begin || isUnknown || wasFrozen(earlier.pid, later.begin, deeds)) continue;
        problems.push(
          `${execution}: ${later.key} began in ${later.pid} while ${earlier.key} ran in ${earlier.pid}, ` +
            `${later.begin - earlier.begin} ms after its begin`,
        );
      }
    }
  }
  return problems;
}

/** Milliseconds; as long as a process that is taken for gone has not been heard of, twice over. */
const BEFORE_MS = 20_000;

/** What had happened to a process, and to the database, until a moment: in milliseconds before it. */
function troublesOf(pid: number, moment: number, { freezes, outages }: Deeds): string {
  const spans = [
    ...freezes.filter((span) => span.pid === pid).map((span) => ({ ...span, what: "it stood still" })),
    ...outages.map((span) => ({ ...span, what: "the database was away" })),
  ];
  return spans
    .filter(({ from, to }) => to > moment - BEFORE_MS && from < moment)
    .map(({ what, from, to }) => `; ${what} from ${moment - from} to ${moment - to} ms before`)
    .join("");
}

const wasFrozen = (pid: number, time: number, { freezes }: Deeds): boolean =>
  freezes.some((freeze) => freeze.pid === pid && freeze.from <= time && time <= freeze.to);

/** Whether the process of a run was neither killed nor frozen for long since, until a moment, and has not ended while it booted. */
const lives = ({ pid, begin }: Run, until: number, { kills, failedBoots, freezes }: Deeds): boolean =>
  !failedBoots.has(pid) &&
  (kills.get(pid) ?? Number.POSITIVE_INFINITY) > until &&
  !freezes.some((span) => span.pid === pid && span.to >= begin && Math.min(span.to, until) - span.from > TAKE_OVER_MS);
