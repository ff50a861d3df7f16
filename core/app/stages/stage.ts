/**
 * Defines the stages of boot, and assembles a list of them. A stage is a function from the parts made so far to the parts that it
 * makes; TypeScript rejects a list in which a stage needs a part that only a later one makes.
 */
import type { Path, Problem } from "../../lib/errors.ts";
import { hasErrors, type Issue } from "../../manifest/manifest.ts";
import type { Parts } from "./parts.ts";

/** The functions of a stage in the life cycle of the service, all optional. */
interface LifeCycle {
  /** Called before the service listens: recovers what an earlier process left unfinished, and starts background work. */
  begin?(): void | Promise<void>;
  /** Waits for background work, at most some milliseconds. */
  idle?(timeout: number): Promise<void>;
  /** Ends what the stage made. Everything that was made after it has ended by then. */
  end?(): void | Promise<void>;
}

export interface Built<Made, Needs = never> extends LifeCycle {
  readonly parts: Made;
  readonly problems?: readonly Problem[];
  /** For a kept stage: checks the parts of the next generation. Nothing changes before `Adoption.apply`. */
  adopt?(parts: Needs, failed: boolean): Adoption | Promise<Adoption>;
}

/** What a kept stage takes over from the next generation. */
interface Adoption {
  readonly problems?: readonly Problem[];
  /** Called if there are no problems: stores what must be stored before the swap. */
  begin?(): Promise<void>;
  /** Called at the swap. Must not fail. */
  apply?(): void;
}

/**
 * Marks a stage that is made once per process, because what it makes is the identity of the process or holds work in progress. All
 * others are made anew with each generation, that is with each reload, and end after the last work of their generation.
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

/** The settings that the kept stages of a list read only once. */
export const fixedBy = (stages: readonly object[]): string[] =>
  stages.flatMap((stage) => (isKept(stage) ? stage.fixed : []));

/**
 * @param parts what earlier stages have made
 * @param failed whether the report has an error already: then the stage must have no lasting side effects
 */
export type Stage<Needs extends keyof Parts, Makes extends keyof Parts> = (
  parts: Pick<Parts, Needs>,
  failed: boolean,
) => Built<Pick<Parts, Makes>, Pick<Parts, Needs>> | Promise<Built<Pick<Parts, Makes>, Pick<Parts, Needs>>>;

type AnyStage = (parts: never, failed: boolean) => Built<object> | Promise<Built<object>>;
type MadeBy<S extends AnyStage> = Awaited<ReturnType<S>>["parts"];

/** Checks the order of the list: a stage gets only what the stages before it make. */
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
  /** The problems that were known before, and those that the stages found. */
  readonly issues: readonly Issue[];
  begin(): Promise<void>;
  /** Swaps generations: the kept stages take over what they have prepared. */
  adopt(): void;
  end(): Promise<void>;
  /** How to end the stages that were made for this assembly. */
  readonly ends: readonly End[];
  /** The stages that a later assembly reuses. */
  readonly kept: Kept;
}

/** How to end one stage. */
interface End {
  /** Index of the stage in the list. */
  readonly place: number;
  readonly kept: boolean;
  end(): void | Promise<void>;
}

/** Kept stages by their index in the list. */
type Kept = ReadonlyMap<number, Built<object>>;

/** The problems known before the first stage, and a function that places a problem in the file. */
interface Report {
  readonly issues: readonly Issue[];
  issueAt(path: Path, message: string, severity?: Issue["severity"]): Issue;
}

const issuePlace = ({ file, path }: Issue): string => `${file} ${path}`;

interface Before<Given> {
  /** The kept stages of the first assembly. */
  readonly kept?: Kept | undefined;
  /** Replacements for parts of this generation, which outlive it, for kept stages. */
  readonly lasting?: Partial<Given>;
}

/**
 * Runs the stages one after the other; kept ones that exist already adopt the new parts. They start in the same order, idle in
 * parallel, and end in reverse order.
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
    // One message per mistake: problems at a place that an earlier stage has reported are left out.
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

/** Ends stages one after the other, the last of the list first, even if they are of several generations. */
export async function endAll(ends: readonly End[]): Promise<void> {
  for (const { end } of [...ends].sort((left, right) => right.place - left.place)) await end();
}
