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

export interface Built<Made, Needs = never> extends LifeCycle {
  readonly parts: Made;
  readonly problems?: readonly Problem[];
  /** Of a kept stage: looks at what the next generation is made of. Nothing changes before `Adoption.apply`. */
  adopt?(parts: Needs, failed: boolean): Adoption | Promise<Adoption>;
}

/** What a kept stage takes over from the next generation. */
interface Adoption {
  readonly problems?: readonly Problem[];
  /** When there is nothing to report: what has to be stored before the swap. */
  begin?(): Promise<void>;
  /** At the swap. Must not fail. */
  apply?(): void;
}

/**
 * Marks a stage that is made once in the life of the process, because what it makes is the identity of the process or holds work that
 * is under way. All others are made anew with each generation, that is with each reload, and end with the last work of their own.
 *
 * @param fixed settings that the stage reads once: a reload that changes one is refused. `*` stands for every key.
 */
export const kept = <S extends AnyStage>(stage: S, fixed: readonly string[] = []): S =>
  Object.assign(stage, { kept: true, fixed } satisfies Keeping);

interface Keeping {
  readonly kept: true;
  readonly fixed: readonly string[];
}

const isKept = (stage: object): stage is Keeping => "kept" in stage;

/** The settings that the kept stages of a list read once. */
export const fixedBy = (stages: readonly object[]): string[] =>
  stages.flatMap((stage) => (isKept(stage) ? stage.fixed : []));

/**
 * @param parts what earlier stages have made
 * @param failed whether there is an error in the report already: then nothing is opened that would leave a trace
 */
export type Stage<Needs extends keyof Parts, Makes extends keyof Parts> = (
  parts: Pick<Parts, Needs>,
  failed: boolean,
) => Built<Pick<Parts, Makes>, Pick<Parts, Needs>> | Promise<Built<Pick<Parts, Makes>, Pick<Parts, Needs>>>;

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
  /** Gives the kept stages what they take over: the swap. */
  adopt(): void;
  end(): Promise<void>;
  /** How the stages that were made here end. */
  readonly ends: readonly End[];
  /** The stages that a later assembly does not make again. */
  readonly kept: Kept;
}

/** How one stage ends. */
interface End {
  /** In the list. */
  readonly place: number;
  readonly kept: boolean;
  end(): void | Promise<void>;
}

/** By place in the list. */
type Kept = ReadonlyMap<number, Built<object>>;

/** What is known of the manifest before the first stage, and how a problem gets its place in the file. */
interface Report {
  readonly issues: readonly Issue[];
  issueAt(path: Path, message: string, severity?: Issue["severity"]): Issue;
}

const issuePlace = ({ file, path }: Issue): string => `${file} ${path}`;

interface Before<Given> {
  /** Of the first assembly. */
  readonly kept?: Kept | undefined;
  /** What kept stages are given in place of parts that are this generation's own. */
  readonly lasting?: Partial<Given>;
}

/**
 * Runs the stages one after the other; kept ones that are made already adopt. They begin in the same order, idle all at once, and
 * end in reverse order.
 */
export async function assemble<Given extends object, const Stages extends readonly AnyStage[]>(
  stages: Stages & InOrder<Stages, Given>,
  given: Given,
  { issues: known, issueAt }: Report,
  { kept: before = new Map(), lasting = {} }: Before<Given> = {},
): Promise<Assembly<PartsOf<Stages, Given>>> {
  const issues = [...known];
  const lives: LifeCycle[] = [];
  const adoptions: Adoption[] = [];
  const ends: End[] = [];
  const keeping = new Map(before);
  let made: object = {};
  for (const [place, stage] of (stages as readonly AnyStage[]).entries()) {
    const existing = before.get(place);
    const parts = { ...given, ...(isKept(stage) && existing === undefined && lasting), ...made } as never;
    if (existing === undefined) {
      const built = await stage(parts, hasErrors(issues));
      report(built.problems);
      made = { ...made, ...built.parts };
      lives.push(built);
      ends.push({ place, kept: isKept(stage), end: () => built.end?.() });
      if (isKept(stage)) keeping.set(place, built);
    } else {
      const adoption = (await existing.adopt?.(parts, hasErrors(issues))) ?? {};
      report(adoption.problems);
      made = { ...made, ...existing.parts };
      lives.push({ begin: () => adoption.begin?.() });
      adoptions.push(adoption);
    }
  }
  function report(problems: readonly Problem[] = []): void {
    // One mistake is one message: what an earlier stage has refused at a place, a later one need not refuse again.
    const refused = new Set(issues.filter(({ severity }) => severity === "error").map(issuePlace));
    for (const { path, message, severity } of problems) {
      const issue = issueAt(path, message, severity);
      if (!refused.has(issuePlace(issue))) issues.push(issue);
    }
  }
  return {
    parts: { ...given, ...made } as PartsOf<Stages, Given>,
    issues,
    ends,
    kept: keeping,
    async begin() {
      for (const life of lives) await life.begin?.();
    },
    adopt() {
      for (const adoption of adoptions) adoption.apply?.();
    },
    async idle(timeout) {
      await Promise.all(lives.map((life) => life.idle?.(timeout)));
    },
    end: () => endAll(ends),
  };
}

/** One after the other, the last of the list first: also stages of several generations. */
export async function endAll(ends: readonly End[]): Promise<void> {
  for (const { end } of [...ends].sort((left, right) => right.place - left.place)) await end();
}
