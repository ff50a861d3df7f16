/** Prepares a schema from a client: checks that it is a JSON Schema, resolves its references, and compiles its patterns. */
import { isObject } from "../lib/is-object.ts";
import { schemaProblems } from "../lib/schema-shape.ts";
import { compileExpression, type Pattern } from "./pattern.ts";

export type Schema = boolean | Readonly<Record<string, unknown>>;

export interface PreparedSchema {
  readonly root: Schema;
  /** Compiled patterns by source. */
  readonly patterns: ReadonlyMap<string, Pattern>;
  /** Resolved references by their text. */
  readonly references: ReadonlyMap<string, Schema>;
  /** Whether the schema has unevaluatedProperties or unevaluatedItems. */
  readonly tracksEvaluated: boolean;
  /** Approximate memory in bytes, without the schema itself. */
  readonly size: number;
}

/** Most instructions of all patterns of one schema together. */
const MAX_INSTRUCTIONS = 20_000;
/** Approximate memory of one instruction. */
const BYTES_PER_INSTRUCTION = 64;

const ONE_SCHEMA =
  "additionalItems additionalProperties contains else if items not propertyNames then unevaluatedItems unevaluatedProperties";
const LISTS = "allOf anyOf items oneOf prefixItems";
const MAPS = "$defs definitions dependencies dependentSchemas patternProperties properties";
const SCHEMAS = new Set(ONE_SCHEMA.split(" "));
const SCHEMA_LISTS = new Set(LISTS.split(" "));
const SCHEMA_MAPS = new Set(MAPS.split(" "));

const OLD_DRAFTS = /draft-0[4-7]/;

/** @throws Error that describes what is wrong with it */
export function prepareSchema(root: Readonly<Record<string, unknown>>): PreparedSchema {
  const { $schema } = root;
  const isOldDraft = typeof $schema === "string" && OLD_DRAFTS.test($schema);
  const preparation = new Preparation(root, isOldDraft);
  preparation.prepare(root);
  return preparation;
}

class Preparation implements PreparedSchema {
  readonly root: Schema;
  readonly patterns = new Map<string, Pattern>();
  readonly references = new Map<string, Schema>();
  tracksEvaluated = false;
  readonly #isOldDraft: boolean;
  readonly #anchors = new Map<string, Schema>();
  readonly #seen = new Set<Schema>();
  #instructions = 0;

  constructor(root: Schema, isOldDraft: boolean) {
    this.root = root;
    this.#isOldDraft = isOldDraft;
  }

  get size(): number {
    return this.#instructions * BYTES_PER_INSTRUCTION;
  }

  /** Prepares the whole schema, or a part of it that only a reference reaches. */
  prepare(schema: Schema): void {
    const [problem] = schemaProblems(schema, "", { lists: this.#isOldDraft, annotations: false });
    if (problem !== undefined) throw new Error(problem);
    const found: string[] = [];
    this.#walk(schema, found);
    for (const reference of found) {
      if (this.references.has(reference)) continue;
      const target = this.#resolve(reference);
      this.references.set(reference, target);
      if (!this.#seen.has(target)) this.prepare(target);
    }
  }

  #walk(schema: unknown, references: string[]): void {
    if (!isObject(schema) || this.#seen.has(schema)) return;
    this.#seen.add(schema);
    for (const key in schema) {
      const value = schema[key];
      if (SCHEMA_MAPS.has(key) && isObject(value)) for (const child in value) this.#walk(value[child], references);
      else if (SCHEMA_LISTS.has(key) && Array.isArray(value)) for (const child of value) this.#walk(child, references);
      else if (SCHEMAS.has(key)) this.#walk(value, references);
      if (key === "patternProperties") for (const pattern in value as object) this.#compile(pattern);
      else if (key === "pattern") this.#compile(value as string);
      else if (key === "$anchor" || key === "$dynamicAnchor") this.#anchors.set(`#${value}`, schema);
      else if (key === "$ref" || key === "$dynamicRef") references.push(value as string);
      else if (key.startsWith("unevaluated")) this.tracksEvaluated = true;
    }
  }

  #compile(source: string): void {
    if (this.patterns.has(source)) return;
    try {
      const pattern = compileExpression(source);
      this.#instructions += pattern.size;
      this.patterns.set(source, pattern);
    } catch (error) {
      throw new Error(`pattern ${JSON.stringify(source.slice(0, 100))}: ${(error as Error).message}`);
    }
    if (this.#instructions > MAX_INSTRUCTIONS) throw new Error("its patterns are too large, with all that they repeat");
  }

  #resolve(reference: string): Schema {
    const anchored = this.#anchors.get(reference);
    if (anchored !== undefined) return anchored;
    let target: unknown = reference === "#" || reference.startsWith("#/") ? this.root : undefined;
    for (const part of reference.split("/").slice(1)) {
      const key = decodePointerPart(part);
      target =
        typeof target === "object" && target !== null && Object.hasOwn(target, key) ? target[key as never] : undefined;
    }
    if (typeof target === "boolean" || isObject(target)) return target;
    throw new Error(`can't resolve reference ${reference.slice(0, 100)}`);
  }
}

/** Decodes one part of a JSON pointer in a URL fragment. */
function decodePointerPart(part: string): string {
  let text = part;
  try {
    text = decodeURIComponent(part);
  } catch {
    // Not percent-encoded: it is used literally.
  }
  return text.replaceAll("~1", "/").replaceAll("~0", "~");
}
