/** Checks what the manifest's schema cannot: references between its parts, expressions, and JSON Schemas inside it. */

import { messageOf } from "../lib/errors.ts";
import { isObject } from "../lib/is-object.ts";
import { createSchemaCompiler, type SchemaCompiler } from "../lib/json-schema.ts";
import {
  type CheckContext,
  checkAgents,
  checkCompiled,
  checkHeaders,
  checkMcp,
  checkModelName,
  checkName,
  checkOwnTool,
  checkRoutes,
  checkServer,
  checkStore,
  checkTemplate,
  collectTexts,
  entriesOf,
  findCycles,
  type Json,
  type KnownPlugins,
  keysOf,
  listOf,
  mapOf,
  mapsOf,
} from "./check.ts";
import { type CompileResult, compileCondition, compileTemplate, isTemplate, SCOPES } from "./expression.ts";
import type { LoadedManifest } from "./load.ts";
import { hint, type Issue, type Path, suggest } from "./manifest.ts";
import { addNotices } from "./notices.ts";
import { keywordNotices } from "./unknown-keywords.ts";

/* Checks tools, providers and memories: their plugins exist, their schemas and expressions compile. */

function checkTools(check: CheckContext, schemas: SchemaCompiler): void {
  for (const [name, tool] of mapsOf(check.document.tools)) {
    const path = ["tools", name];
    checkName(check, [...path, "use"], "tool plugin", tool.use, check.plugins.tool);
    checkSchema(check, [...path, "parameters"], tool.parameters, schemas);
    if (isObject(tool.http)) checkHttp(check, [...path, "http"], tool.http);
    checkTemplate(check, [...path, "approval"], tool.approval, SCOPES.httpTool);
    checkTemplate(check, [...path, "output"], tool.output, SCOPES.httpToolOutput);
  }
}

