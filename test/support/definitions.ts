/** Definitions of workflows as boot compiles them, from a manifest, and the calls that an engine would make of their steps. */
import assert from "node:assert/strict";
import type { TestContext } from "node:test";
import { compileAgents } from "../../core/agents/compile.ts";
import { NOBODY } from "../../core/identity/principal.ts";
import { createSchemaCompiler } from "../../core/lib/json-schema.ts";
import { parseManifest } from "../../core/manifest/load.ts";
import { formatIssue } from "../../core/manifest/manifest.ts";
import { BUILT_IN_PLUGINS } from "../../core/models/builtin.ts";
import { createModels } from "../../core/models/models.ts";
import { createHost } from "../../core/registry/host.ts";
import { loadPlugins } from "../../core/registry/load.ts";
import { createMemoryStore } from "../../core/storage/memory-store.ts";
import { compileTools } from "../../core/tools/compile.ts";
import {
  type LinkedParts,
  listsInside,
  listsOf,
  type Step,
  type StepCall,
  type StepScope,
} from "../../core/workflows/definition/definition.ts";
import { type CompiledWorkflow, compileWorkflows } from "../../core/workflows/open.ts";
import { silent } from "./agents.ts";
import { createMemories } from "./memories.ts";
import { EXAMPLES, pluginFolder } from "./plugin-folder.ts";

export interface DefinitionOptions {
  env?: Record<string, string>;
  /** Plugins beside those that are shipped: contents by relative path. */
  plugins?: Record<string, string>;
}

/** Everything that boot makes of a manifest's workflows. `manifest` is YAML, or an object. */
export async function linked(test: TestContext, manifest: string | object, options: DefinitionOptions = {}) {
  const { env = {}, plugins = {} } = options;
  const text = typeof manifest === "string" ? manifest : JSON.stringify({ name: "Test", version: "1.0", ...manifest });
  const loaded = parseManifest(text, { file: "service.yaml", env });
  assert.deepEqual(
    loaded.issues.map((issue) => formatIssue(issue)),
    [],
  );
  const whole = loaded.manifest!;
  const host = createHost({ logger: silent, env });
  test.after(() => host.close());
  const { registry, problems } = await loadPlugins([EXAMPLES, pluginFolder(test, plugins)], BUILT_IN_PLUGINS);
  assert.deepEqual(problems, []);
  const { tools } = compileTools(whole, registry, host);
  const { models } = await createModels(whole, registry, host);
  const store = createMemoryStore();
  const memories = await createMemories(whole, store);
  const { agents } = compileAgents(whole, { tools, models, memories, store, logger: silent });
  const parts: LinkedParts = {
    tools,
    agents,
    registry,
    schemas: createSchemaCompiler(),
    env,
    folder: process.cwd(),
  };
  return { loaded, manifest: whole, parts, memories, ...compileWorkflows(whole, loaded, parts) };
}

/** The workflows of a manifest that has no problems. */
export async function workflowsOf(
  test: TestContext,
  manifest: string | object,
  options: DefinitionOptions = {},
): Promise<ReadonlyMap<string, CompiledWorkflow>> {
  const { workflows, problems } = await linked(test, manifest, options);
  assert.deepEqual(problems, []);
  return workflows;
}

/** Every step of a definition by its path. */
export function stepsByPath(steps: readonly Step[]): Map<string, Step> {
  const found = new Map<string, Step>();
  const visit = (list: readonly Step[]): void => {
    for (const step of list) {
      found.set(step.path, step);
      for (const inner of within(step)) visit(inner);
    }
  };
  visit(steps);
  return found;
}

const within = (step: Step): readonly (readonly Step[])[] =>
  step.kind === "sub" ? [...listsInside(step), ...listsOf(step.called)] : listsInside(step);

/** The one step of a workflow `w` whose step `s` is `step`, with what the manifest has beside it. */
export async function oneStep(test: TestContext, step: object, rest: object = {}, options: DefinitionOptions = {}) {
  const workflows = { w: { steps: [{ id: "s", ...step }] } };
  const compiled = await workflowsOf(test, { workflows, ...rest }, options);
  return compiled.get("w")!.definition.steps[0]!;
}

/** Does the work of a step. */
export function run(step: Step, call: StepCall): unknown {
  assert.equal(step.kind, "work");
  return step.kind === "work" ? step.run(call) : undefined;
}

export const scopeOf = (change: Partial<StepScope> = {}): StepScope => ({
  data: null,
  input: null,
  state: {},
  context: {},
  user: null,
  steps: {},
  resume: null,
  ...change,
});

interface ProbeCall extends StepCall {
  /** Parts that were passed on. */
  readonly parts: unknown[];
  readonly changes: Record<string, unknown>[];
  /** How often the signal was asked for. */
  signals: number;
  abort(reason: unknown): void;
}

/** A try of a step, as an engine would make it. */
export function callOf(scope: Partial<StepScope> = {}, change: Partial<StepCall> = {}): ProbeCall {
  const controller = new AbortController();
  return {
    scope: scopeOf(scope),
    caller: NOBODY,
    workflowId: "flow",
    executionId: "execution-1",
    path: "s",
    conversationId: undefined,
    userId: undefined,
    idempotencyKey: "execution-1:s",
    attempt: 1,
    tryKey: "execution-1:s:1",
    kept: [],
    hasStreamed: false,
    isRepeated: false,
    begunAt: 0,
    startedAt: 0,
    isInterrupted: false,
    keep: async () => {},
    flush: async () => {},
    endWith: async () => false,
    resume: null,
    requestId: "request-1",
    logger: silent,
    signals: 0,
    get signal() {
      this.signals++;
      return controller.signal;
    },
    abort: (reason) => controller.abort(reason),
    changes: [],
    setState(state) {
      this.changes.push(state);
    },
    parts: [],
    part(part) {
      this.parts.push(part);
      return undefined;
    },
    ...change,
  };
}
