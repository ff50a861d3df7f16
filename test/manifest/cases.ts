/** Golden cases: what a manifest becomes, or what is said about it. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { KnownPlugins } from "../../core/manifest/check.ts";
import { type LoadedManifest, parseManifest } from "../../core/manifest/load.ts";
import { formatIssue, type Issue, sortIssues } from "../../core/manifest/manifest.ts";
import { checkReferences } from "../../core/manifest/references.ts";

/** The plugins that every case may name. */
export const PLUGINS: KnownPlugins = {
  tool: ["add", "refund"],
  step: ["add-tax", "slow", "audit"],
  route: ["hello"],
  auth: ["jwt", "static"],
  provider: ["scripted", "openai-compatible"],
  embedding: ["mine"],
  vectors: ["hnsw"],
  store: [],
  origin: ["tenants"],
  socket: ["ticker"],
};

interface Case {
  name: string;
  yaml: string;
  env: Record<string, string>;
  /** Lines of the report, and below them the manifest or a part of it. */
  issues: string;
  json: unknown;
  /** The manifest is the JSON and nothing else. */
  exact: boolean;
}

const RULER = /^(-{10,}|={10,})$/m;

/** A file: YAML (with `# env NAME=value` lines), a ruler, the report, then JSON. A ruler of `=` asks for all of it. */
export function readCases(folder: string): Case[] {
  const files = readdirSync(folder).filter((file) => file.endsWith(".case"));
  return files.sort().map((file) => {
    const text = readFileSync(join(folder, file), "utf8");
    const ruler = RULER.exec(text);
    if (ruler === null) throw new Error(`${file} has no ruler`);
    const yaml = text.slice(0, ruler.index);
    const expected = text.slice(ruler.index + ruler[0].length).trim();
    const start = expected.startsWith("{") ? 0 : expected.indexOf("\n{") + 1;
    const hasJson = expected.startsWith("{") || start > 0;
    const env = [...yaml.matchAll(/^# env (\w+)=(.*)$/gm)].map(([, name, value]) => [name, value] as const);
    return {
      name: file.replace(/\.case$/, "").replaceAll("-", " "),
      yaml,
      env: Object.fromEntries(env) as Record<string, string>,
      issues: (hasJson ? expected.slice(0, start) : expected).trim(),
      json: hasJson ? JSON.parse(expected.slice(start)) : undefined,
      exact: ruler[0].startsWith("="),
    };
  });
}

interface Outcome {
  loaded: LoadedManifest;
  report: string;
}

export function runCase({ yaml, env }: Pick<Case, "yaml" | "env">, folder: string): Outcome {
  const loaded = parseManifest(yaml, { file: join(folder, "service.yaml"), env });
  const issues = sortIssues([...loaded.issues, ...checkReferences(loaded, PLUGINS)]);
  return { loaded, report: issues.map((issue) => lineOf(issue, folder)).join("\n") };
}

function lineOf(issue: Issue, folder: string): string {
  const line = formatIssue(issue).replace(join(folder, "/"), "");
  return issue.severity === "warning" ? `warning ${line}` : line;
}

/** `value` with only those keys that `shape` has, at every depth: what is left must be equal to it. */
export function pick(value: unknown, shape: unknown): unknown {
  if (Array.isArray(value) && Array.isArray(shape)) return value.map((item, index) => pick(item, shape[index]));
  if (typeof value !== "object" || value === null || typeof shape !== "object" || shape === null) return value;
  const own = value as Record<string, unknown>;
  const keys = Object.keys(shape).filter((key) => Object.hasOwn(own, key));
  return Object.fromEntries(keys.map((key) => [key, pick(own[key], (shape as Record<string, unknown>)[key])]));
}
