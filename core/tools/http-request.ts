/** Compiles `http:` of a tool into a function from `input`, `context` and `user` to a request. */
import type { Path, Problem } from "../lib/problem.ts";
import { compileTemplate, type Evaluate, SCOPES, type Scope } from "../manifest/expression.ts";
import type { HttpToolManifest } from "../manifest/manifest.ts";
import type { Span } from "../observability/span.ts";
import { traceHeaders } from "../observability/traceparent.ts";
import type { HttpRequest } from "./http-client.ts";
import { compileUrl } from "./http-url.ts";
import { headerText, queryText } from "./http-values.ts";

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

export function compileRequest(http: HttpToolManifest): CompiledRequest {
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
