/** The kinds of plugins: the folder of each, and the fields that a default export must have. A new kind is a new row. */

import { parseDuration } from "../lib/duration.ts";
import { isObject } from "../lib/is-object.ts";
import type { PluginKind } from "../plugin/plugin.ts";
import { pluginSchemaProblems } from "./plugin-schema.ts";

/** Returns the problem of a field (`must be a function`), or null. */
type Check = (value: unknown) => string | null;

interface KindRow {
  /** The folder below a plugin root. */
  folder: string;
  /** The names of fields, in the order in which they are checked. One that may be missing ends in `?`. */
  fields: readonly string[];
  /** Fields that the result of `create` must have; undefined for kinds without `create`. */
  created?: readonly string[];
}

const METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"];
/** The name of a plugin. */
export const NAME = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$/;

const must =
  (what: string, fits: (value: unknown) => boolean): Check =>
  (value) =>
    fits(value) ? null : `must be ${what}`;

const isText = (value: unknown): value is string => typeof value === "string";
const isFlag = (value: unknown) => typeof value === "boolean";
const text = must("a string", isText);
const texts = must("a list of strings", (value) => Array.isArray(value) && value.every(isText));

const duration = must('a duration like "250ms" or "5s"', (value) => {
  try {
    return isText(value) && parseDuration(value) >= 0;
  } catch {
    return false;
  }
});

const schema: Check = (value) => {
  if (!isObject(value)) return "must be a JSON Schema, an object";
  const problems = pluginSchemaProblems(value);
  return problems.length === 0 ? null : `is not a JSON Schema: ${problems.join("; ")}`;
};

/** What a field must be, which is the same in all kinds. A field that is not here must be a function. */
const CHECKS: Readonly<Record<string, Check>> = {
  kind: text,
  name: must("letters, digits, _, . or -, at most 128", (value) => isText(value) && NAME.test(value)),
  description: text,
  summary: text,
  type: text,
  model: text,
  tags: texts,
  publicRoutes: texts,
  parameters: schema,
  query: schema,
  body: schema,
  response: schema,
  // As a schema it is checked later, in a separate phase.
  config: must("an object", isObject),
  timeout: duration,
  expires: duration,
  approval: must(
    "true, false or one {{ expression }}",
    (value) => isFlag(value) || (isText(value) && /^\s*\{\{[\s\S]*\}\}\s*$/.test(value)),
  ),
  approvers: must('"owner" or "console"', (value) => value === "owner" || value === "console"),
  readOnly: must("true or false", isFlag),
  cors: must("an object of CORS settings, or false", (value) => value === false || isObject(value)),
  method: must(`one of ${METHODS.join(", ")}`, (value) => METHODS.includes(value as string)),
  path: must("a path that begins with /", (value) => isText(value) && value.startsWith("/")),
  dimensions: must("a whole number above 0", (value) => Number.isInteger(value) && (value as number) > 0),
  retries: must("a whole number, 0 or more", (value) => Number.isInteger(value) && (value as number) >= 0),
};

const callback = must("a function", (value) => typeof value === "function");

/** The problems of the fields of a value, each with the name of its field; unknown fields are allowed. */
export function fieldProblems(value: object, fields: readonly string[]): string[] {
  return fields.flatMap((field) => {
    const name = fieldName(field);
    const given = (value as Record<string, unknown>)[name];
    if (given === undefined) return name === field ? [`${name} is missing`] : [];
    const problem = (CHECKS[name] ?? callback)(given);
    return problem === null ? [] : [`${name} ${problem}`];
  });
}

export const fieldName = (field: string): string => field.replace("?", "");

const COMMON = ["kind?", "name?"];
const FACTORY = [...COMMON, "create", "config?"];

const ROWS: Readonly<Record<PluginKind, KindRow>> = {
  tool: {
    folder: "tools",
    fields: [
      ...COMMON,
      "description?",
      "tags?",
      "parameters?",
      "config?",
      "timeout?",
      "approval?",
      "expires?",
      "approvers?",
      "readOnly?",
      "execute",
    ],
  },
  step: { folder: "steps", fields: [...COMMON, "description?", "config?", "readOnly?", "execute"] },
  route: {
    folder: "routes",
    fields: [...COMMON, "method", "path", "summary?", "query?", "body?", "response?", "cors?", "handle"],
  },
  auth: { folder: "auth", fields: [...FACTORY, "mapUser?"], created: ["type", "publicRoutes?", "verifyToken"] },
  provider: { folder: "providers", fields: FACTORY, created: ["languageModel", "embeddingModel?", "retries?"] },
  embedding: { folder: "embeddings", fields: FACTORY, created: ["dimensions", "model?", "embed"] },
  vectors: { folder: "vectors", fields: FACTORY, created: ["put", "delete", "search", "clear"] },
  store: {
    folder: "stores",
    fields: FACTORY,
    created: ["kind", "get", "getMany", "scan", "commit", "problem", "close"],
  },
  origin: { folder: "origins", fields: [...COMMON, "origin"] },
  socket: { folder: "sockets", fields: [...COMMON, "path", "summary?", "open?", "message?", "close?"] },
};

/** All kinds, in the order in which they are listed. */
export const PLUGIN_KINDS: readonly (KindRow & { readonly kind: PluginKind })[] = Object.entries(ROWS).map(
  ([kind, row]) => ({ kind: kind as PluginKind, ...row }),
);

export const kindRow = (kind: PluginKind): KindRow => ROWS[kind];

export const isKind = (name: unknown): name is PluginKind => typeof name === "string" && Object.hasOwn(ROWS, name);
