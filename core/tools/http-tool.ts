/** A tool without code: one HTTP request that the manifest describes. */
import type { Problem } from "../lib/problem.ts";
import { compileTemplate, SCOPES } from "../manifest/expression.ts";
import type { HttpToolManifest } from "../manifest/manifest.ts";
import type { HttpClient } from "./http-client.ts";
import { compileRequest } from "./http-request.ts";
import type { Tool } from "./tool.ts";

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