function checkHttp(check: CheckContext, path: Path, http: Json): void {
  for (const key of ["url", "headers", "query", "body"]) {
    checkTemplate(check, [...path, key], http[key], SCOPES.httpTool);
  }
  const { url } = http;
  if (typeof url === "string" && url !== "" && !/^(https?:\/\/|\{\{)/.test(url)) {
    check.report([...path, "url"], "must begin with http://, https:// or an expression");
  }
  const [braced, name] = (typeof url === "string" && /(?<![{$])\{(\w+)\}(?!\})/.exec(url)) || [];
  if (braced !== undefined)
    check.report([...path, "url"], `${braced} is sent as it is: write {{ input.${name} }} for a value`, "warning");
}

/** Reports a JSON Schema that does not compile, and unknown keywords in it. */
function checkSchema(check: CheckContext, path: Path, schema: unknown, schemas: SchemaCompiler): void {
  if (!isObject(schema)) return;
  try {
    schemas.compile(schema);
  } catch (error) {
    check.report(path, `not a JSON Schema: ${messageOf(error)}`);
  }
  for (const { path: within, message } of keywordNotices(schema))
    check.report([...path, ...within], message, "warning");
}

/** Checks providers. A name that is not a plugin may be an npm package, which is located only when one of its models is needed. */
function checkProviders(check: CheckContext): void {
  const known = check.plugins.provider;
  for (const [name, provider] of mapsOf(check.document.providers)) {
    if (typeof provider.use !== "string" || known.includes(provider.use)) continue;
    const near = suggest(provider.use, known);
    if (near === undefined) continue;
    check.report(["providers", name, "use"], `unknown provider plugin "${provider.use}", did you mean "${near}"?`);
  }
}

const LOCAL_EMBEDDINGS = ["local/use", "local/hash"];

function checkMemories(check: CheckContext, schemas: SchemaCompiler): void {
  for (const [name, memory] of mapsOf(check.document.memory)) {
    const path = ["memory", name];
    checkSchema(check, [...path, "workingMemory", "schema"], mapOf(memory.workingMemory).schema, schemas);
    const { model } = mapOf(memory.summary);
    if (typeof model === "string") checkModelName(check, [...path, "summary", "model"], model);
    if (!isObject(memory.semantic)) continue;
    const { embedding, vectors } = memory.semantic;
    const at = [...path, "semantic", "embedding"];
    if (isObject(embedding))
      checkName(check, [...at, "use"], "embedding plugin", embedding.use, check.plugins.embedding);
    else if (typeof embedding === "string" && !check.plugins.embedding.includes(embedding)) {
      if (embedding.startsWith("local/")) checkName(check, at, "embedding", embedding, LOCAL_EMBEDDINGS);
      else if (!isTemplate(embedding)) checkModelName(check, at, embedding);
    }
    const index = isObject(vectors) ? vectors.use : vectors;
    checkName(check, [...path, "semantic", "vectors"], "vectors plugin", index, ["exact", ...check.plugins.vectors]);
  }
}

interface StepPlace {
  id: string;
  path: Path;
  step: Json;
  /** The branches of container steps that contain it, outermost first. */
  within: readonly Branch[];
  /** The names that its expressions may use. */
  names: readonly string[];
}

/** A branch of a step that contains other steps. */
interface Branch {
  container: Json;
  /** `then`, `else` or `onError`, or the index of the branch. */
  branch: string | number;
}

const WORKFLOW_SCHEMAS = ["input", "result", "suspend", "resume"];
const STEP_SCHEMAS = ["inputSchema", "outputSchema", "suspendSchema", "resumeSchema"];

/** Checks workflows: ids are unique, what steps refer to exists, expressions and schemas compile. */
function checkWorkflows(check: CheckContext, schemas: SchemaCompiler): void {
  const calls = new Map<string, { workflow: string; path: Path }[]>();
  for (const [id, workflow] of entriesOf(check.document.workflows)) {
    const path = ["workflows", id];
    if (id === "executions")
      check.report(path, "a workflow cannot have this id: /workflows/executions is a route of its own");
    if (!isObject(workflow)) continue;
    for (const key of WORKFLOW_SCHEMAS) checkSchema(check, [...path, key], workflow[key], schemas);
    const steps = [
      ...collectPlaces([...path, "steps"], workflow.steps, [], SCOPES.workflow),
      ...collectPlaces([...path, "onError"], workflow.onError, [], SCOPES.workflowError),
    ];
    checkIds(check, steps);
    calls.set(id, []);
    for (const [index, place] of steps.entries()) {
      for (const key of STEP_SCHEMAS) checkSchema(check, [...place.path, key], place.step[key], schemas);
      checkStep(check, place, steps, index, schemas);
      const call = place.step.andWorkflow;
      if (!isObject(call) || typeof call.workflow !== "string") continue;
      calls.get(id)!.push({ workflow: call.workflow, path: [...place.path, "andWorkflow", "workflow"] });
    }
  }
  for (const cycle of findCycles(new Map([...calls].map(([id, list]) => [id, list.map(({ workflow }) => workflow)])))) {
    const call = calls.get(cycle[0]!)!.find(({ workflow }) => workflow === cycle[1]);
    check.report(call!.path, `workflows call each other in a circle: ${cycle.join(" -> ")}`);
  }
}

/** Every step of a workflow in the order of the text, nested ones after the step that contains them. */
function collectPlaces(path: Path, node: unknown, within: readonly Branch[], names: readonly string[]): StepPlace[] {
  if (Array.isArray(node)) return node.flatMap((item, index) => collectPlaces([...path, index], item, within, names));
  if (!isObject(node)) return [];
  const places: StepPlace[] = [{ id: typeof node.id === "string" ? node.id : "", path, step: node, within, names }];
  const when = mapOf(node.andWhen);
  const add = (at: Path, branch: Branch["branch"], steps: unknown, inside = names) =>
    void places.push(...collectPlaces([...path, ...at], steps, [...within, { container: node, branch }], inside));
  for (const branch of ["then", "else"]) add(["andWhen", branch], branch, when[branch]);
  for (const key of ["andAll", "andRace"]) {
    for (const [index, steps] of listOf(node[key]).entries()) add([key, index], index, steps);
  }
  add(["onError"], "onError", node.onError, SCOPES.workflowError);
  return places;
}

function checkIds(check: CheckContext, steps: readonly StepPlace[]): void {
  for (const [index, { id, path }] of steps.entries()) {
    if (id !== "" && steps.findIndex((other) => other.id === id) < index) {
      check.report([...path, "id"], `"${id}" is the id of another step of this workflow`);
    }
  }
}

/** Checks the references and expressions of one step. */
function checkStep(
  check: CheckContext,
  place: StepPlace,
  steps: readonly StepPlace[],
  index: number,
  schemas: SchemaCompiler,
): void {
  const { path, step, names } = place;
  const expressions = (at: Path, compiled: CompileResult) => checkExpression(check, at, compiled, steps, index);
  const template = (at: Path, value: unknown) => {
    for (const found of collectTexts(value, at)) expressions(found.path, compileTemplate(found.text, names));
  };
  const condition = (at: Path, text: unknown, scope = names) => {
    if (typeof text === "string" && text !== "") expressions(at, compileCondition(text, scope));
  };
  for (const key of ["andThen", "andTap"]) {
    const work = step[key];
    if (!isObject(work)) continue;
    const at = [...path, key];
    checkName(check, [...at, "use"], "step plugin", work.use, check.plugins.step);
    if (typeof work.tool === "string") checkOwnTool(check, [...at, "tool"], work.tool, "a workflow");
    for (const part of ["set", "input", "suspend"]) template([...at, part], work[part]);
  }
  const { andAgent: agent, andWorkflow: sub } = step;
  condition([...path, "retry", "unless"], mapOf(step.retry).unless, SCOPES.workflowError);
  condition([...path, "andWhen", "if"], mapOf(step.andWhen).if);
  condition([...path, "bail", "if"], mapOf(step.bail).if);
  template([...path, "bail", "result"], mapOf(step.bail).result);
  if (isObject(step.andTap) && step.onError !== undefined)
    check.report([...path, "onError"], "would never run: the failure of an andTap does not matter");
  if (isObject(agent)) {
    const at = [...path, "andAgent"];
    checkName(check, [...at, "agent"], "agent", agent.agent, keysOf(check.document.agents));
    template([...at, "prompt"], agent.prompt);
    checkSchema(check, [...at, "schema"], agent.schema, schemas);
  }
  if (isObject(sub)) {
    const at = [...path, "andWorkflow"];
    checkName(check, [...at, "workflow"], "workflow", sub.workflow, keysOf(check.document.workflows));
    template([...at, "input"], sub.input);
  }
}

/** An expression must compile, and each `steps.X` in it must be a step that has run by then. */
function checkExpression(
  check: CheckContext,
  path: Path,
  compiled: CompileResult,
  steps: readonly StepPlace[],
  index: number,
): void {
  checkCompiled(check, path, compiled);
  if ("problem" in compiled) return;
  for (const id of new Set(compiled.steps)) {
    const found = steps.findIndex((step) => step.id === id);
    const others = [...new Set(steps.map((step) => step.id))].filter((other) => other !== "");
    if (found < 0) check.report(path, `there is no step "${id}" in this workflow${hint(id, others)}`);
    else if (found === index) check.report(path, `steps.${id} is this step itself: it has no output yet`);
    else if (found > index) check.report(path, `steps.${id} comes later: it has no output yet`);
    else {
      const problem = branchProblem(steps[found]!, steps[index]!);
      if (problem !== null) check.report(path, `steps.${id} ${problem}`);
    }
  }
}

/** Why the named step has no output when this step runs, or null. */
function branchProblem(named: StepPlace, place: StepPlace): string | null {
  for (const { container, branch } of place.within) {
    if (container === named.step && branch === "onError") return "has failed when this step runs: it has no output";
    if (container === named.step) return "contains this step: it has no output yet";
    const other = named.within.find((outer) => outer.container === container);
    // Steps that ran before the failure may have an output.
    if (other === undefined || other.branch === branch || branch === "onError") continue;
    return isObject(container.andWhen) ? "is on the other branch: only one of them runs" : "runs beside this step";
  }
  return null;
}

const MISSPELT = /^unknown key, did you mean/;

/**
 * The problems beyond those in `loaded.issues`. Checks an invalid manifest too, so that one report has all of them.
 *
 * @param plugins names of the plugins that were loaded, by kind
 */
export function checkReferences(loaded: LoadedManifest, plugins: KnownPlugins): Issue[] {
  const { document } = loaded;
  if (!isObject(document)) return [];
  const issues: Issue[] = [];
  const reported = new Set(loaded.issues.map(({ path }) => path));
  const check: CheckContext = {
    document,
    plugins,
    hasMisspeltSection: loaded.issues.some(({ path, message }) => MISSPELT.test(message) && !/[.[]/.test(path)),
    isWritten: loaded.isWritten,
    report: (path, message, severity, offset) => {
      const issue = loaded.issueAt(path, message, severity, offset);
      // Only one problem per place: the first one is kept.
      if (!reported.has(issue.path)) issues.push(issue);
    },
  };
  const schemas = createSchemaCompiler();
  checkServer(check);
  checkStore(check);
  checkOtlp(check);
  checkProviders(check);
  checkMemories(check, schemas);
  checkTools(check, schemas);
  checkAgents(check);
  checkWorkflows(check, schemas);
  checkRoutes(check);
  checkMcp(check);
  addNotices(check);
  return issues;
}

/** Checks `observability.otlp`, the destination of exported spans. */
function checkOtlp(check: CheckContext): void {
  const { otlp } = mapOf(check.document.observability);
  if (!isObject(otlp)) return;
  const path: Path = ["observability", "otlp"];
  // Messages show neither the address nor headers: both may contain keys.
  const problem = typeof otlp.endpoint === "string" && otlp.endpoint !== "" ? endpointProblem(otlp.endpoint) : null;
  if (problem !== null) check.report([...path, "endpoint"], problem);
  checkHeaders(check, [...path, "headers"], otlp.headers);
}

function endpointProblem(endpoint: string): string | null {
  if (!URL.canParse(endpoint)) return "must be a URL such as http://127.0.0.1:4318";
  const { username, password } = new URL(endpoint);
  return username + password === "" ? null : "must not contain a user name or password: write headers.Authorization";
}
