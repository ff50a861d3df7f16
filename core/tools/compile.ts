/** Compiles `tools:` of the manifest: finds the plugin or HTTP call of each tool, and checks its schema and settings. */
import { parseDuration } from "../lib/duration.ts";
import { messageOf, type Path, type Problem } from "../lib/errors.ts";
import { createSchemaCompiler, describeProblems, type JsonSchema, type SchemaCompiler } from "../lib/json-schema.ts";
import type { HttpToolManifest, Manifest, ToolManifest } from "../manifest/manifest.ts";
import { NamedMeters, ToolMeter } from "../observability/metrics/named.ts";
import type { Host, ToolPlugin } from "../plugin/plugin.ts";
import { configure } from "../registry/create.ts";
import type { Registry } from "../registry/registry.ts";
import { createHttpClient, type HttpClient } from "./http-client.ts";
import { compileHttpTool } from "./http-request.ts";
import { type ApprovalInbox, type ApprovalRule, compileApproval, type Tool } from "./tool.ts";

interface CompiledTools {
  /** Tools by name, in the order of the manifest. */
  tools: Map<string, Tool>;
  problems: Problem[];
}

const DEFAULT_TIMEOUT_MS = 60_000;
const ANY_INPUT: JsonSchema = { type: "object" };

const DEFAULT_EXPIRES_MS = 24 * 3_600_000;

interface CompileOptions {
  meters?: NamedMeters<ToolMeter>;
  /** Where people are asked; without it, a tool that needs approval never runs. */
  inbox?: ApprovalInbox;
}

/** Compiles the tools. A tool whose plugin does not exist is left out; `checkReferences` reports it. */
export function compileTools(
  manifest: Pick<Manifest, "tools">,
  registry: Registry,
  host: Host,
  { meters = new NamedMeters(() => new ToolMeter()), inbox }: CompileOptions = {},
): CompiledTools {
  const shared: Shared = {
    inputs: createSchemaCompiler(),
    client: createHttpClient(host),
    meters,
    inbox,
  };
  const tools = new Map<string, Tool>();
  const problems: Problem[] = [];
  for (const [name, settings] of Object.entries(manifest.tools)) {
    const report = (path: Path, message: string) => void problems.push({ path: ["tools", name, ...path], message });
    const plugin = settings.use === undefined ? undefined : registry.get("tool", settings.use);
    let tool: Tool | null = null;
    if (settings.http !== undefined) tool = httpTool(name, settings, settings.http, shared, report);
    else if (settings.client) tool = clientTool(name, settings, shared, report);
    else if (plugin !== undefined) tool = pluginTool(name, settings, plugin, shared, report);
    if (tool !== null) tools.set(name, tool);
  }
  return { tools, problems };
}

interface Shared {
  inputs: SchemaCompiler;
  client: HttpClient;
  meters: NamedMeters<ToolMeter>;
  inbox: ApprovalInbox | undefined;
}

type Report = (path: Path, message: string) => void;

function pluginTool(
  name: string,
  settings: ToolManifest,
  plugin: ToolPlugin,
  shared: Shared,
  report: Report,
): Tool | null {
  const { config, problem } = configure(plugin, settings.with);
  if (config === null) report(["with"], problem);
  const parameters = plugin.parameters ?? ANY_INPUT;
  const validate = compileInput(parameters, shared, (message) =>
    report(["use"], `parameters of the plugin: ${message}`),
  );
  const approval = approvalRule(name, settings, plugin, report);
  if (config === null || validate === null || approval === null) return null;
  return {
    name,
    description: settings.description ?? plugin.description ?? "",
    tags: settings.tags ?? plugin.tags ?? [],
    parameters,
    outputLimit: settings.toolOutput,
    approval,
    inbox: shared.inbox,
    readOnly: plugin.readOnly,
    timeout: settings.timeout ?? (plugin.timeout === undefined ? DEFAULT_TIMEOUT_MS : parseDuration(plugin.timeout)),
    config,
    meter: shared.meters.of(name),
    validate,
    run: (input, call) => plugin.execute(input, call),
  };
}

function httpTool(
  name: string,
  settings: ToolManifest,
  http: HttpToolManifest,
  shared: Shared,
  report: Report,
): Tool | null {
  const parameters = (settings.parameters ?? ANY_INPUT) as JsonSchema;
  const validate = compileInput(parameters, shared, (message) => report(["parameters"], message));
  const compiled = compileHttpTool({ name, http, output: settings.output, client: shared.client });
  if ("problems" in compiled) for (const { path, message } of compiled.problems) report(path, message);
  const approval = approvalRule(name, settings, {}, report);
  if (validate === null || approval === null || "problems" in compiled) return null;
  return {
    name,
    description: settings.description ?? "",
    tags: settings.tags ?? [],
    parameters,
    outputLimit: settings.toolOutput,
    approval,
    inbox: shared.inbox,
    timeout: settings.timeout ?? DEFAULT_TIMEOUT_MS,
    config: {},
    meter: shared.meters.of(name),
    validate,
    run: compiled.run,
  };
}

/** A tool that a client runs: `executeTool` refuses to run it here. */
function clientTool(name: string, settings: ToolManifest, shared: Shared, report: Report): Tool | null {
  const parameters = (settings.parameters ?? ANY_INPUT) as JsonSchema;
  const validate = compileInput(parameters, shared, (message) => report(["parameters"], message));
  if (validate === null) return null;
  return {
    name,
    description: settings.description ?? "",
    tags: settings.tags ?? [],
    parameters,
    client: true,
    outputLimit: settings.toolOutput,
    approval: false,
    timeout: DEFAULT_TIMEOUT_MS,
    config: {},
    meter: shared.meters.of(name),
    validate,
    run: () => null,
  };
}

/** The rule of the manifest takes precedence over that of the plugin. @returns null when it does not compile */
function approvalRule(
  name: string,
  settings: ToolManifest,
  plugin: Pick<ToolPlugin, "approval" | "expires" | "approvers">,
  report: Report,
): ApprovalRule | false | null {
  const { approval = plugin.approval ?? false, approvers = plugin.approvers ?? "owner" } = settings;
  const ofPlugin = plugin.expires === undefined ? DEFAULT_EXPIRES_MS : parseDuration(plugin.expires);
  const rule = compileApproval(name, { approval, expires: settings.expires ?? ofPlugin, approvers });
  if (typeof rule !== "string") return rule;
  // An expression in the manifest has been reported with the manifest.
  if (settings.approval === undefined) report(["use"], `approval of the plugin: ${rule}`);
  return null;
}

function compileInput(
  schema: JsonSchema,
  { inputs }: Shared,
  report: (message: string) => void,
): Tool["validate"] | null {
  try {
    const fits = inputs.compile(schema);
    return (input) => (fits(input) ? null : describeProblems(fits.errors, "input"));
  } catch (error) {
    report(`not a JSON Schema: ${messageOf(error)}`);
    return null;
  }
}
