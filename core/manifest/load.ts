/** Reads, validates and resolves one manifest file, and collects every problem on the way. */
import { readFile } from "node:fs/promises";
import { basename, dirname, isAbsolute, relative, resolve } from "node:path";
import { messageOf } from "../lib/errors.ts";
import { isObject } from "../lib/is-object.ts";
import { secretsOf } from "../lib/secrets.ts";
import { type Environment, maskText, substitute } from "./environment.ts";
import { type Explained, explainPath } from "./explain.ts";
import { formatPath, type Issue, type Manifest, type Path } from "./manifest.ts";
import { Positions, readYaml } from "./read.ts";
import { resolveManifest } from "./resolve.ts";
import { validate } from "./schema-errors.ts";

/** Sections whose entries are independent: an invalid entry is left out, the others stay. */
const SECTIONS_OF_ENTRIES: ReadonlySet<string | number> = new Set([
  "providers",
  "memory",
  "tools",
  "agents",
  "workflows",
]);

/**
 * Resolves `document` without the values at the faulty paths; null when too little is left. It is compiled all the same, so that one
 * report has the errors of every stage.
 */
function validSubset(document: unknown, faultyPaths: readonly Path[]): Manifest | null {
  if (!isObject(document)) return null;
  const rest: Record<string, unknown> = { ...structuredClone(document), name: "rest", version: "0" };
  for (const [section, key] of faultyPaths) {
    if (section === undefined || section === "name" || section === "version") continue;
    const entries = rest[section];
    if (key !== undefined && SECTIONS_OF_ENTRIES.has(section) && isObject(entries)) delete entries[key];
    else delete rest[section];
  }
  return validate(rest, new Map()).length === 0 ? resolveManifest(rest) : null;
}

export interface LoadedManifest {
  /** Null when there are errors. Frozen; `manifest.ts` describes what is resolved. */
  readonly manifest: Manifest | null;
  /** The manifest, or the part of it without errors; null when that is too little. */
  readonly validSubset: Manifest | null;
  /**
   * The document with references to the environment replaced and defaults applied, even if it is invalid: for checks
   * that report as much as they can. Undefined when the file could not be read at all.
   */
  readonly document: unknown;
  /** The issues of this file only, not sorted yet. */
  readonly issues: readonly Issue[];
  /** The path for messages: relative to the working directory if the file is below it. */
  readonly file: string;
  /** Absolute path of the folder to which relative paths in the manifest refer. */
  readonly folder: string;
  /**
   * Makes an issue at the place of a path, or of the nearest key above it that the file has.
   *
   * @param offset of a character in the text at this path, to place the issue there
   */
  issueAt(path: Path, message: string, severity?: Issue["severity"], offset?: number): Issue;
  /** Whether the file itself has a value at a path, as opposed to a default. */
  isWritten(path: Path): boolean;
  /** What neither logs nor traces nor errors may say: secrets of the environment, of files and of the manifest. */
  readonly secrets: readonly string[];
  /** See `formatExplained`. */
  explain(path: string): Explained;
  /** The environment variable to which a value refers, whether or not it is set. */
  variableOf(path: Path): string | undefined;
  /** The text of a value as written in the manifest, such as `Bearer ${TOKEN}`, if it refers to the environment or to a file. */
  referenceAt(path: Path): string | undefined;
}

/** Never throws: a file that cannot be read is an issue too. `file` is relative to the working directory. */
export async function loadManifest(file: string, env: Environment): Promise<LoadedManifest> {
  const path = shortPath(resolve(file));
  let text: string;
  try {
    text = await readFile(file, "utf8");
  } catch (error) {
    return unreadable(path, whyUnreadable(error, "manifest"));
  }
  return parseManifest(text, { file: path, env });
}

/** The path relative to the working directory if it is below it: short to read, and editors can open it. */
function shortPath(file: string): string {
  const path = relative(process.cwd(), file);
  return path === "" || path.startsWith("..") || isAbsolute(path) ? file : path;
}

/** @param kind of file, as named in messages */
export function whyUnreadable(error: unknown, kind: string): string {
  switch ((error as NodeJS.ErrnoException).code) {
    case "ENOENT":
      return `there is no such file${kind === "manifest" ? ": penstock init makes a project" : ""}`;
    case "EISDIR":
      return `this is a folder: name the ${kind} in it`;
    default:
      return `the file cannot be read: ${messageOf(error)}`;
  }
}

/** Loads a manifest from text; `file` is for messages and for relative paths. */
export function parseManifest(text: string, options: { file: string; env: Environment }): LoadedManifest {
  const { file, env } = options;
  const folder = dirname(resolve(file));
  const source = readYaml(text);
  const { positions } = source;
  const { value, substitutions, filledIn, secrets: own, problems } = substitute(source.value, env, folder);
  const secrets = [...secretsOf(env), ...own];

  const issueAt: LoadedManifest["issueAt"] = (path, message, severity = "error", offset) => {
    const isInText = offset !== undefined && !substitutions.has(JSON.stringify(path));
    const { line, column } = isInText ? positions.findInText(path, offset) : positions.find(path);
    return { severity, file, line, column, path: formatPath(path), message: maskText(message, filledIn) };
  };

  const faultyPaths: Path[] = [...source.problems, ...problems].map(({ path }) => path);
  const issues: Issue[] = source.problems.map(({ path, position, message, severity = "error" }) => ({
    severity,
    file,
    ...position,
    path: formatPath(path),
    message,
  }));
  issues.push(...problems.map(({ path, message }) => issueAt(path, message)));

  let document = value;
  if (source.value === undefined) document = undefined;
  else if (source.value === null) issues.push(issueAt([], `${basename(file)} is empty`));
  else {
    // A value that could not be read or filled in has been reported already: that it is invalid too adds nothing.
    const reported = new Set(issues.map(({ path }) => path));
    const misfits = validate(document, substitutions);
    faultyPaths.push(...misfits.map(({ path }) => path));
    issues.push(
      ...misfits
        .filter(({ path }) => !reported.has(formatPath(path)))
        .map(({ path, message }) => issueAt(path, message)),
    );
  }
  const valid = document !== undefined && !issues.some(({ severity }) => severity === "error");
  const manifest = valid ? resolveManifest(document) : null;
  const explain = (path: string) => explainPath({ file, root: manifest ?? document, positions, substitutions }, path);
  const subset = manifest ?? validSubset(document, faultyPaths);
  const variableOf = (path: Path) => substitutions.get(JSON.stringify(path))?.variables[0];
  const referenceAt = (path: Path) => {
    const found = substitutions.get(JSON.stringify(path));
    return found !== undefined && (found.variables.length > 0 || found.sources.length > 0) ? found.written : undefined;
  };
  const isWritten = (path: Path) => positions.has(path);
  const about = { issueAt, isWritten, secrets, explain, variableOf, referenceAt };
  return { manifest, validSubset: subset, document, issues, file, folder, ...about };
}

function unreadable(file: string, message: string): LoadedManifest {
  const positions = new Positions();
  const issueAt: LoadedManifest["issueAt"] = (path, text, severity = "error") => {
    return { severity, file, line: 1, column: 1, path: formatPath(path), message: text };
  };
  return {
    manifest: null,
    validSubset: null,
    document: undefined,
    issues: [issueAt([], message)],
    file,
    folder: dirname(resolve(file)),
    issueAt,
    isWritten: () => false,
    variableOf: () => undefined,
    referenceAt: () => undefined,
    secrets: [],
    explain: (path) => explainPath({ file, root: undefined, positions, substitutions: new Map() }, path),
  };
}
