import type { Path } from "../lib/errors.ts";
import { withoutSecrets } from "../lib/secrets.ts";

/**
 * The resolved manifest, as the rest of the service sees it: defaults applied, durations in milliseconds and sizes in
 * bytes as numbers (the generated types have `number` for both), frozen. `name` of agents, workflows and steps defaults to their
 * id, and an agent's `memory` is false when it has none. A document that is not resolved has the type `unknown`.
 */
export type {
  AgentManifest,
  AgentMemoryOptionsManifest,
  AgentOptionsManifest,
  AgentStepManifest,
  AgentToolManifest,
  AuthManifest,
  AuthProviderManifest,
  CorsManifest,
  HistoryManifest,
  HttpToolManifest,
  LimitsManifest,
  LogsManifest,
  Manifest,
  McpClientManifest,
  McpManifest,
  McpServerManifest,
  MemoryManifest,
  ModelSettingsManifest,
  ObservabilityManifest,
  ProviderManifest,
  RetryManifest,
  RouteManifest,
  ServerManifest,
  StepList,
  StepManifest,
  ThenManifest,
  TokenExchangeManifest,
  ToolManifest,
  UpdatesManifest,
  WorkflowManifest,
} from "../../generated/types.ts";

// Issues: problems with their place in a file, how they are printed and sorted, paths as text, and suggestions for misspelt names.

export type { Path } from "../lib/errors.ts";

export interface Issue {
  severity: "error" | "warning";
  file: string;
  /** Line number, from 1. */
  line: number;
  /** Column number, from 1. */
  column: number;
  /** Path such as `agents.assistant.tools[0]`; an empty string for the whole file. */
  path: string;
  message: string;
}

/** Formats an issue: `service.yaml:42:7  agents.assistant.modle: unknown key, did you mean "model"?` */
export function formatIssue(issue: Issue): string {
  const place = `${issue.file}:${issue.line}:${issue.column}`;
  return `${place}  ${issue.path === "" ? "" : `${issue.path}: `}${issue.message}`;
}

export const hasErrors = (issues: readonly Issue[]): boolean => issues.some(({ severity }) => severity === "error");

/** A copy in the order of the file, without secrets that plugins repeat, and without duplicates: an issue that an alias repeats, or that two stages find, is one mistake. */
export function sortIssues(issues: readonly Issue[]): Issue[] {
  const shown = issues.map((issue) => ({ ...issue, message: withoutSecrets(issue.message) }));
  const sorted = shown.sort(
    (a, b) => compare(a.file, b.file) || a.line - b.line || a.column - b.column || compare(a.path, b.path),
  );
  const seen = new Set<string>();
  const misspelt = new Set(sorted.flatMap(meantPlace));
  return sorted.filter((issue) => {
    if (seen.has(identity(issue)) || (issue.message === "is required" && misspelt.has(`${issue.file} ${issue.path}`)))
      return false;
    seen.add(identity(issue));
    return true;
  });
}

/** The path of the key that a misspelt one should be: a message that this key is required would be redundant. */
function meantPlace({ file, path, message }: Issue): string[] {
  const [, meant] = /key(?: of the plugin)?, did you mean "([^"]+)"\?$/.exec(message) ?? [];
  return meant === undefined ? [] : [`${file} ${path.slice(0, path.lastIndexOf(".") + 1)}${meant}`];
}

/** Identifies issues at one place with the same message about keys of the same name. */
function identity({ file, line, column, path, message }: Issue): string {
  return JSON.stringify([file, line, column, path.slice(path.lastIndexOf(".") + 1), message]);
}

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

const PLAIN_KEY = /^[A-Za-z_$][A-Za-z0-9_$-]*$/;

/** `["agents", "a", "tools", 0]` -> `agents.a.tools[0]`; keys that are not plain names are quoted: `tools["x.y"]`. */
export function formatPath(path: Path): string {
  let text = "";
  for (const part of path) {
    if (typeof part === "number") text += `[${part}]`;
    else if (!PLAIN_KEY.test(part)) text += `[${JSON.stringify(part)}]`;
    else text += text === "" ? part : `.${part}`;
  }
  return text;
}

/** The reverse of `formatPath`. Accepts `agents.a.tools.0` too; null when it cannot be read. */
export function parsePath(text: string): (string | number)[] | null {
  const path: (string | number)[] = [];
  const token = /\.?([^.[\]"]+)|\[(\d+)\]|\.?\[?("(?:[^"\\]|\\.)*")\]?/y;
  while (token.lastIndex < text.length) {
    const match = token.exec(text);
    if (match === null) return null;
    if (match[1] !== undefined) path.push(match[1]);
    else if (match[2] !== undefined) path.push(Number(match[2]));
    else path.push(JSON.parse(match[3] as string) as string);
  }
  return path;
}

/** The known name that a misspelt one most likely means, or undefined. */
export function suggest(name: string, known: Iterable<string>): string | undefined {
  const wanted = name.toLowerCase();
  let best: string | undefined;
  // The shorter a name, the less likely that a similar one is meant.
  let least = Math.min(3, Math.floor(name.length / 3)) + 1;
  for (const candidate of known) {
    const distance = editDistance(wanted, candidate.toLowerCase());
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

/** `, did you mean "model"?` or `; known: a, b`, or nothing when there is no suggestion. */
export function hint(name: string, known: readonly string[]): string {
  const near = suggest(name, known);
  if (near !== undefined) return `, did you mean "${near}"?`;
  if (known.length === 0) return "";
  const rest = known.length > 20 ? ", ..." : "";
  return `; known: ${known.slice(0, 20).join(", ")}${rest}`;
}

/** Number of insertions, deletions, substitutions and swaps of neighbours. */
function editDistance(a: string, b: string): number {
  if (Math.abs(a.length - b.length) > 3) return 4;
  let before: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const cost = a[i - 1] === b[j - 1] ? 0 : 1;
      let value = Math.min(last[j]! + 1, row[j - 1]! + 1, last[j - 1]! + cost);
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) value = Math.min(value, before[j - 2]! + 1);
      row.push(value);
    }
    before = last;
    last = row;
  }
  return last[b.length]!;
}
