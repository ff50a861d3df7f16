/** Steps that run side by side: all of them, or the first that succeeds. */

import { isObject } from "../../lib/is-object.ts";
import type { AllStep, RaceStep, Step } from "../definition/definition.ts";
import type { ValueSource } from "../journal/entries.ts";
import { timeAfter } from "../journal/state.ts";
import type { Execution } from "./execution.ts";
import { Lifetime, type Stop } from "./lifetime.ts";
import { done, failed, type Outcome, stopped } from "./outcome.ts";
import type { Frame, RunSteps, StepInput } from "./scope.ts";
import { passValueOn } from "./step-entries.ts";

const DECIDED: Stop = { kind: "branch", reason: "another branch has decided", gracePeriod: 0 };

const GIVEN_UP: Stop = { kind: "lost", reason: "the execution cannot go on here", gracePeriod: 0 };

type Decides = (outcome: Outcome) => boolean;

/** Runs all branches until one decides, which stops the others. @returns their outcomes; undefined for those still unwinding */
function runBranches(
  runSteps: RunSteps,
  execution: Execution,
  branches: readonly (readonly Step[])[],
  frame: Frame,
  given: StepInput,
  lifetime: Lifetime,
  decides: Decides,
): Promise<{ outcomes: (Outcome | undefined)[]; decider: Outcome | null }> {
  const group = new Lifetime(lifetime);
  const outcomes: (Outcome | undefined)[] = branches.map(() => undefined);
  return new Promise((resolve, reject) => {
    let left = branches.length;
    const settle = (decider: Outcome | null) => {
      group.end();
      resolve({ outcomes, decider });
    };
    const lost = (error: unknown) => {
      group.stop(GIVEN_UP);
      group.end();
      reject(error as Error);
    };
    branches.forEach((steps, index) => {
      runSteps(execution, steps, frame, given, group).then((outcome) => {
        // What comes of a branch after the decision is nothing.
        if (group.stoppedItself) return;
        outcomes[index] = outcome;
        left--;
        if (decides(outcome)) {
          group.stop(DECIDED);
          settle(outcome);
        } else if (left === 0) settle(null);
        // The others may run for long: what came of this one must not be lost with them.
        else execution.flush().catch(lost);
      }, lost);
    });
  });
}

/** What keeps branches of which none has decided from being over: one was stopped, or some wait. Undefined for neither. */
function heldBy(outcomes: readonly (Outcome | undefined)[]): Outcome | undefined {
  const stop = outcomes.find((outcome) => outcome?.kind === "stopped");
  if (stop !== undefined) return stop;
  const paths = outcomes.flatMap((outcome) => (outcome?.kind === "suspended" ? outcome.paths : []));
  return paths.length === 0 ? undefined : { kind: "suspended", paths };
}

/** A branch that fails stops the others; one that waits does not: they finish, and are kept. */
export async function runAll(
  runSteps: RunSteps,
  execution: Execution,
  step: AllStep,
  frame: Frame,
  given: StepInput,
  lifetime: Lifetime,
): Promise<Outcome> {
  const { outcomes, decider } = await runBranches(
    runSteps,
    execution,
    step.branches,
    frame,
    given,
    lifetime,
    (outcome) => outcome.kind === "failed",
  );
  if (lifetime.isAbandoned) return stopped(step.path);
  if (decider !== null) return decider;
  const held = heldBy(outcomes);
  if (held !== undefined) return held;
  let merged: Record<string, unknown> = {};
  step.branches.forEach((steps, index) => {
    const outcome = outcomes[index];
    if (outcome?.kind !== "done") return;
    const { data } = outcome;
    merged = isObject(data) ? { ...merged, ...data } : { ...merged, [steps.at(-1)?.id ?? ""]: data };
  });
  const problem = step.outputCheck?.(merged, "output") ?? null;
  if (problem !== null) return failed(step.path, problem);
  execution.append(["done", step.path, timeAfter(execution.state), merged]);
  return done(merged, step.path);
}

/** What the first branch gave that was over when the process ended: the others are not run again. */
function winnerOnRecord({ state }: Execution, { branches }: RaceStep): { data: unknown; source: ValueSource } | null {
  const last = branches.map((steps) => state.steps.get(steps.at(-1)?.path ?? ""));
  const over = last.filter((step) => step?.status === "done" || step?.status === "skipped");
  const [first] = over.sort((a, b) => (a?.endedAt ?? 0) - (b?.endedAt ?? 0));
  return first === undefined ? null : { data: state.values.get(first.output), source: first.output };
}

/** The first success wins, and stops the others. Waits only when no branch can succeed any more without being resumed. */
export async function runRace(
  runSteps: RunSteps,
  execution: Execution,
  step: RaceStep,
  frame: Frame,
  given: StepInput,
  lifetime: Lifetime,
): Promise<Outcome> {
  const won = winnerOnRecord(execution, step);
  if (won !== null) return passValueOn(execution, step, won.data, won.source);
  const { outcomes, decider } = await runBranches(
    runSteps,
    execution,
    step.branches,
    frame,
    given,
    lifetime,
    (outcome) => outcome.kind === "done",
  );
  if (lifetime.isAbandoned) return stopped(step.path);
  if (decider?.kind === "done") return passValueOn(execution, step, decider.data, decider.source);
  return heldBy(outcomes) ?? outcomes[0] ?? stopped(step.path);
}
