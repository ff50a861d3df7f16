/** What a definition is compiled with, and where the compiler collects its problems. */
import type { Agent } from "../../agents/agent.ts";
import { messageOf } from "../../lib/errors.ts";
import { describeProblems, type SchemaCompiler } from "../../lib/json-schema.ts";
import type { Path, Problem } from "../../lib/problem.ts";
import type { Uses } from "../../lib/uses.ts";
import type { Environment } from "../../manifest/environment.ts";
import { type CompileResult, compileTemplate } from "../../manifest/expression.ts";
import { valueAsText } from "../../manifest/expression-values.ts";
import type { WorkflowManifest } from "../../manifest/manifest.ts";
import type { NamedMeters, WorkflowMeter } from "../../observability/metrics/named.ts";
import type { Registry } from "../../registry/registry.ts";
import type { Tool } from "../../tools/tool.ts";
import type { EvaluateInScope, StepScope, ValueCheck, Work } from "./definition.ts";

/** The parts that definitions may refer to. */
export interface LinkedParts {
  readonly tools: ReadonlyMap<string, Tool>;
  readonly agents: ReadonlyMap<string, Agent>;
  readonly registry: Registry;
  readonly schemas: SchemaCompiler;
  /** Compiles the schemas of plugin settings: their validators fill in defaults. */
  readonly configs: SchemaCompiler;
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
