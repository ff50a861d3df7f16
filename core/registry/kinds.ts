/** The kinds of plugins: the folder of each, and the fields that a default export must have. A new kind is a new row. */

import { parseDuration } from "../lib/duration.ts";
import { isObject } from "../lib/is-object.ts";
import { schemaProblems } from "../lib/schema-shape.ts";
import type { PluginKind } from "../plugin/plugin.ts";

/** Returns the problem of a field (`must be a function`), or null. */
type Check = (value: unknown) => string | null;

interface Field {
  check: Check;
  required: boolean;
}

export interface KindRow {
  /** The folder below a plugin root. */
  folder: string;
  fields: Readonly<Record<string, Field>>;
  /** Fields that the result of `create` must have; undefined for kinds without `create`. */
  created?: Readonly<Record<string, Field>>;
}

const METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"];
/** The name of a plugin. */
export const NAME = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$/;

const must =
  (what: string, fits: (value: unknown) => boolean): Check =>
  (value) =>
    fits(value) ? null : `must be ${what}`;
const required = (check: Check): Field => ({ check, required: true });
const optional = (check: Check): Field => ({ check, required: false });

const name = must("letters, digits, _, . or -, at most 128", (value) => typeof value === "string" && NAME.test(value));
const text = must("a string", (value) => typeof value === "string");
const texts = must(
  "a list of strings",
  (value) => Array.isArray(value) && value.every((item) => typeof item === "string"),
);
const flag = must("true or false", (value) => typeof value === "boolean");
const approval = must(
  "true, false or one {{ expression }}",
  (value) => typeof value === "boolean" || (typeof value === "string" && /^\s*\{\{[\s\S]*\}\}\s*$/.test(value)),
);
const approvers = must('"owner" or "console"', (value) => value === "owner" || value === "console");
const callback = must("a function", (value) => typeof value === "function");
const object = must("an object", isObject);
const cors = must("an object of CORS settings, or false", (value) => value === false || isObject(value));
const method = must(`one of ${METHODS.join(", ")}`, (value) => METHODS.includes(value as string));
const path = must("a path that begins with /", (value) => typeof value === "string" && value.startsWith("/"));
const dimensions = must("a whole number above 0", (value) => Number.isInteger(value) && (value as number) > 0);
const retries = must("a whole number, 0 or more", (value) => Number.isInteger(value) && (value as number) >= 0);

const duration = must('a duration like "250ms" or "5s"', (value) => {
  try {
    return typeof value === "string" && parseDuration(value) >= 0;
  } catch {
    return false;
  }
});

const schema: Check = (value) => {
  if (!isObject(value)) return "must be a JSON Schema, an object";
  const problems = schemaProblems(value);
  return problems.length === 0 ? null : `is not a JSON Schema: ${problems.join("; ")}`;
};

const commonFields = { kind: optional(text), name: optional(name) };
const factoryFields = { ...commonFields, create: required(callback), config: optional(object) };

/** `config` is checked later, in a separate phase. */
const ROWS: Readonly<Record<PluginKind, KindRow>> = {
  tool: {
    folder: "tools",
    fields: {
      ...commonFields,
      description: optional(text),
      tags: optional(texts),
      parameters: optional(schema),
      config: optional(object),
      timeout: optional(duration),
      approval: optional(approval),
      expires: optional(duration),
      approvers: optional(approvers),
      readOnly: optional(flag),
      execute: required(callback),
    },
  },
  step: {
    folder: "steps",
    fields: {
      ...commonFields,
      description: optional(text),
      config: optional(object),
      readOnly: optional(flag),
      execute: required(callback),
    },
  },
  route: {
    folder: "routes",
    fields: {
      ...commonFields,
      method: required(method),
      path: required(path),
      summary: optional(text),
      query: optional(schema),
      body: optional(schema),
      response: optional(schema),
      cors: optional(cors),
      handle: required(callback),
    },
  },
  auth: {
    folder: "auth",
    fields: { ...factoryFields, mapUser: optional(callback) },
    created: { type: required(text), publicRoutes: optional(texts), verifyToken: required(callback) },
  },
  provider: {
    folder: "providers",
    fields: factoryFields,
    created: { languageModel: required(callback), embeddingModel: optional(callback), retries: optional(retries) },
  },
  embedding: {
    folder: "embeddings",
    fields: factoryFields,
    created: { dimensions: required(dimensions), model: optional(text), embed: required(callback) },
  },
  vectors: {
    folder: "vectors",
    fields: factoryFields,
    created: {
      put: required(callback),
      delete: required(callback),
      search: required(callback),
      clear: required(callback),
    },
  },
  store: {
    folder: "stores",
    fields: factoryFields,
    created: {
      kind: required(text),
      get: required(callback),
      getMany: required(callback),
      scan: required(callback),
      commit: required(callback),
      problem: required(callback),
      close: required(callback),
    },
  },
  origin: { folder: "origins", fields: { ...commonFields, origin: required(callback) } },
  socket: {
    folder: "sockets",
    fields: {
      ...commonFields,
      path: required(path),
      summary: optional(text),
      open: optional(callback),
      message: optional(callback),
      close: optional(callback),
    },
  },
};

/** All kinds, in the order in which they are listed. */
export const PLUGIN_KINDS: readonly (KindRow & { readonly kind: PluginKind })[] = Object.entries(ROWS).map(
  ([kind, row]) => ({ kind: kind as PluginKind, ...row }),
);

export const kindRow = (kind: PluginKind): KindRow => ROWS[kind];

export const isKind = (name: unknown): name is PluginKind => typeof name === "string" && Object.hasOwn(ROWS, name);
