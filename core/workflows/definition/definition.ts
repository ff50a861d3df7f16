/** A workflow in the form that the interpreter runs: a tree of steps, with names resolved and expressions and schemas compiled. */
import type { Logger } from "pino";
import type { Agent } from "../../agents/agent.ts";
import type { Caller, User } from "../../identity/principal.ts";
import { invalid, messageOf, type Path, type Problem, quoted } from "../../lib/errors.ts";
import { describeProblems, type SchemaCompiler } from "../../lib/json-schema.ts";
import type { Uses } from "../../lib/uses.ts";
import type { Environment } from "../../manifest/environment.ts";
import { type CompileResult, compileTemplate } from "../../manifest/expression.ts";
import { valueAsText } from "../../manifest/expression-values.ts";
import { suggest, type WorkflowManifest } from "../../manifest/manifest.ts";
import type { NamedMeters, WorkflowMeter } from "../../observability/metrics/meters.ts";
import type { SpanOrigin } from "../../observability/span.ts";
import type { Registry } from "../../registry/registry.ts";
import type { JoinedChanges } from "../../storage/joined.ts";
import type { Tool } from "../../tools/tool.ts";
import type { StepPath, ValueSource } from "../journal/entries.ts";

export interface PinnedDefinition {
  readonly workflowId: string;
  /**
   * Workflows by id. Durations are milliseconds. A text that refers to the environment is stored as `{"$env": "Bearer ${TOKEN}"}`. An
   * object of the manifest that has such a key itself is stored as `{"$as": {...}}`.
   */
  readonly workflows: Readonly<Record<string, WorkflowManifest>>;
}

/** The variables of expressions. Step plugins get copies of these values. */
export interface StepScope {
  /** The output of the previous step. */
  readonly data: unknown;
  /** The input of the workflow; inside a sub-workflow, the input of that. */
  readonly input: unknown;
  readonly state: Readonly<Record<string, unknown>>;
  readonly context: Readonly<Record<string, unknown>>;
  readonly user: User | null;
  /** Outputs by step id, of the finished steps of this workflow. */
  readonly steps: Readonly<Record<string, unknown>>;
  /** The data of the last resume, or null. */
  readonly resume: unknown;
  /** The error of a step, inside `onError` and in expressions that judge an error. */
  readonly error?: StepError | undefined;
}

export interface StepError {
  readonly message: string;
  /** The code that the step gave with its error, or null. */
  readonly code: string | null;
  readonly stepId: StepPath;
}

/** Throws for a missing field; the step then fails without a retry. */
export type EvaluateInScope = (scope: StepScope) => unknown;

/** Returns the problems of a value, joined by `; `, or null when it is valid. `root` names the value in them: `input`, `output`. */
export type ValueCheck = (value: unknown, root: string) => string | null;

export type StepType = "andThen" | "andWhen" | "andAll" | "andRace" | "andTap" | "andAgent" | "andWorkflow" | "bail";

export interface Retry {
  /** Tries after the first. */
  readonly attempts: number;
  /** Milliseconds before the second try; with `exponential` it doubles before each further one. */
  readonly delay: number;
  readonly backoff: "exponential" | "fixed";
  /** Longest pause in milliseconds; null when the manifest sets none. */
  readonly maxDelay: number | null;
  /** Whether pauses are shortened at random, by up to a half. */
  readonly jitter: boolean;
  /** Decides that an error is not worth another try; null when the manifest does not say. */
  readonly unless: EvaluateInScope | null;
}

