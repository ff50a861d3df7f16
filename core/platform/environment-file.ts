/** Changes the `.env` file beside the manifest. It is replaced atomically: readers see the old file or the new one. */
import { randomBytes } from "node:crypto";
import { lstat, open, readFile, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { ServiceError } from "../lib/errors.ts";

// Sets variables in the text of a `.env` file, and leaves the rest unchanged.

/** The start of an assignment: indent, `export`, the name, `=` and the spaces after it, perhaps after a byte order mark. */
const ASSIGNMENT = /^((?:\u00ef\u00bb\u00bf)?[ \t]*(?:export[ \t]+)?([A-Za-z_][A-Za-z0-9_.-]*)[ \t]*=[ \t]*)(.*)$/s;
const COMMENT = /(?<![ \t])[ \t]+#.*$/s;

/**
 * Gives every assignment of a variable the new value; variables without an assignment are added at the end. Line ends, the text before an
 * assignment and the comment after it are kept.
 *
 * @param text each character a byte of the file, so that any encoding is preserved
 * @param values that need no quotes
 */
export function withVariables(text: string, values: Readonly<Record<string, string>>): string {
  const set = new Set<string>();
  const lines = splitStatements(text).map((line) => {
    const end = /\r?\n$/.exec(line)?.[0] ?? "";
    const [, before = "", name = "", given = ""] = ASSIGNMENT.exec(line.slice(0, line.length - end.length)) ?? [];
    if (!Object.hasOwn(values, name)) return line;
    set.add(name);
    return before + values[name] + trailingComment(given) + end;
  });
  const newline = /\r?\n/.exec(text)?.[0] ?? "\n";
  const missing = Object.entries(values).filter(([name]) => !set.has(name));
  const added = missing.map(([name, value]) => `${name}=${value}${newline}`);
  const whole = lines.join("");
  const gap = added.length > 0 && whole !== "" && !whole.endsWith("\n") ? newline : "";
  return whole + gap + added.join("");
}

/** Splits into lines with their ends; a quoted value over several lines is one statement. */
function splitStatements(text: string): string[] {
  const statements: string[] = [];
  for (let at = 0; at < text.length; ) {
    const end = endOfStatement(text, at);
    statements.push(text.slice(at, end));
    at = end;
  }
  return statements;
}

function endOfStatement(text: string, at: number): number {
  const after = (from: number) => {
    const newline = text.indexOf("\n", from);
    return newline === -1 ? text.length : newline + 1;
  };
  const end = after(at);
  const given = ASSIGNMENT.exec(text.slice(at, end))?.[3];
  const quote = given?.[0];
  if (given === undefined || (quote !== '"' && quote !== "'" && quote !== "`")) return end;
  const opened = end - given.length;
  const closed = text.indexOf(quote, opened + 1);
  // A quote without a closing one is a character of the value.
  return closed === -1 ? end : after(closed);
}

/** The comment after a value, which may be in quotes. */
function trailingComment(given: string): string {
  const quote = given[0];
  // The variable has no value.
  if (quote === "#") return ` ${given}`;
  const closed = quote === '"' || quote === "'" || quote === "`" ? given.indexOf(quote, 1) : -1;
  return COMMENT.exec(closed === -1 ? given : given.slice(closed + 1))?.[0] ?? "";
}

/** A larger file is not a file of settings. */
const MAX_FILE_BYTES = 1024 * 1024;
/** Only the owner may read the file, because it contains secrets. */
const OWNER_ONLY_MODE = 0o600;

export class EnvironmentFile {
  readonly #folder: string;
  /** The last change; changes run one after the other, so that none is lost. */
  #turn: Promise<unknown> = Promise.resolve();

  constructor(folder: string) {
    this.#folder = folder;
  }

  /**
   * Sets variables and keeps the rest of the file byte for byte. The change is on disk when it resolves.
   *
   * @param values that need no quotes
   * @throws ServiceError `conflict` when `.env` is not a plain file, `internal` when it cannot be written
   */
  set(values: Readonly<Record<string, string>>): Promise<void> {
    const change = this.#turn.then(() => this.#set(values));
    this.#turn = change.catch(() => undefined);
    return change;
  }

  async #set(values: Readonly<Record<string, string>>): Promise<void> {
    const file = join(this.#folder, ".env");
    try {
      const mode = await fileMode(file);
      const text = mode === null ? "" : await readFile(file, "latin1");
      await replace(this.#folder, file, withVariables(text, values), mode ?? OWNER_ONLY_MODE);
    } catch (error) {
      if (error instanceof ServiceError) throw error;
      const code = (error as NodeJS.ErrnoException).code ?? "unknown error";
      throw new ServiceError("internal", `.env beside the manifest cannot be written: ${code}`, { cause: error });
    }
  }
}

/** The mode of the file; null when there is no such file. */
async function fileMode(file: string): Promise<number | null> {
  let found: Awaited<ReturnType<typeof lstat>>;
  try {
    found = await lstat(file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw error;
  }
  // Renaming would replace a link by a file, and leave its target unchanged.
  if (!found.isFile())
    throw new ServiceError("conflict", ".env beside the manifest is not a plain file: change it by hand");
  if (found.size > MAX_FILE_BYTES) throw new ServiceError("conflict", ".env beside the manifest is larger than 1 MiB");
  return Number(found.mode) & 0o777;
}

/** Replaces the file atomically, even if the machine loses power. */
async function replace(folder: string, file: string, text: string, mode: number): Promise<void> {
  const fresh = `${file}.${randomBytes(6).toString("hex")}`;
  try {
    const handle = await open(fresh, "wx", mode);
    try {
      await handle.chmod(mode);
      await handle.writeFile(text, "latin1");
      await handle.sync();
    } finally {
      await handle.close();
    }
    await rename(fresh, file);
  } catch (error) {
    await rm(fresh, { force: true });
    throw error;
  }
  await syncFolder(folder);
}

/** Flushes the rename to disk, on systems that can synchronise a folder. */
async function syncFolder(folder: string): Promise<void> {
  try {
    const handle = await open(folder, "r");
    await handle.sync().finally(() => handle.close());
  } catch {
    // Windows cannot synchronise a folder.
  }
}
