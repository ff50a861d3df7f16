/** The valid part of a manifest that has errors. It is compiled all the same, so that one report has the errors of every stage. */
import { isObject } from "../lib/is-object.ts";
import type { Path } from "./issues.ts";
import type { Manifest } from "./manifest.ts";
import { resolveManifest } from "./resolve.ts";
import { validate } from "./validate.ts";

/** Sections whose entries are independent: an invalid entry is left out, the others stay. */
const SECTIONS_OF_ENTRIES: ReadonlySet<string | number> = new Set([
  "providers",
  "memory",
  "tools",
  "agents",
  "workflows",
]);

/** Resolves `document` without the values at the faulty paths; null when too little is left. */
export function validSubset(document: unknown, faultyPaths: readonly Path[]): Manifest | null {
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