/** One try of a step that does work, as the work sees it. */
export interface StepCall {
  readonly scope: StepScope;
  readonly workflowId: string;
  readonly executionId: string;
  /** Path of the step in the execution. */
  readonly path: StepPath;
  readonly conversationId: string | undefined;
  /** The user that the execution belongs to. */
  readonly userId: string | undefined;
  /** The kind of caller that started the execution. */
  readonly caller: Caller;
  /** `executionId:path`: the same for every try, after a restart too. */
  readonly idempotencyKey: string;
  /** When the execution started, in milliseconds since 1970. */
  readonly startedAt: number;
  /** Number of the try, from 1. */
  readonly attempt: number;
  /** Null unless the execution was resumed at this step. */
  readonly resume: { readonly data: unknown } | null;
  readonly requestId: string;
  readonly logger: Logger;
  /** Parent of the spans of the work; undefined when it is not traced. */
  readonly trace?: SpanOrigin | undefined;
  /** Created when first read. Aborts when the execution is to stop, at time limits, and when another branch has won. */
  readonly signal: AbortSignal;
  /** Key of this try: the same after a restart, and different for every other try. */
  readonly tryKey: string;
  /** The values that this try recorded before a crash, in order. */
  readonly kept: readonly unknown[];
  /** When the step started, in milliseconds since 1970. */
  readonly begunAt: number;
  /** Whether the try started before a crash, or before a suspension that stopped it. */
  readonly isRepeated: boolean;
  /** Whether it sent parts to the stream before a crash. */
  readonly hasStreamed: boolean;
  /** Whether the step was stopped and will continue later, because the process ends or the execution is to be suspended. */
  readonly isInterrupted: boolean;
  /** Records a value for `kept`. Resolves when it is on disk; with `later` at once, and the next commit writes it. */
  keep(value: unknown, later?: boolean): Promise<void>;
  /** Changes shared state when this try succeeds; a failed try changes nothing. */
  setState(change: Record<string, unknown>): void;
  /** Must be called before each side effect but the first, as in `RunCall` of agents. */
  confirm?(): Promise<void> | undefined;
  /** Sends a part of an agent's run to the stream; with `later` in the next commit. The agent waits for the promise, if any. */
  part(part: unknown, later?: boolean): Promise<void> | undefined;
  /** Resolves when everything that was sent and recorded is on disk. */
  flush(): Promise<void>;
  /**
   * For the only step of an execution: ends both with a last part and an output, in a commit that `store` makes with what it is given.
   * When it fails nothing has ended.
   *
   * @returns false when it has not ended either, since nothing was committed or there is no room for more
   */
  endWith(last: unknown, output: unknown, store: (joined: JoinedChanges) => Promise<void>): Promise<boolean>;
}

/** Returned by the work of a step that has to wait until it is resumed. */
export class Suspend {
  readonly reason: string;
  readonly data: unknown;
  /** Whether the data must match the schemas of the step; false when it waits for a person's approval. */
  readonly isChecked: boolean;
  constructor(reason: string, data: unknown, isChecked = true) {
    this.reason = reason;
    this.data = data;
    this.isChecked = isChecked;
  }
}

interface StepBase {
  readonly id: string;
  readonly path: StepPath;
  readonly type: StepType;
  /** This check and the next are null when the manifest has no schema. */
  readonly inputCheck: ValueCheck | null;
  readonly outputCheck: ValueCheck | null;
  readonly suspendCheck: ValueCheck | null;
  readonly resumeCheck: ValueCheck | null;
  readonly retry: Retry;
  /** Time limit of one try in milliseconds, or null. */
  readonly timeout: number | null;
  /** Steps that run when this one has finally failed, and provide its output; null when there are none. */
  readonly onError: readonly Step[] | null;
}

