/** Schemas of plugins: JavaScript objects, which may be what JSON cannot be. */
import type { Path } from "../lib/errors.ts";
import { schemaProblems } from "../lib/schema-shape.ts";
import { formatPath } from "../manifest/manifest.ts";

/** Every problem of a schema with its path. @param at what the paths begin with */
export function pluginSchemaProblems(schema: unknown, at?: string): string[] {
  const circle = findCircle(schema);
  if (circle === null) return schemaProblems(schema, at);
  const place = formatPath([...(at === undefined ? [] : [at]), ...circle.at]);
  const reference = JSON.stringify(
    `#${circle.to.map((key) => `/${String(key).replaceAll("~", "~0").replaceAll("/", "~1")}`).join("")}`,
  );
  return [`${place} is the object that it is in, which never ends: write { $ref: ${reference} } there`];
}

/** A place whose value is one of those around it, and the place of that one. */
interface Circle {
  readonly at: Path;
  readonly to: Path;
}

/** @param seen what is known to be without one: a value may stand in several places */
function findCircle(
  value: unknown,
  at: Path = [],
  around = new Map<object, Path>(),
  seen = new Set<object>(),
): Circle | null {
  if (typeof value !== "object" || value === null || seen.has(value)) return null;
  const to = around.get(value);
  if (to !== undefined) return { at, to };
  around.set(value, at);
  for (const [key, member] of Object.entries(value)) {
    const circle = findCircle(member, [...at, Array.isArray(value) ? Number(key) : key], around, seen);
    if (circle !== null) return circle;
  }
  around.delete(value);
  seen.add(value);
  return null;
}
