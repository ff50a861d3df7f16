/** The steps andAll and andRace: branches that run in parallel until all of them, or the first, have succeeded. */
import { isObject } from "../../lib/is-object.ts";
import type { AllStep, RaceStep, Step } from "../definition/definition.ts";
import type { StepPath, ValueSource } from "../journal/entries.ts";
import type { Execution } from "./execution.ts";
import { Lifetime, type Stop } from "./lifetime.ts";
import { failed, type Outcome, stopped } from "./outcome.ts";
import { isAnswered } from "./resume-beside.ts";
import type { Frame, RunSteps, StepInput } from "./scope.ts";
import { passValueOn, recordOutput } from "./step-entries.ts";

const BRANCH_DECIDED: Stop = { kind: "branch", reason: "another branch has decided", gracePeriod: 0 };

const EXECUTION_LOST: Stop = { kind: "lost", reason: "the execution cannot go on here", gracePeriod: 0 };

/**
 * Runs all branches until the outcome of one of them decides, which stops the others. A branch that waits continues when a step in it
 * is resumed while others still run.
 *
 * @param decisive the kind of outcome that decides; a branch that bails always does
 * @returns the outcomes; undefined for branches that were stopped and have not returned yet
 */
function runBranches(
  runSteps: RunSteps,
  execution: Execution,
  branches: readonly (readonly Step[])[],
  frame: Frame,
  given: StepInput,
  lifetime: Lifetime,
  decisive: Outcome["kind"],
): Promise<{ outcomes: (Outcome | undefined)[]; decider: Outcome | null }> {
  const group = new Lifetime(lifetime);
  const outcomes: (Outcome | undefined)[] = branches.map(() => undefined);
  return new Promise((resolve, reject) => {
    let running = branches.length;
    const waiting = new Set<StepPath>();
    const forget = (paths: Iterable<StepPath>) => {
      for (const path of paths) if (waiting.delete(path)) execution.resumable.delete(path);
    };
    const finish = (decider: Outcome | null) => {
      forget(waiting);
      group.end();
      resolve({ outcomes, decider });
    };
    const abort = (error: unknown) => {
      forget(waiting);
      group.stop(EXECUTION_LOST);
      group.end();
      reject(error as Error);
    };
    const wait = (index: number, paths: readonly StepPath[]) => {
      const goOn = () => {
        forget(paths);
        outcomes[index] = undefined;
        running++;
        run(index);
      };
      for (const path of paths) {
        waiting.add(path);
        execution.resumable.set(path, goOn);
      }
    };
    const run = (index: number) => {
      runSteps(execution, branches[index]!, frame, given, group).then((outcome) => {
        // Another branch has decided already: later outcomes are ignored.
        if (group.stoppedItself) return;
        if (isAnswered(execution, outcome)) return run(index);
        outcomes[index] = outcome;
        running--;
        if (outcome.kind === decisive || outcome.kind === "bailed") {
          group.stop(BRANCH_DECIDED);
          finish(outcome);
        } else if (running === 0) finish(null);
        else {
          if (outcome.kind === "suspended") wait(index, outcome.paths);
          // The other branches may run for long: write the outcome of this one now, so that a crash does not lose it.
          execution.flush().catch(abort);
        }
      }, abort);
    };
    const beginAll = async () => {
      for (const index of branches.keys()) {
        while (execution.slice.isOver) await execution.slice.next();
        // A branch that has already started has decided.
        if (group.stoppedItself) return;
        run(index);
      }
    };
    beginAll().catch(abort);
  });
}

/** The outcome when no branch has decided: stopped if one of them was, suspended if some of them wait; otherwise undefined. */
function unfinishedOutcome(outcomes: readonly (Outcome | undefined)[]): Outcome | undefined {
  const stop = outcomes.find((outcome) => outcome?.kind === "stopped");
  if (stop !== undefined) return stop;
  const paths = outcomes.flatMap((outcome) => (outcome?.kind === "suspended" ? outcome.paths : []));
  return paths.length === 0 ? undefined : { kind: "suspended", paths };
}

/** Runs the branches of an andAll. One that fails stops the others. While one waits, the others finish and keep their outputs. */
export async function runAll(
  runSteps: RunSteps,
  execution: Execution,
  step: AllStep,
  frame: Frame,
  given: StepInput,
  lifetime: Lifetime,
): Promise<Outcome> {
  const { outcomes, decider } = await runBranches(runSteps, execution, step.branches, frame, given, lifetime, "failed");
  if (lifetime.isAbandoned) return stopped(step.path);
  if (decider !== null) return decider;
  const unfinished = unfinishedOutcome(outcomes);
  if (unfinished !== undefined) return unfinished;
  const merged = mergeOutputs(step.branches, outcomes);
  const problem = step.outputCheck?.(merged, "output") ?? null;
  if (problem !== null) return failed(step.path, problem);
  return recordOutput(execution, step, merged);
}

/** Merges all outputs into one object: members of objects, and other outputs by the id of the last step of their branch. */
function mergeOutputs(branches: AllStep["branches"], outcomes: readonly (Outcome | undefined)[]): object {
  const members = new Map<string, unknown>();
  for (const [index, outcome] of outcomes.entries()) {
    if (outcome?.kind !== "done") continue;
    const { data } = outcome;
    if (isObject(data)) for (const key of Object.keys(data)) members.set(key, (data as Record<string, unknown>)[key]);
    else members.set(branches[index]!.at(-1)?.id ?? "", data);
  }
  // `fromEntries` makes every name an own member, even `__proto__`.
  return Object.fromEntries(members);
}

/** After a restart: the output of the branch that had won before it. The others are not run again. */
function recordedWinner({ state }: Execution, { branches }: RaceStep): { data: unknown; source: ValueSource } | null {
  const last = branches.map((steps) => state.steps.get(steps.at(-1)?.path ?? ""));
  const over = last.filter((step) => step?.status === "done" || step?.status === "skipped");
  const [first] = over.sort((a, b) => (a?.endedAt ?? 0) - (b?.endedAt ?? 0));
  return first === undefined ? null : { data: state.values.get(first.output), source: first.output };
}

/** Runs the branches of an andRace. The first that succeeds wins and stops the others. Waits only when no branch can succeed unresumed. */
export async function runRace(
  runSteps: RunSteps,
  execution: Execution,
  step: RaceStep,
  frame: Frame,
  given: StepInput,
  lifetime: Lifetime,
): Promise<Outcome> {
  const won = recordedWinner(execution, step);
  if (won !== null) return passValueOn(execution, step, won.data, won.source);
  const { outcomes, decider } = await runBranches(runSteps, execution, step.branches, frame, given, lifetime, "done");
  if (lifetime.isAbandoned) return stopped(step.path);
  if (decider?.kind === "bailed") return decider;
  if (decider?.kind === "done") return passValueOn(execution, step, decider.data, decider.source);
  return unfinishedOutcome(outcomes) ?? outcomes[0] ?? stopped(step.path);
}