/** A step that computes its output without side effects. */
type SetStep = StepBase & { readonly kind: "set"; readonly evaluate: EvaluateInScope };
/** A step that ends its workflow with a result when its condition holds, and otherwise passes its input on. */
export type BailStep = StepBase & {
  readonly kind: "bail";
  readonly condition: EvaluateInScope;
  readonly result: EvaluateInScope;
};
/** A step that waits to be resumed. Its output is `{...data, ...resumeData}` when both are objects, else the resume data. */
export type SuspendStep = StepBase & {
  readonly kind: "suspend";
  readonly reason: EvaluateInScope;
  readonly data: EvaluateInScope;
};
/** A step plugin, tool or agent. `run` returns the output, a Suspend, or a promise of either. Clients see the messages of its errors. */
export type WorkStep = StepBase & {
  readonly kind: "work";
  /** Whether it is an andTap: neither its output nor its failure matters. */
  readonly tap: boolean;
  /** Whether it has no side effects: it may run again after a crash, and before its start is on disk. */
  readonly readOnly: boolean;
  /** Milliseconds within which the start of read-only work must be on disk. Default: as soon as the work turns out to take time. */
  readonly recordWithin?: number;
  run(call: StepCall): unknown;
};
/** The part of a step that does the work, without its name and limits. */
export type Work = Pick<WorkStep, "run" | "readOnly">;
export type WhenStep = StepBase & {
  readonly kind: "when";
  readonly condition: EvaluateInScope;
  readonly then: readonly Step[];
  readonly else: readonly Step[] | null;
};
export type AllStep = StepBase & { readonly kind: "all"; readonly branches: readonly (readonly Step[])[] };
export type RaceStep = StepBase & { readonly kind: "race"; readonly branches: readonly (readonly Step[])[] };
export type SubStep = StepBase & {
  readonly kind: "sub";
  readonly workflowId: string;
  readonly input: EvaluateInScope;
  /** The steps of the sub-workflow. Their paths begin with this step's and `/`. */
  readonly called: StepsOfWorkflow;
  /** The checks of the sub-workflow's schemas. */
  readonly startCheck: ValueCheck | null;
  readonly resultCheck: ValueCheck | null;
};

/** The steps of a workflow. `onError`: steps that run when one of the others has finally failed, and give the result; or null. */
export interface StepsOfWorkflow {
  readonly steps: readonly Step[];
  readonly onError: readonly Step[] | null;
}

export type Step = SetStep | BailStep | SuspendStep | WorkStep | WhenStep | AllStep | RaceStep | SubStep;

/** What events and states show of a step. It needs no plugins, so it is available for old definitions too. */
export interface StepOutline {
  readonly path: StepPath;
  readonly id: string;
  readonly name: string;
  readonly type: StepType;
  /** The index of the top-level step that it is, or is inside of. */
  readonly index: number;
  /** Position in the manifest: steps inside a step, and steps after it, have a higher one. */
  readonly order: number;
  /** The container steps around it, outermost first. */
  readonly parents: readonly StepPath[];
  /** Whose `onError` it belongs to, outermost first: paths of steps, and prefixes of workflows. Undefined when it belongs to none. */
  readonly handles?: readonly string[];
  /** The workflow that an andWorkflow step calls; absent for other steps. */
  readonly calls?: { readonly workflowId: string; readonly workflowName: string };
}

/** The lists of steps inside a step that belong to the same workflow. */
export function listsInside(step: Step): readonly (readonly Step[])[] {
  const inside = step.onError === null ? [] : [step.onError];
  if (step.kind === "when") return [step.then, ...(step.else === null ? [] : [step.else]), ...inside];
  return step.kind === "all" || step.kind === "race" ? [...step.branches, ...inside] : inside;
}

/** The lists of steps of a workflow. */
export const listsOf = ({ steps, onError }: StepsOfWorkflow): readonly (readonly Step[])[] =>
  onError === null ? [steps] : [steps, onError];

export type Outline = ReadonlyMap<StepPath, StepOutline>;

export interface WorkflowDefinition extends StepsOfWorkflow {
  readonly workflowId: string;
  readonly name: string;
  /** Hash of the pinned definition, which is its key in the store. */
  readonly hash: string;
  readonly outline: Outline;
  readonly inputCheck: ValueCheck | null;
  readonly resultCheck: ValueCheck | null;
  /** Checks the data of suspensions when a step has no schema of its own; `resumeCheck` those of resumes. */
  readonly suspendCheck: ValueCheck | null;
  readonly resumeCheck: ValueCheck | null;
  /** How many milliseconds an execution may run, not counting suspensions; or null. */
  readonly timeout: number | null;
  readonly recovery: "resume" | "fail";
  /** How often it is recovered after its process died, while it makes no progress. */
  readonly recoveries: number;
  /** Counts its executions and steps. */
  readonly meter?: WorkflowMeter | undefined;
  /** Counts the executions that use the parts with which this definition was compiled. */
  readonly uses?: Uses | undefined;
}

