/** Replaces `${NAME}`, `${NAME:-default}` and `${file:PATH}` in strings, after parsing, so that no value can inject YAML. */
import { readFileSync } from "node:fs";
import { join, relative, resolve } from "node:path";
import { parseEnv } from "node:util";
import type { Path, Problem } from "../lib/errors.ts";
import { isSecret, isSecretName, MASK } from "../lib/secrets.ts";

export type Environment = Readonly<Record<string, string | undefined>>;

/** One string of the manifest that refers to the environment or to files. */
export interface Substitution {
  path: Path;
  /** The text as written in the manifest. */
  written: string;
  /** Names of the variables, and `file:PATH`, whose values were filled in. Empty when only defaults were used. */
  sources: readonly string[];
  /** Names of the variables to which it refers, set or not. */
  variables: readonly string[];
  /** The text with `***` for every value that was filled in. */
  masked: string;
  /** Whether the string is a single `${...}`: such a value may become a number or a boolean. */
  whole: boolean;
}

interface Substituted {
  value: unknown;
  /** Substitutions by the path as `JSON.stringify` writes it. */
  substitutions: ReadonlyMap<string, Substitution>;
  /** Values that were filled in: messages about the manifest show `***` in their place. */
  filledIn: readonly string[];
  /** Those among them that are secret, and what the manifest itself has under the name of a secret. */
  secrets: readonly string[];
  problems: Problem[];
}

/** What to do about a missing variable that the `.env` beside the manifest has: it is read only when it is asked for. */
function hintOf(name: string, folder: string): string {
  const file = join(folder, ".env");
  try {
    if (parseEnv(readFileSync(file, "utf8"))[name] === undefined) return "";
  } catch {
    return "";
  }
  const short = relative("", file);
  return `: ${short} has it, --env-file ${short} reads it`;
}

/** A reference, or `$${`, which escapes a plain `${`. */
const REFERENCE = /\$\$\{|\$\{([^}]*)(\}?)/g;
const VARIABLE = /^([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?$/s;

/** A copy of `value` with every reference replaced. References inside the values that were filled in are not replaced. */
export function substitute(value: unknown, env: Environment, folder: string): Substituted {
  const substitutions = new Map<string, Substitution>();
  const filledIn = new Set<string>();
  const secrets = new Set<string>();
  const problems: Problem[] = [];

  const lookUp = (match: RegExpMatchArray, path: Path): { text: string; source: string | null } => {
    const reference = match[1] as string;
    if (reference.startsWith("file:")) {
      const file = reference.slice("file:".length);
      try {
        return { text: readFileSync(resolve(folder, file), "utf8").replace(/\r?\n$/, ""), source: reference };
      } catch (error) {
        const code = (error as NodeJS.ErrnoException).code ?? "unreadable";
        problems.push({ path, message: `\${${reference}}: the file cannot be read (${code})` });
        return { text: "", source: null };
      }
    }
    const [, name, fallback] = VARIABLE.exec(reference) ?? [];
    if (name === undefined || match[2] === "") {
      const message = `\${${reference}${match[2]}: write \${NAME}, \${NAME:-default} or \${file:PATH}; $\${ stands for a plain \${`;
      problems.push({ path, message });
      return { text: "", source: null };
    }
    const found = env[name];
    // As in a shell, `:-` also applies to a variable that is set but empty.
    if (found !== undefined && (found !== "" || fallback === undefined)) return { text: found, source: name };
    if (fallback !== undefined) return { text: fallback, source: null };
    problems.push({ path, message: `the environment variable ${name} is not set${hintOf(name, folder)}` });
    return { text: "", source: null };
  };

  const replace = (text: string, path: Path): string => {
    if (!text.includes("${")) return text;
    const sources: string[] = [];
    const variables: string[] = [];
    let masked = "";
    let result = "";
    let last = 0;
    for (const match of text.matchAll(REFERENCE)) {
      const between = text.slice(last, match.index);
      last = match.index + match[0].length;
      const { text: found, source } = match[0] === "$${" ? { text: "${", source: null } : lookUp(match, path);
      const [, variable] = VARIABLE.exec(match[1] ?? "") ?? [];
      if (variable !== undefined) variables.push(variable);
      result += between + found;
      masked += between + (source === null ? found : MASK);
      if (source === null) continue;
      sources.push(source);
      if (found === "") continue;
      filledIn.add(found);
      if (isSecret(found, isSecretName(source) || hasSecretName(path))) secrets.add(found);
    }
    result += text.slice(last);
    masked += text.slice(last);
    const whole = /^\$\{[^}]*\}$/.test(text);
    substitutions.set(JSON.stringify(path), { path, written: text, sources, variables, masked, whole });
    return result;
  };

  const walk = (node: unknown, path: Path): unknown => {
    if (typeof node === "string") {
      const text = replace(node, path);
      // In `Bearer KEY` only the key is the secret.
      const written = text.replace(/^\w+ (?=\S+$)/, "");
      if (hasSecretName(path) && isSecret(written, false) && !text.includes("{{")) secrets.add(written);
      return text;
    }
    if (Array.isArray(node)) return node.map((item, index) => walk(item, [...path, index]));
    if (typeof node !== "object" || node === null) return node;
    return Object.fromEntries(Object.entries(node).map(([key, item]) => [key, walk(item, [...path, key])]));
  };

  return { value: walk(value, []), substitutions, filledIn: [...filledIn], secrets: [...secrets], problems };
}

const hasSecretName = (path: Path): boolean => isSecretName(String(path.findLast((key) => typeof key === "string")));

/** Replaces every secret in `text` with `***`; very short ones only within quotes, where values are. */
export function maskText(text: string, secrets: readonly string[]): string {
  let masked = text;
  for (const secret of [...secrets].sort((a, b) => b.length - a.length)) {
    if (secret.length >= 4) masked = masked.replaceAll(secret, MASK);
    else masked = masked.replaceAll(`"${secret}"`, `"${MASK}"`);
  }
  return masked;
}
