/** The final value at a path of the manifest, and its origin. */
import type { Substitution } from "./environment.ts";
import { formatPath, hint, type Path, parsePath } from "./manifest.ts";
import type { Positions } from "./read.ts";

/** The origin of a value: the text of the manifest, the environment or another file to which it refers, or a default. */
type ValueOrigin = "manifest" | "environment" | "default";

interface Explanation {
  path: string;
  keys: Path;
  /** The resolved value (milliseconds, bytes); `***` if it came from the environment. */
  value: unknown;
  /** `service.yaml:12:9`, `default of the schema`, `environment variable PORT (service.yaml:12:9)`. */
  source: string;
  origin: ValueOrigin;
}

export interface Explained {
  /** One explanation for every value at or below the path. */
  entries: Explanation[];
  /** Set when the path does not exist. */
  problem?: string;
}

interface ExplainSource {
  file: string;
  /** The resolved manifest, or the document when it has errors. */
  root: unknown;
  positions: Positions;
  substitutions: ReadonlyMap<string, Substitution>;
}

export function explainPath(source: ExplainSource, text: string): Explained {
  const path = parsePath(text);
  if (path === null) return { entries: [], problem: `"${text}" is not a path such as agents.assistant.tools[0]` };
  let node: unknown = source.root;
  for (const [index, part] of path.entries()) {
    const known = typeof node === "object" && node !== null ? Object.keys(node) : [];
    if (!known.includes(String(part))) {
      const where = index === 0 ? "the manifest" : formatPath(path.slice(0, index));
      return { entries: [], problem: `there is no "${part}" in ${where}${hint(String(part), known)}` };
    }
    if (Array.isArray(node)) path[index] = Number(part);
    node = (node as Record<string, unknown>)[String(part)];
  }
  const entries: Explanation[] = [];
  collect(source, path, node, entries);
  return { entries };
}

function collect(source: ExplainSource, path: Path, value: unknown, entries: Explanation[]): void {
  if (typeof value === "object" && value !== null && Object.keys(value).length > 0) {
    for (const [key, item] of Object.entries(value)) {
      collect(source, [...path, Array.isArray(value) ? Number(key) : key], item, entries);
    }
    return;
  }
  const substitution = source.substitutions.get(JSON.stringify(path));
  const outside = substitution !== undefined && substitution.sources.length > 0;
  entries.push({
    path: formatPath(path),
    keys: path,
    value: outside ? substitution.masked : value,
    source: describeSource(source, path, outside ? substitution.sources : []),
    origin: outside ? "environment" : source.positions.has(path) ? "manifest" : "default",
  });
}

function describeSource({ file, positions }: ExplainSource, path: Path, sources: readonly string[]): string {
  if (!positions.has(path)) return "default of the schema";
  const { line, column } = positions.find(path);
  const place = `${file}:${line}:${column}`;
  if (sources.length === 0) return place;
  const names = sources.map((name) =>
    name.startsWith("file:") ? name.replace(":", " ") : `environment variable ${name}`,
  );
  return `${names.join(", ")} (${place})`;
}

/** Formats one line per value: `server.port: 3141  # default of the schema`. */
export function formatExplained({ entries, problem }: Explained): string {
  if (problem !== undefined) return problem;
  const lines = entries.map(({ path, value }) => `${path}: ${JSON.stringify(value)}`);
  const width = Math.min(60, Math.max(...lines.map((line) => line.length)));
  return entries.map(({ source }, index) => `${lines[index]!.padEnd(width)}  # ${source}`).join("\n");
}
