/** Compiles `tools:` of the manifest: finds the plugin or HTTP call of each tool, and checks its schema and settings. */
import { parseDuration } from "../lib/duration.ts";
import { messageOf, type Path, type Problem } from "../lib/errors.ts";
import { createSchemaCompiler, describeProblems, type JsonSchema, type SchemaCompiler } from "../lib/json-schema.ts";
import { compileExpression, compileTemplate, type Evaluate, SCOPES, type Scope } from "../manifest/expression.ts";
import type { HttpToolManifest, Manifest, ToolManifest } from "../manifest/manifest.ts";
import { splitTemplate } from "../manifest/template-text.ts";
import { NamedMeters, ToolMeter } from "../observability/metrics/meters.ts";
import type { Span } from "../observability/span.ts";
import { traceHeaders } from "../observability/traceparent.ts";
import type { Host, ToolPlugin } from "../plugin/plugin.ts";
import { configure } from "../registry/create.ts";
import type { Registry } from "../registry/registry.ts";
import { createHttpClient, type HttpClient, type HttpRequest } from "./http-client.ts";
import { encode, headerText, queryText, scalarText } from "./http-values.ts";
import { type ApprovalInbox, type ApprovalRule, compileApproval, type Tool } from "./tool.ts";

/* Compiles `http:` of a tool into a function from `input`, `context` and `user` to a request. */

// The URL of an HTTP tool: text with expressions, each value encoded for its place, none in the host.

type CompiledUrl = { build: (scope: Scope) => URL } | { problem: string };

interface Placeholder {
  source: string;
  evaluate: Evaluate;
  /** Where the value goes: before the `?` it is a part of a path segment. */
  place: "path" | "query";
}

/** Stands for the value of an expression when the URL is checked. */
const SAMPLE = "x";
/** `.` and `..`, encoded or not: they would lead to another path than the one in the manifest. */
const DOT_SEGMENT = /^(?:\.|%2e){1,2}$/i;

function compileUrl(text: string): CompiledUrl {
  const split = splitTemplate(text);
  if ("problem" in split) return { problem: split.problem };
  const parts: (string | Placeholder)[] = [];
  let before = "";
  for (const piece of split.pieces) {
    if (typeof piece === "string") {
      parts.push(piece);
      before += piece;
      continue;
    }
    const source = `{{ ${piece.source.trim()} }}`;
    if (before.includes("#")) return { problem: `${source} comes after #, which is never sent` };
    if (!/^https?:\/\/[^/?]+[/?]/i.test(before))
      return { problem: `${source}: scheme, host and port must not come from an expression` };
    const compiled = compileExpression(piece.source, SCOPES.httpTool);
    if ("problem" in compiled) return { problem: compiled.problem };
    parts.push({ source, evaluate: compiled.evaluate, place: before.includes("?") ? "query" : "path" });
    before += SAMPLE;
  }
  const problem = addressProblem(before);
  return problem === null ? { build: (scope) => build(parts, scope) } : { problem };
}

function addressProblem(address: string): string | null {
  if (!URL.canParse(address)) return "is not an address: write https://HOST/PATH";
  const { protocol, username, password } = new URL(address);
  if (protocol !== "http:" && protocol !== "https:") return `must begin with http:// or https://, not ${protocol}`;
  return username === "" && password === ""
    ? null
    : "must not contain a user name or password: send them in headers.authorization";
}

