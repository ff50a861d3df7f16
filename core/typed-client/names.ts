/** The names of a manifest that become literal types of the client: agents, tools and workflows, with the schemas of input and output. */
import type { WorkflowDetail, WorkflowStep } from "../../generated/types.ts";
import type { JsonSchema } from "../lib/json-schema.ts";

export interface ClientNames {
  readonly agents: readonly string[];
  /** Tools that can be executed, with the schema of their input. */
  readonly tools: ReadonlyMap<string, JsonSchema>;
  /** Prefixes of the names of tools that only a running service knows: those of MCP servers. */
  readonly toolPrefixes: readonly string[];
  readonly workflows: ReadonlyMap<string, WorkflowSchemas>;
}

/** A schema is null when any value is valid. */
interface WorkflowSchemas {
  readonly input: JsonSchema | null;
  readonly result: JsonSchema | null;
  readonly resume: JsonSchema | null;
}

/** @param find returns another workflow of the manifest by id */
export function workflowSchemas(
  workflow: WorkflowDetail,
  find: (id: string) => WorkflowDetail | undefined,
): WorkflowSchemas {
  const { inputSchema, resultSchema } = workflow;
  return { input: inputSchema, result: resultSchema, resume: resumeSchema(workflow, find) };
}

/**
 * A resume may be for any step that waits, so its data may match the workflow's schema, a step's own, or one of a sub-workflow. If one of
 * them accepts anything, so does the resume.
 */
function resumeSchema(workflow: WorkflowDetail, find: (id: string) => WorkflowDetail | undefined): JsonSchema | null {
  const found = new Map<string, JsonSchema>();
  const seen = new Set<string>();
  const waiting = [workflow];
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    if (seen.has(next.id)) continue;
    seen.add(next.id);
    const steps = [...next.steps, ...(next.onError ?? [])].flatMap(withInner);
    const schemas = [next.resumeSchema, ...steps.map((step) => step.resumeSchema).filter((each) => each !== undefined)];
    for (const schema of schemas) {
      if (schema === null) return null;
      found.set(JSON.stringify(schema), schema);
    }
    for (const { workflow: id } of steps) {
      const inner = id === undefined ? undefined : find(id);
      if (inner !== undefined) waiting.push(inner);
    }
  }
  const [only, ...others] = found.values();
  // Schemas that refer to parts of themselves cannot be joined.
  if (others.length > 0 && [...found.keys()].some((text) => text.includes('"$ref"'))) return null;
  return others.length === 0 ? (only ?? null) : { anyOf: [...found.values()] };
}

const withInner = (step: WorkflowStep): WorkflowStep[] => [
  step,
  ...(step.steps ?? []).flatMap(withInner),
  ...(step.onError ?? []).flatMap(withInner),
];
