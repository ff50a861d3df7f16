/** What the parts of a definition are compiled with, and where they say what is wrong. */
import type { Agent } from "../../agents/agent.ts";
import { messageOf } from "../../lib/errors.ts";
import { describeProblems, type SchemaCompiler } from "../../lib/json-schema.ts";
import type { Path, Problem } from "../../lib/problem.ts";
import type { Environment } from "../../manifest/environment.ts";
import { type CompileResult, compileTemplate, SCOPES } from "../../manifest/expression.ts";
import { valueAsText } from "../../manifest/expression-values.ts";
import type { WorkflowManifest } from "../../manifest/manifest.ts";
import type { NamedMeters, WorkflowMeter } from "../../observability/metrics/named.ts";
import type { Registry } from "../../registry/registry.ts";
import type { Tool } from "../../tools/tool.ts";
import type { EvaluateInScope, StepScope, ValueCheck, WorkStep } from "./definition.ts";

/** What a definition is linked with. */
export interface Parts {
  readonly tools: ReadonlyMap<string, Tool>;
  readonly agents: ReadonlyMap<string, Agent>;
  readonly registry: Registry;
  readonly schemas: SchemaCompiler;
  /** For the settings of plugins: it must fill in defaults. */
  readonly configs: SchemaCompiler;
  readonly env: Environment;
  /** The folder of the manifest: paths of files in it start there. */
  readonly folder: string;
  /** By the id of the workflow. */
  readonly meters?: NamedMeters<WorkflowMeter>;
}

/** One definition while it is compiled. */
export interface Linking {
  readonly parts: Parts;
  readonly workflows: Readonly<Record<string, WorkflowManifest>>;
  /** Both grow: a workflow that is called twice has its schemas and the work of its steps once. */
  readonly checks: Map<object, ValueCheck | null>;
  readonly runs: Map<object, WorkStep["run"] | null>;
  /** Grows. */
  readonly problems: Problem[];
  /** Grows: `step plugin "x"`. */
  readonly missing: Set<string>;
}

/** Null for a schema that is not declared. */
export function compileCheck(linking: Linking, schema: object | undefined, at: Path): ValueCheck | null {
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

/** A value with `{{ expressions }}` in it. */
export const compileValue = (linking: Linking, value: unknown, at: Path): EvaluateInScope =>
  accept(linking, compileTemplate(value, SCOPES.workflow), at);

/** The same for a text: what is none becomes one. */
export function compileText(linking: Linking, text: string, at: Path): (scope: StepScope) => string {
  const evaluate = compileValue(linking, text, at);
  return (scope) => valueAsText(evaluate(scope));
}

export function accept(linking: Linking, compiled: CompileResult, at: Path): EvaluateInScope {
  if ("problem" in compiled) {
    linking.problems.push({ path: [...at, ...compiled.path], message: compiled.problem });
    return () => null;
  }
  // Scopes are values by name, whatever their type.
  return compiled.evaluate as unknown as EvaluateInScope;
}
