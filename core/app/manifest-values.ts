/** The values of the current manifest and where each comes from, for operators of the service. Secrets are left out. */
import type { ManifestValue } from "../../generated/types.ts";
import { isObject } from "../lib/is-object.ts";
import { isSecretName } from "../lib/secrets.ts";
import type { LoadedManifest } from "../manifest/load.ts";
import { formatPath, type Manifest, type Path } from "../manifest/manifest.ts";
import { applicableBranch, definition, definitionName } from "../manifest/resolve.ts";
import { BLANK, withoutCredentials } from "../observability/redaction.ts";

// What the schema says about a value of the manifest: its description, and whether it is a time or a size.

type Schema = Record<string, unknown>;

type Unit = "milliseconds" | "bytes";

interface Description {
  /** Empty when the schema has no description, as for the settings of plugins. */
  text: string;
  unit?: Unit;
}

const UNITS: Record<string, Unit | undefined> = { Duration: "milliseconds", Size: "bytes" };

/** @param path of a value in the manifest */
function describeValue(manifest: Manifest, path: Path): Description {
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

/** Sections whose keys are names that the user chose, which say nothing about their values: a tool may be called `reset_password`. */
const SECTIONS = ["agents", "memory", "providers", "tools", "workflows"];
/** Names of keys of all kinds (`key`, `publicKey`, `x-api-key`), and of lists of tokens. A number under such a name is a count. */
const KEY = /(?:keys?|tokens|jwk)$/i;
/** Sections that are passed on to others unchanged: they may contain credentials under any name. */
const HANDED_ON = new Set(["headers", "query", "env", "args"]);
/** A single expression without any other text. */
const EXPRESSION = /^\{\{[^{}"']*\}\}$/;
/** Keywords that a JSON Schema has for a property, whatever the name of the property. */
const OF_PROPERTY = new Set<unknown>(["type", "title", "description", "format"]);
/** Shown in place of a value from outside the manifest. */
const OUTSIDE = "***";
/** The user information before the host of a URL. */
const USER = /:\/\/[^\s/?#]*@/g;
/** Random-looking parts of paths and queries, except dates: the URLs of webhooks contain their secret there. */
const RANDOM_PART = /(?<=[^/]\/|=)(?!\d{4}-\d\d-\d\d)(?=[\w:-]*\d)(?=[\w:-]*[A-Za-z])[\w:-]{16,}/g;
/** A shorter text may be repeated by chance. */
const MIN_REPEATED_LENGTH = 8;

/** Lists the values of a valid manifest. */
export function manifestValues({ manifest, explain }: Pick<LoadedManifest, "manifest" | "explain">): ManifestValue[] {
  const { entries } = explain("");
  const isSecret = entries.map(({ keys, value }) => areInstructions(keys) || isSecretValue(keys, value));
  // A YAML anchor repeats a secret under another name.
  const repeated = new Set(
    entries.map(({ value }) => value).filter((value, index) => isSecret[index] && isLong(value)),
  );
  return entries.map(({ keys, value, source, origin }, index) => {
    const { text, unit } = describeValue(manifest!, keys);
    const shown = isSecret[index] || repeated.has(value) ? hidden(value) : withoutSecrets(value);
    return {
      path: formatPath(withoutSecretKeys(keys)),
      value: shown,
      source,
      origin,
      ...(text !== "" && { description: text }),
      ...(unit !== undefined && typeof shown === "number" && { unit }),
    };
  });
}

const isLong = (value: unknown): boolean => typeof value === "string" && value.length >= MIN_REPEATED_LENGTH;

const hidden = (value: unknown): unknown => (value === "" || value === OUTSIDE ? value : BLANK);

/** Values from the environment are masked already. Those written in the file are judged by their names and by their form. */
function isSecretValue(keys: Path, value: unknown): boolean {
  if (typeof value === "number")
    return keys.some((_, index) => isJudged(keys, index) && isSecretName(`${keys[index]}`));
  if (typeof value !== "string") return false;
  if (keys.some((_, index) => hasSecretName(keys, index))) return true;
  return keys.slice(0, -1).some((_, index) => isHandedOn(keys, index)) && !EXPRESSION.test(value);
}

const hasSecretName = (keys: Path, index: number): boolean =>
  isJudged(keys, index) && (isSecretName(`${keys[index]}`) || KEY.test(`${keys[index]}`));

const isHandedOn = (keys: Path, index: number): boolean => isJudged(keys, index) && HANDED_ON.has(`${keys[index]}`);

/** Whether a key describes its value, unlike names that the user chose. */
function isJudged(keys: Path, index: number): boolean {
  if (typeof keys[index] === "number") return false;
  if (keys[index - 1] === "properties") return !OF_PROPERTY.has(keys[index + 1]);
  return !(index === 1 && SECTIONS.includes(`${keys[0]}`)) && !(index === 2 && keys[0] === "mcp");
}

/** Blanks the keys below the name of a secret: they may be secrets themselves, such as tokens with their owners as values. */
const withoutSecretKeys = (keys: Path): Path =>
  keys.map((key, index) => (typeof key === "string" && index > 0 && hasSecretName(keys, index - 1) ? BLANK : key));

function withoutSecrets(value: unknown): unknown {
  if (typeof value !== "string") return value;
  const clean = withoutCredentials(value.replace(USER, `://${BLANK}@`));
  return clean.includes("://") ? clean.replace(RANDOM_PART, BLANK) : clean;
}

/** Whether the value is instructions, which the schema promises to show to nobody. */
const areInstructions = (keys: Path): boolean =>
  keys.length === 3 && keys[0] === "agents" && keys[2] === "instructions";