function build(parts: readonly (string | Placeholder)[], scope: Scope): URL {
  let address = "";
  /** The last placeholder in the path segment at the end of `address`. */
  let lastPlaceholder: Placeholder | null = null;
  for (const part of parts) {
    if (typeof part === "string") {
      const end = part.search(/[/?#]/);
      if (lastPlaceholder !== null && end !== -1) {
        refuseMisleading(address + part.slice(0, end), lastPlaceholder);
        lastPlaceholder = null;
      }
      address += part;
      continue;
    }
    const value = part.evaluate(scope);
    address += encode(scalarText(value, () => `url: ${part.source}`));
    if (part.place === "path") lastPlaceholder = part;
  }
  if (lastPlaceholder !== null) refuseMisleading(address, lastPlaceholder);
  return new URL(address);
}

/** Refuses an empty segment or a dot segment, which would reach another resource than the manifest means. */
function refuseMisleading(address: string, { source }: Placeholder): void {
  const segment = address.slice(address.lastIndexOf("/") + 1);
  if (segment === "" || DOT_SEGMENT.test(segment))
    throw new Error(`url: ${source} must not be ${JSON.stringify(decodeURIComponent(segment))}`);
}

/** Paths of problems are relative to `http`. */
type CompiledRequest = { build: (scope: Scope, span: Span | null) => HttpRequest } | { problems: Problem[] };

const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
/** Headers that control the connection and the framing of messages; the client sets them itself. */
const FRAMING_HEADERS = [
  "connection",
  "content-length",
  "expect",
  "keep-alive",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
];
const METHODS_WITHOUT_BODY = ["GET", "HEAD"];
const JSON_TYPE = /^application\/(?:[\w.!#$&^-]+\+)?json\s*(?:;|$)/i;

const DEFAULT_HEADERS = { accept: "application/json, text/*;q=0.8, */*;q=0.5", "user-agent": "penstock" };

function compileRequest(http: HttpToolManifest): CompiledRequest {
  const problems: Problem[] = [];
  const report = (path: Path, message: string) => void problems.push({ path, message });
  const compile = (value: unknown, ...at: Path): Evaluate => {
    const compiled = compileTemplate(value, SCOPES.httpTool);
    if (!("problem" in compiled)) return compiled.evaluate;
    report([...at, ...compiled.path], compiled.problem);
    return () => null;
  };

  const url = compileUrl(http.url);
  if ("problem" in url) report(["url"], url.problem);
  const headers = Object.entries(http.headers).map(([name, value]) => {
    const problem = headerProblem(name, value);
    if (problem !== null) report(["headers", name], problem);
    return [name.toLowerCase(), compile(value, "headers", name)] as const;
  });
  const ownTrace = headers.some(([name]) => name === "traceparent");
  const query = compile(http.query, "query");
  const body = compile(http.body, "body");
  const hasBody = http.body !== null;
  if (hasBody && METHODS_WITHOUT_BODY.includes(http.method))
    report(["body"], `a ${http.method} has no body: use query, or another method`);
  if ("problem" in url || problems.length > 0) return { problems };

  return {
    build(scope, span) {
      const content = hasBody ? body(scope) : null;
      const trace = span === null || ownTrace ? undefined : traceHeaders(span);
      const sent: Record<string, string> = { ...DEFAULT_HEADERS, ...trace };
      if (content !== null) sent["content-type"] = "application/json";
      for (const [name, evaluate] of headers) {
        const value = evaluate(scope);
        if (value !== null) sent[name] = headerText(value, name);
      }
      const text = content === null ? undefined : JSON.stringify(content);
      return { method: http.method, url: withQuery(url.build(scope), query(scope)), headers: sent, body: text };
    },
  };
}

function withQuery(url: URL, values: unknown): URL {
  const query = queryText(values as Record<string, unknown>);
  if (query !== "") url.search = url.search === "" ? query : `${url.search}&${query}`;
  return url;
}

function headerProblem(name: string, value: unknown): string | null {
  if (!HEADER_NAME.test(name)) return "is not a header name";
  const lower = name.toLowerCase();
  if (FRAMING_HEADERS.includes(lower)) return "is set by the client itself";
  if (lower === "content-type" && !JSON_TYPE.test(String(value))) return "must be a JSON type: bodies are sent as JSON";
  return null;
}

// A tool without code: one HTTP request that the manifest describes.

interface HttpToolOptions {
  /** The tool's key in the manifest. */
  name: string;
  http: HttpToolManifest;
  /** A template over the response; undefined when the result is the body. */
  output: unknown;
  client: HttpClient;
}

type CompiledHttpTool = { run: Tool["run"] } | { problems: Problem[] };

/** Paths of problems are relative to the tool: `["http", "url"]`. */
function compileHttpTool({ name, http, output, client }: HttpToolOptions): CompiledHttpTool {
  const request = compileRequest(http);
  const problems: Problem[] =
    "problems" in request ? request.problems.map(({ path, message }) => ({ path: ["http", ...path], message })) : [];
  const result = output === undefined ? null : compileTemplate(output, SCOPES.httpToolOutput);
  if (result !== null && "problem" in result)
    problems.push({ path: ["output", ...result.path], message: result.problem });
  if ("problems" in request || (result !== null && "problem" in result)) return { problems };

  const { timeout, retries } = http;
  return {
    async run(input, call) {
      const { context, user, signal, span } = call;
      const built = request.build({ input, context, user }, span);
      const answer = await client.send(built, { name, timeout, retries, signal });
      return result === null ? answer.body : result.evaluate({ input, context, user, ...answer });
    },
  };
}

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
