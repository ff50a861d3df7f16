/** What is left of a manifest with faults, so that the checks behind its shape can report theirs in the same breath. */
import { isObject } from "../lib/is-object.ts";
import type { Path } from "./issues.ts";
import type { Manifest } from "./manifest.ts";
import { resolveManifest } from "./resolve.ts";
import { validate } from "./validate.ts";

/** Sections whose entries stand each for itself: one that is broken is left out, the others stay. */
const ENTRIES: ReadonlySet<string | number> = new Set(["providers", "memory", "tools", "agents", "workflows"]);

/** The resolved rest of `document` without what lies on one of the paths, or null when there is too little left. */
export function salvage(document: unknown, faults: readonly Path[]): Manifest | null {
  if (!isObject(document)) return null;
  const rest: Record<string, unknown> = { ...structuredClone(document), name: "rest", version: "0" };
  for (const [section, key] of faults) {
    if (section === undefined || section === "name" || section === "version") continue;
    const entries = rest[section];
    if (key !== undefined && ENTRIES.has(section) && isObject(entries)) delete entries[key];
    else delete rest[section];
  }
  return validate(rest, new Map()).length === 0 ? resolveManifest(rest) : null;
}
