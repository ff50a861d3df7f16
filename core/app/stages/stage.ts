/**
 * What a stage of boot is, and how a list of them becomes one assembly. A stage is a function from the parts made so far to the
 * parts that it makes; TypeScript refuses a list in which a stage needs what only a later one makes.
 */
import type { Path, Problem } from "../../lib/problem.ts";
import { hasErrors, type Issue } from "../../manifest/issues.ts";
import type { Parts } from "./parts.ts";

/** What stages bring to the life of the service: all of it is optional. */
interface LifeCycle {
  /** Before the service listens: recovers what an earlier process left, and starts background work. */
  begin?(): void | Promise<void>;
  /** Waits for work that no request waits for, at most some milliseconds. */
  idle?(timeout: number): Promise<void>;
  /** Ends what the stage made. Everything that was made after it has ended by then. */
  end?(): void | Promise<void>;
}

export interface Built<Made> extends LifeCycle {
  readonly parts: Made;
  readonly problems?: readonly Problem[];
}

/**
 * @param parts what earlier stages have made
 * @param failed whether there is an error in the report already: then nothing is opened that would leave a trace
 */
export type Stage<Needs extends keyof Parts, Makes extends keyof Parts> = (
  parts: Pick<Parts, Needs>,
  failed: boolean,
) => Built<Pick<Parts, Makes>> | Promise<Built<Pick<Parts, Makes>>>;

type AnyStage = (parts: never, failed: boolean) => Built<object> | Promise<Built<object>>;
type MadeBy<S extends AnyStage> = Awaited<ReturnType<S>>["parts"];

/** The list as it must be: a stage is given what stands before it, and nothing else. */
type InOrder<Stages extends readonly AnyStage[], Given> = Stages extends readonly [
  infer First extends AnyStage,
  ...infer Rest extends readonly AnyStage[],
]
  ? readonly [(parts: Given, failed: boolean) => ReturnType<First>, ...InOrder<Rest, Given & MadeBy<First>>]
  : readonly [];

/** The first parts, and what all stages make. */
type PartsOf<Stages extends readonly AnyStage[], Given> = Stages extends readonly [
  infer First extends AnyStage,
  ...infer Rest extends readonly AnyStage[],
]
  ? PartsOf<Rest, Given & MadeBy<First>>
  : Given;

interface Assembly<Made> extends Required<LifeCycle> {
  readonly parts: Made;
  /** Those that were there before, and those that the stages found. */
  readonly issues: readonly Issue[];
  begin(): Promise<void>;
  end(): Promise<void>;
}

/** What is known of the manifest before the first stage, and how a problem gets its place in the file. */
interface Report {
  readonly issues: readonly Issue[];
  issueAt(path: Path, message: string, severity?: Issue["severity"]): Issue;
}

/** Runs the stages one after the other. They begin in the same order, idle all at once, and end in reverse order. */
export async function assemble<Given extends object, const Stages extends readonly AnyStage[]>(
  stages: Stages & InOrder<Stages, Given>,
  given: Given,
  { issues: known, issueAt }: Report,
): Promise<Assembly<PartsOf<Stages, Given>>> {
  const issues = [...known];
  const lives: LifeCycle[] = [];
  let parts: object = given;
  for (const stage of stages as readonly ((parts: object, failed: boolean) => ReturnType<AnyStage>)[]) {
    const { parts: made, problems = [], ...life } = await stage(parts, hasErrors(issues));
    for (const { path, message, severity } of problems) issues.push(issueAt(path, message, severity));
    parts = { ...parts, ...made };
    lives.push(life);
  }
  return {
    parts: parts as PartsOf<Stages, Given>,
    issues,
    async begin() {
      for (const life of lives) await life.begin?.();
    },
    async idle(timeout) {
      await Promise.all(lives.map((life) => life.idle?.(timeout)));
    },
    async end() {
      for (const life of lives.toReversed()) await life.end?.();
    },
  };
}
