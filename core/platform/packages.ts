/** Reads the packages that package.json lists, their installed versions, and what `npm install` needs to update one. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { ServiceError } from "../lib/errors.ts";

const SECTIONS = ["dependencies", "devDependencies", "optionalDependencies", "peerDependencies"] as const;
type Section = (typeof SECTIONS)[number];

export interface Dependency {
  readonly name: string;
  /** The version in package.json: `^1.2.0`, `npm:other@1.2.0`, `file:../x`. */
  readonly wanted: string;
  readonly section: Section;
}

/** Dependencies by name. @throws ServiceError `internal` when package.json cannot be read */
export async function readDependencies(folder: string): Promise<Map<string, Dependency>> {
  let text: unknown;
  try {
    text = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
  } catch (cause) {
    throw new ServiceError("internal", "package.json of the service cannot be read", { cause });
  }
  const found = new Map<string, Dependency>();
  for (const section of SECTIONS) {
    const listed = (text as Record<string, unknown>)[section];
    if (typeof listed !== "object" || listed === null) continue;
    for (const [name, wanted] of Object.entries(listed))
      if (typeof wanted === "string" && !found.has(name)) found.set(name, { name, wanted, section });
  }
  return found;
}

/** The version that is installed, or null. */
export async function installedVersion(folder: string, name: string): Promise<string | null> {
  try {
    const { version } = JSON.parse(await readFile(join(folder, "node_modules", name, "package.json"), "utf8"));
    return typeof version === "string" ? version : null;
  } catch {
    return null;
  }
}

const NAME = /^(?:@[a-z0-9~][a-z0-9._~-]*\/)?[a-z0-9~][a-z0-9._~-]*$/i;
const ALIAS = /^npm:((?:@[^/@]+\/)?[^@]+)@/;
/** A version, a range of versions or a tag of the registry. */
const RANGE = /^[\w.*^~<>=|\s+-]*$/;

/** The argument of `npm install` for the newest version; null for a package that does not come from the registry. */
export function newestSpecifier({ name, wanted }: Dependency): string | null {
  if (!NAME.test(name)) return null;
  const other = ALIAS.exec(wanted)?.[1];
  if (other !== undefined) return NAME.test(other) ? `${name}@npm:${other}@latest` : null;
  return RANGE.test(wanted) ? `${name}@latest` : null;
}

/** Whether package.json pins one exact version: then an update pins the new one. */
export const isExact = ({ wanted }: Dependency): boolean => /^(?:npm:.+@)?=?\d+\.\d+\.\d+(?:-[\w.-]+)?$/.test(wanted);
