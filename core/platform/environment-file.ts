/** Changes the `.env` file beside the manifest. It is replaced atomically: readers see the old file or the new one. */
import { randomBytes } from "node:crypto";
import { lstat, open, readFile, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import { ServiceError } from "../lib/errors.ts";
import { withVariables } from "./environment-text.ts";

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
