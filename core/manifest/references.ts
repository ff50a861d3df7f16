/** Checks what the manifest's schema cannot: references between its parts, expressions, and JSON Schemas inside it. */
import { isObject } from "../lib/is-object.ts";
import { createSchemaCompiler } from "../lib/json-schema.ts";
import { type CheckContext, type KnownPlugins, mapOf } from "./check.ts";
import { checkAgents } from "./check-agents.ts";
import { checkHeaders } from "./check-headers.ts";
import { checkMcp } from "./check-mcp.ts";
import { checkRoutes, checkServer, checkStore } from "./check-server.ts";
import { checkMemories, checkProviders, checkTools } from "./check-tools.ts";
import { checkWorkflows } from "./check-workflows.ts";
import type { Issue, Path } from "./issues.ts";
import type { LoadedManifest } from "./load.ts";
import { addNotices } from "./notices.ts";

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

// Checks `observability.otlp`, the destination of exported spans.

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
