/** Compiles a pinned definition: names become plugins, tools and agents, expressions become functions. */
import { messageOf, type Problem } from "../../lib/errors.ts";
import { compileCondition, ExpressionError, SCOPES } from "../../manifest/expression.ts";
import type {
  AgentStepManifest,
  Path,
  RetryManifest,
  StepList,
  StepManifest,
  WorkflowManifest,
} from "../../manifest/manifest.ts";
import {
  accept,
  compileCheck,
  compileText,
  compileValue,
  type EvaluateInScope,
  type LinkContext,
  type LinkedParts,
  type Outline,
  type PinnedDefinition,
  type Retry,
  type Step,
  type StepsOfWorkflow,
  type StepType,
  type ValueCheck,
  type Work,
  type WorkflowDefinition,
  type WorkStep,
} from "../definition/definition.ts";
import { hashDefinition, outlineSteps, reveal, stepType } from "../definition/pinned.ts";
import { compileAgent } from "../steps/agent.ts";
import { compilePlugin } from "../steps/plugin.ts";
import { compileTool } from "../steps/tool.ts";

/** The workflow whose steps are compiled. */
interface Within {
  readonly linking: LinkContext;
  readonly workflow: WorkflowManifest;
  /** Prefix of the paths of its steps: `""`, `sub/`. */
  readonly prefix: string;
  /** Ids of the workflow and of the workflows that call it, to detect cycles. */
  readonly open: readonly string[];
  /** Names that expressions may use; inside an `onError` they include `error`. */
  readonly names: readonly string[];
  /** Checks the data of suspensions when a step has no schema of its own; `resumeCheck` those of resumes. */
  readonly suspendCheck: ValueCheck | null;
  readonly resumeCheck: ValueCheck | null;
}

/** Compiles the steps of a manifest, with one function for each type of step. */
function compileWorkflowSteps(within: Within): StepsOfWorkflow {
  const at = ["workflows", within.open.at(-1)!];
  const { steps, onError } = within.workflow;
  return {
    steps: compileSteps(steps, [...at, "steps"], within),
    onError: compileOnError(onError, [...at, "onError"], within),
  };
}

const compileOnError = (steps: StepList | undefined, at: Path, within: Within): Step[] | null =>
  steps === undefined ? null : compileSteps(steps, at, { ...within, names: SCOPES.workflowError });

/** Compiles a step, or a list that may contain lists, to consecutive steps. */
function compileSteps(steps: StepManifest | StepList, at: Path, within: Within): Step[] {
  if (!Array.isArray(steps)) return compileStep(steps, at, within);
  return steps.flatMap((step, index) => compileSteps(step, [...at, index], within));
}

/** Returns no step when a part is missing: the definition cannot be used then. */
function compileStep(step: StepManifest, at: Path, within: Within): Step[] {
  const type = stepType(step);
  const compiled = COMPILERS[type](step, [...at, type], within, compileBase(step, type, at, within));
  return compiled === null ? [] : [compiled];
}

type Base = ReturnType<typeof compileBase>;

const NO_RETRY: Retry = Object.freeze({
  attempts: 0,
  delay: 0,
  backoff: "fixed",
  maxDelay: null,
  jitter: false,
  unless: null,
});
/** Steps that do not inherit the retry of the workflow: it is for the steps inside them. */
const CONTAINERS: readonly StepType[] = ["andWhen", "andAll", "andRace", "andWorkflow"];

function compileBase(step: StepManifest, type: StepType, at: Path, within: Within) {
  const { linking, workflow, prefix, suspendCheck, resumeCheck } = within;
  const check = (key: "inputSchema" | "outputSchema" | "suspendSchema" | "resumeSchema") =>
    compileCheck(linking, step[key], [...at, key]);
  const inherited = () =>
    CONTAINERS.includes(type) ? NO_RETRY : compileRetry(linking, workflow.retry, ["workflows", within.open.at(-1)!]);
  return {
    id: step.id,
    path: `${prefix}${step.id}`,
    type,
    inputCheck: check("inputSchema"),
    outputCheck: check("outputSchema"),
    suspendCheck: check("suspendSchema") ?? suspendCheck,
    resumeCheck: check("resumeSchema") ?? resumeCheck,
    retry: step.retry === undefined ? inherited() : compileRetry(linking, step.retry, at),
    timeout: step.timeout ?? null,
    onError: compileOnError(step.onError, [...at, "onError"], within),
  };
}