/** The source of the input of a sub-workflow, by the path of its step. */
export const subWorkflowInputSource = (path: StepPath): ValueSource => `${path}/`;

// What a definition is compiled with, and where the compiler collects its problems.

/** The parts that definitions may refer to. */
export interface LinkedParts {
  readonly tools: ReadonlyMap<string, Tool>;
  readonly agents: ReadonlyMap<string, Agent>;
  readonly registry: Registry;
  readonly schemas: SchemaCompiler;
  readonly env: Environment;
  /** The folder of the manifest, which relative paths of files start from. */
  readonly folder: string;
  /** Meters by workflow id. */
  readonly meters?: NamedMeters<WorkflowMeter>;
  /** Counts the executions that run with these parts. */
  readonly uses?: Uses;
}

/** The state of compiling one definition. */
export interface LinkContext {
  readonly parts: LinkedParts;
  readonly workflows: Readonly<Record<string, WorkflowManifest>>;
  /** Compiled schemas and step work, so that a workflow that is called twice is compiled once. */
  readonly checks: Map<object, ValueCheck | null>;
  readonly works: Map<object, Work | null>;
  readonly problems: Problem[];
  /** Names in the definition that do not exist here: `step plugin "x"`. */
  readonly missing: Set<string>;
}

/** Compiles a schema; null when none is declared. */
export function compileCheck(linking: LinkContext, schema: object | undefined, at: Path): ValueCheck | null {
  if (schema === undefined) return null;
  const known = linking.checks.get(schema);
  if (known !== undefined) return known;
  let check: ValueCheck | null = null;
  try {
    const fits = linking.parts.schemas.compile(schema);
    check = (value, root) => (fits(value) ? null : describeProblems(fits.errors, root) || `${root} is not valid`);
  } catch (error) {
    linking.problems.push({ path: at, message: `not a JSON Schema: ${messageOf(error)}` });
  }
  linking.checks.set(schema, check);
  return check;
}

/** Compiles a value that contains `{{ expressions }}`. */
export const compileValue = (
  linking: LinkContext,
  value: unknown,
  at: Path,
  names: readonly string[],
): EvaluateInScope => accept(linking, compileTemplate(value, names), at);

/** Compiles a text that contains `{{ expressions }}`: values that are not strings are converted. */
export function compileText(
  linking: LinkContext,
  text: string,
  at: Path,
  names: readonly string[],
): (scope: StepScope) => string {
  const evaluate = compileValue(linking, text, at, names);
  return (scope) => valueAsText(evaluate(scope));
}

export function accept(linking: LinkContext, compiled: CompileResult, at: Path): EvaluateInScope {
  if ("problem" in compiled) {
    linking.problems.push({ path: [...at, ...compiled.path], message: compiled.problem });
    return () => null;
  }
  // Expressions take any object as their scope.
  return compiled.evaluate as unknown as EvaluateInScope;
}

// Finds the step that a client names: by its path, or by an id that only one step has.

/**
 * @param field the field of the request, for the message
 * @throws ServiceError `invalid_input` when there is no such step, or more than one
 */
export function findStepByName(outline: Outline, name: string, field: string): StepOutline {
  const exact = outline.get(name);
  if (exact !== undefined) return exact;
  const steps = [...outline.values()];
  const found = steps.filter((step) => step.id === name);
  if (found.length === 1) return found[0] as StepOutline;
  if (found.length > 1) {
    throw invalid(
      `${field}: more than one step has the id ${JSON.stringify(name)}; name one of ${found.map(({ path }) => path).join(", ")}`,
    );
  }
  const paths = steps.map(({ path }) => path);
  const near = suggest(name, paths);
  const hint = near === undefined ? `its steps are ${paths.join(", ")}` : `did you mean ${JSON.stringify(near)}?`;
  throw invalid(`${field}: there is no step ${quoted(name)}; ${hint}`);
}
