/** Issues about plugins, for the report at boot. */
import { basename, dirname, parse } from "node:path";
import type { Issue } from "../manifest/manifest.ts";
import { lineOf } from "../manifest/read.ts";
import type { PluginKind } from "../plugin/plugin.ts";
import { PLUGIN_KINDS } from "./kinds.ts";
import { type PluginProblem, shortPath } from "./problem.ts";
import type { Registry, RegistryEntry } from "./registry.ts";

/** Names by kind, including those of files that failed to load: their failure is reported, so their name need not be unknown too. */
export function knownPlugins(
  registry: Registry,
  problems: readonly PluginProblem[],
): Record<PluginKind, readonly string[]> {
  const rows = PLUGIN_KINDS.map(({ kind, folder }) => {
    const failed = problems
      .filter(({ file }) => basename(dirname(file)) === folder)
      .map(({ file }) => parse(file).name);
    return [kind, [...registry.names(kind), ...failed]];
  });
  return Object.fromEntries(rows);
}

/** The warning that a plugin of the user replaces a built-in one. */
export const replacementIssue = ({ kind, name, file }: RegistryEntry): Issue => ({
  severity: "warning",
  file: shortPath(file),
  line: 1,
  column: 1,
  path: name,
  message: `this ${kind} replaces the built-in one`,
});

/** The issue of a plugin. Import failures have its position as `line 4, column 1`; others name a field, which is looked for. */
export function pluginIssue({ file, phase, cause }: PluginProblem): Issue {
  const [, line = lineOf(file, cause), column = 1] = /\bline (\d+)(?:, column (\d+))?/.exec(cause) ?? [];
  const place = { line: Number(line), column: Number(column) };
  return { severity: "error", file: shortPath(file), ...place, path: phase, message: cause };
}