/** @param at path of the step or workflow that declares the retry */
function compileRetry(linking: LinkContext, retry: RetryManifest, at: Path): Retry {
  const { attempts, delay, backoff, maxDelay = null, jitter = false, unless } = retry;
  const condition =
    unless === undefined ? null : compileIf(linking, unless, [...at, "retry", "unless"], SCOPES.workflowError);
  return { attempts, delay, backoff, maxDelay, jitter, unless: condition };
}

type Compile = (step: StepManifest, at: Path, within: Within, base: Base) => Step | null;

const COMPILERS: Readonly<Record<StepType, Compile>> = {
  andThen(step, at, within, base) {
    const { set, suspend } = step.andThen!;
    const { linking, names } = within;
    if (suspend !== undefined) {
      const reason = compileText(linking, suspend.reason, [...at, "suspend", "reason"], names);
      const data = compileValue(linking, suspend.data ?? null, [...at, "suspend", "data"], names);
      return { ...base, kind: "suspend", reason, data };
    }
    if (set !== undefined) return { ...base, kind: "set", evaluate: compileValue(linking, set, [...at, "set"], names) };
    return workStep(base, false, compileWork(step.andThen!, at, within, false));
  },
  andTap: (step, at, within, base) => workStep(base, true, compileWork(step.andTap!, at, within, true)),
  andAgent: (step, at, within, base) => workStep(base, false, compileAgentWork(step.andAgent!, at, within)),
  bail(step, at, { linking, names }, base) {
    const { if: text, result } = step.bail!;
    const condition = compileIf(linking, text, [...at, "if"], names);
    return { ...base, kind: "bail", condition, result: compileValue(linking, result, [...at, "result"], names) };
  },
  andWhen(step, at, within, base) {
    const { if: text, then, else: other } = step.andWhen!;
    const condition = compileIf(within.linking, text, [...at, "if"], within.names);
    const otherwise = other === undefined ? null : compileSteps(other, [...at, "else"], within);
    return { ...base, kind: "when", condition, then: compileSteps(then, [...at, "then"], within), else: otherwise };
  },
  andAll: (step, at, within, base) => ({ ...base, kind: "all", branches: compileBranches(step.andAll!, at, within) }),
  andRace: (step, at, within, base) => ({
    ...base,
    kind: "race",
    branches: compileBranches(step.andRace!, at, within),
  }),
  andWorkflow(step, at, within, base) {
    const { linking, prefix, open, names } = within;
    const { workflow: id, input } = step.andWorkflow!;
    const workflow = Object.hasOwn(linking.workflows, id) ? linking.workflows[id] : undefined;
    if (workflow === undefined) linking.missing.add(`workflow ${JSON.stringify(id)}`);
    if (workflow === undefined || open.includes(id)) return null;
    const check = (key: "input" | "result" | "suspend" | "resume") =>
      compileCheck(linking, workflow[key], ["workflows", id, key]);
    const inner: Within = {
      linking,
      workflow,
      prefix: `${prefix}${step.id}/`,
      open: [...open, id],
      names: SCOPES.workflow,
      suspendCheck: check("suspend") ?? within.suspendCheck,
      resumeCheck: check("resume") ?? within.resumeCheck,
    };
    return {
      ...base,
      kind: "sub",
      workflowId: id,
      input: compileValue(linking, input, [...at, "input"], names),
      called: compileWorkflowSteps(inner),
      startCheck: check("input"),
      resultCheck: check("result"),
      timeout: base.timeout ?? workflow.timeout ?? null,
    };
  },
};

const compileBranches = (branches: StepList, at: Path, within: Within): Step[][] =>
  branches.map((branch, index) => compileSteps(branch, [...at, index], within));

