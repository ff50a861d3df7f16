/** Compiles `http:` of a tool into a function from `input`, `context` and `user` to a request. */
import type { Path, Problem } from "../lib/errors.ts";
import { compileExpression, compileTemplate, type Evaluate, SCOPES, type Scope } from "../manifest/expression.ts";
import type { HttpToolManifest } from "../manifest/manifest.ts";
import { splitTemplate } from "../manifest/template-text.ts";
import type { Span } from "../observability/span.ts";
import { traceHeaders } from "../observability/traceparent.ts";
import type { HttpClient, HttpRequest } from "./http-client.ts";
import { encode, headerText, queryText, scalarText } from "./http-values.ts";
import type { Tool } from "./tool.ts";

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
export function compileHttpTool({ name, http, output, client }: HttpToolOptions): CompiledHttpTool {
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
