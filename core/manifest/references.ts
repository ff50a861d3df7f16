/** Checks what the manifest's schema cannot: references between its parts, expressions, and JSON Schemas inside it. */
import { isObject } from "../lib/is-object.ts";
import { createSchemaCompiler } from "../lib/json-schema.ts";
import type { CheckContext, KnownPlugins } from "./check.ts";
import { checkAgents } from "./check-agents.ts";
import { checkMcp } from "./check-mcp.ts";
import { checkOtlp } from "./check-otlp.ts";
import { checkRoutes, checkServer, checkStore } from "./check-server.ts";
import { checkMemories, checkProviders, checkTools } from "./check-tools.ts";
import { checkWorkflows } from "./check-workflows.ts";
import type { Issue } from "./issues.ts";
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