const workStep = (base: Base, tap: boolean, work: Work | null): WorkStep | null =>
  work === null ? null : { ...base, kind: "work", tap, ...work };

/** The keys that andThen and andTap share: a step plugin or a tool. */
interface WorkManifest {
  readonly use?: string;
  readonly with?: Readonly<Record<string, unknown>>;
  readonly tool?: string;
  readonly input?: unknown;
}

const compileWork = (work: WorkManifest, at: Path, { linking, names }: Within, tap: boolean): Work | null =>
  compileOnce(linking, work, () =>
    work.use !== undefined
      ? compilePlugin(linking, { use: work.use, with: work.with, tap }, at)
      : compileTool(linking, { tool: work.tool!, input: work.input, tap }, at, names),
  );

const compileAgentWork = (work: AgentStepManifest, at: Path, { linking, names }: Within): Work | null =>
  compileOnce(linking, work, () => compileAgent(linking, work, at, names));

function compileOnce({ works }: LinkContext, manifest: object, make: () => Work | null): Work | null {
  let work = works.get(manifest);
  if (work === undefined) {
    work = make();
    works.set(manifest, work);
  }
  return work;
}

function compileIf(linking: LinkContext, text: string, at: Path, names: readonly string[]): EvaluateInScope {
  const evaluate = accept(linking, compileCondition(text, names), at);
  return (scope) => {
    const value = evaluate(scope);
    if (typeof value === "boolean") return value;
    const expression = text.replace(/^\s*\{\{|\}\}\s*$/g, "").trim();
    throw new ExpressionError(expression, `must give true or false, not ${describeType(value)}`);
  };
}

function describeType(value: unknown): string {
  if (value === null || value === undefined) return "null";
  if (Array.isArray(value)) return "a list";
  return typeof value === "string" ? "text" : typeof value === "number" ? "a number" : "an object";
}

const DEFAULT_RECOVERIES = 3;

type CompiledDefinition =
  | { definition: WorkflowDefinition }
  /** `missing`: names in the definition that do not exist here: `step plugin "x"`, `environment variable "TOKEN"`. */
  | { problems: Problem[]; missing: string[] };

export function compileDefinition(pinned: PinnedDefinition, parts: LinkedParts): CompiledDefinition {
  const { workflowId } = pinned;
  const at = ["workflows", workflowId];
  let outline: Outline;
  try {
    outline = outlineSteps(pinned);
  } catch (error) {
    return { problems: [{ path: at, message: messageOf(error) }], missing: [] };
  }
  const revealed = reveal(pinned, parts.env, parts.folder);
  const { workflows } = revealed.pinned;
  const linking: LinkContext = {
    parts,
    workflows,
    checks: new Map(),
    works: new Map(),
    problems: [],
    missing: new Set(revealed.missing),
  };
  const workflow = workflows[workflowId]!;
  const steps = compileWorkflowSteps({
    linking,
    workflow,
    prefix: "",
    open: [workflowId],
    names: SCOPES.workflow,
    // The checks of the outermost workflow are in the definition itself.
    suspendCheck: null,
    resumeCheck: null,
  });
  const definition: WorkflowDefinition = {
    workflowId,
    name: workflow.name,
    hash: hashDefinition(JSON.stringify(pinned)),
    outline,
    ...steps,
    inputCheck: compileCheck(linking, workflow.input, [...at, "input"]),
    resultCheck: compileCheck(linking, workflow.result, [...at, "result"]),
    suspendCheck: compileCheck(linking, workflow.suspend, [...at, "suspend"]),
    resumeCheck: compileCheck(linking, workflow.resume, [...at, "resume"]),
    timeout: workflow.timeout ?? null,
    recovery: workflow.recovery,
    // Definitions that earlier versions have stored lack this key.
    recoveries: workflow.recoveries ?? DEFAULT_RECOVERIES,
    meter: parts.meters?.of(workflowId),
    uses: parts.uses,
  };
  const { problems, missing } = linking;
  return problems.length > 0 || missing.size > 0 ? { problems, missing: [...missing] } : { definition };
}
