/** A workflow as the interpreter runs it: a tree of steps whose names are resolved, expressions and schemas compiled. */
import type { Logger } from "pino";
import type { Caller } from "../../identity/caller.ts";
import type { User } from "../../identity/user.ts";
import type { WorkflowMeter } from "../../observability/metrics/named.ts";
import type { SpanOrigin } from "../../observability/span.ts";
import type { StepPath, ValueSource } from "../journal/entries.ts";

/** What expressions see, and step plugins as copies of their own. */
export interface StepScope {
  /** Output of the step before. */
  readonly data: unknown;
  /** Input of the workflow, of the sub-workflow inside one. */
  readonly input: unknown;
  readonly state: Readonly<Record<string, unknown>>;
  readonly context: Readonly<Record<string, unknown>>;
  readonly user: User | null;
  /** Outputs by id, of the steps of this workflow that are done. */
  readonly steps: Readonly<Record<string, unknown>>;
  /** What came with the last resume, or null. */
  readonly resume: unknown;
}

/** Throws for a field that is missing: a failure of the step that no other try can mend. */
export type EvaluateInScope = (scope: StepScope) => unknown;

/** Every problem of a value joined by `; `, or null when it fits. `root` is what the value is called: `input`, `output`. */
export type ValueCheck = (value: unknown, root: string) => string | null;

export type StepType = "andThen" | "andWhen" | "andAll" | "andRace" | "andTap" | "andAgent" | "andWorkflow";

export interface Retry {
  /** Tries after the first. */
  readonly attempts: number;
  /** Milliseconds before the second try; with `exponential` twice as long before each further one. */
  readonly delay: number;
  readonly backoff: "exponential" | "fixed";
}

/** One try of a step that does work, as the work sees it. */
export interface StepCall {
  readonly scope: StepScope;
  readonly executionId: string;
  readonly conversationId: string | undefined;
  /** Whose execution it is. */
  readonly userId: string | undefined;
  /** As what it was begun. */
  readonly caller: Caller;
  /** The same for every try, after a restart too: `executionId:path`. */
  readonly idempotencyKey: string;
  /** From 1. */
  readonly attempt: number;
  /** Null unless the execution was resumed at this step. */
  readonly resume: { readonly data: unknown } | null;
  readonly requestId: string;
  readonly logger: Logger;
  /** The span of the step; undefined when it is not traced. */
  readonly trace?: SpanOrigin | undefined;
  /** Made when first read. Aborts when the execution is to stop, at time limits, and when another branch has won. */
  readonly signal: AbortSignal;
  /** Changes shared state together with the end of this try; a try that fails changes nothing. */
  setState(change: Record<string, unknown>): void;
  /** Passes a part of an agent's run on to the stream; a promise when it is to wait. */
  part(part: unknown): Promise<void> | undefined;
}

/** What work gives to say that it waits to be resumed. */
export class Suspend {
  readonly reason: string;
  readonly data: unknown;
  constructor(reason: string, data: unknown) {
    this.reason = reason;
    this.data = data;
  }
}

interface StepBase {
  readonly id: string;
  readonly path: StepPath;
  readonly type: StepType;
  /** Each null where the manifest has no schema. */
  readonly inputCheck: ValueCheck | null;
  readonly outputCheck: ValueCheck | null;
  readonly suspendCheck: ValueCheck | null;
  readonly resumeCheck: ValueCheck | null;
  readonly retry: Retry;
  /** Milliseconds of one try, or null. */
  readonly timeout: number | null;
}

/** Computes its output, without effects: needs no record before it begins. */
type SetStep = StepBase & { readonly kind: "set"; readonly evaluate: EvaluateInScope };
/** Waits; then gives `{...data, ...resumeData}`, or the resume data. */
export type SuspendStep = StepBase & {
  readonly kind: "suspend";
  readonly reason: EvaluateInScope;
  readonly data: EvaluateInScope;
};
/** A step plugin, a tool, an agent. Gives its output, a Suspend, or a promise of either; throws what a person may read. */
export type WorkStep = StepBase & {
  readonly kind: "work";
  /** andTap: neither its output nor its failure matters. */
  readonly tap: boolean;
  run(call: StepCall): unknown;
};
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
  /** Their paths begin with this step's and `/`. */
  readonly steps: readonly Step[];
  /** The schemas of the sub-workflow. */
  readonly startCheck: ValueCheck | null;
  readonly resultCheck: ValueCheck | null;
};

export type Step = SetStep | SuspendStep | WorkStep | WhenStep | AllStep | RaceStep | SubStep;

/** What events and states say of a step; known of a pinned definition too whose plugins are gone. */
export interface StepOutline {
  readonly path: StepPath;
  readonly id: string;
  readonly name: string;
  readonly type: StepType;
  /** Of the step at the top that it is or that it is in. */
  readonly index: number;
  /** Place in the order of the text: smaller than that of what it holds, and of what comes after. */
  readonly order: number;
  /** Steps that hold it, outermost first. */
  readonly parents: readonly StepPath[];
  /** The workflow whose steps it holds; absent for every step but andWorkflow. */
  readonly calls?: { readonly workflowId: string; readonly workflowName: string };
}

export type Outline = ReadonlyMap<StepPath, StepOutline>;

export interface WorkflowDefinition {
  readonly workflowId: string;
  readonly name: string;
  /** Names the pinned definition in the store. */
  readonly hash: string;
  readonly outline: Outline;
  readonly steps: readonly Step[];
  readonly inputCheck: ValueCheck | null;
  readonly resultCheck: ValueCheck | null;
  /** Data that a suspended step hands out, and data that it is resumed with, where the step has no schema of its own. */
  readonly suspendCheck: ValueCheck | null;
  readonly resumeCheck: ValueCheck | null;
  /** Milliseconds that an execution may run, its suspensions not counted; or null. */
  readonly timeout: number | null;
  readonly recovery: "resume" | "fail";
  /** What its executions are counted by. */
  readonly meter?: WorkflowMeter | undefined;
}

/** Names of a step's own in its workflow's `steps`: the last part of its path. */
export const subWorkflowInputSource = (path: StepPath): ValueSource => `${path}/`;
