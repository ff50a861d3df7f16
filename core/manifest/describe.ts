/** What the schema says about a value of the manifest: its description, and whether it is a time or a size. */
import { isObject } from "../lib/is-object.ts";
import type { Path } from "./issues.ts";
import type { Manifest } from "./manifest.ts";
import { applicableBranch, definition, definitionName } from "./resolve.ts";

type Schema = Record<string, unknown>;

type Unit = "milliseconds" | "bytes";

interface Description {
  /** Empty when the schema has no description, as for the settings of plugins. */
  text: string;
  unit?: Unit;
}

const UNITS: Record<string, Unit | undefined> = { Duration: "milliseconds", Size: "bytes" };

/** @param path of a value in the manifest */
export function describeValue(manifest: Manifest, path: Path): Description {
  let schema: Schema = { $ref: "#/$defs/Manifest" };
  let value: unknown = manifest;
  for (const part of path) {
    const target = branchOf(schema, value);
    const properties = (target.properties ?? {}) as Record<string, Schema>;
    const named = Object.hasOwn(properties, part) ? properties[part] : undefined;
    const next = typeof part === "number" ? target.items : (named ?? target.additionalProperties);
    if (!isObject(next)) return { text: "" };
    schema = next as Schema;
    value = (value as Record<string, unknown> | undefined)?.[part];
  }
  const unit = UNITS[definitionName(branchOf(schema, value, false)) ?? ""];
  return { text: typeof schema.description === "string" ? schema.description : "", ...(unit && { unit }) };
}

/** The subschema that applies to a value. @param named whether references to named schemas are resolved even if they name a unit */
function branchOf(schema: Schema, value: unknown, named = true): Schema {
  const name = definitionName(schema);
  if (name !== undefined && (named || UNITS[name] === undefined)) return branchOf(definition(name), value, named);
  const branch = applicableBranch(schema, value);
  return branch === undefined ? schema : branchOf(branch, value, named);
}
