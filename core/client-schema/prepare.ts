/** Looks at a stranger's schema once: whether it is one, what it refers to, and the patterns in it. Nothing of it becomes code. */
import { isObject } from "../lib/is-object.ts";
import { schemaProblems } from "../lib/schema-shape.ts";
import { compileExpression, type Pattern } from "./pattern.ts";

export type Schema = boolean | Readonly<Record<string, unknown>>;

export interface Prepared {
  readonly root: Schema;
  /** By their text. */
  readonly patterns: ReadonlyMap<string, Pattern>;
  /** By the reference as it is written. */
  readonly references: ReadonlyMap<string, Schema>;
  /** Whether what was evaluated has to be remembered. */
  readonly remembers: boolean;
  /** Bytes that it takes up, about, beside the schema itself. */
  readonly size: number;
}

/** Instructions of all patterns of one schema. */
const MOST_INSTRUCTIONS = 20_000;
/** Bytes of one. */
const INSTRUCTION = 64;

const ONE =
  "additionalItems additionalProperties contains else if items not propertyNames then unevaluatedItems unevaluatedProperties";
const LISTS = "allOf anyOf items oneOf prefixItems";
const MAPS = "$defs definitions dependencies dependentSchemas patternProperties properties";
const SCHEMAS = new Set(ONE.split(" "));
const SCHEMA_LISTS = new Set(LISTS.split(" "));
const SCHEMA_MAPS = new Set(MAPS.split(" "));

const OLD_DRAFTS = /draft-0[4-7]/;

/** @throws Error that says what is wrong with it */
export function prepareSchema(root: Readonly<Record<string, unknown>>): Prepared {
  const { $schema } = root;
  const isOld = typeof $schema === "string" && OLD_DRAFTS.test($schema);
  const preparation = new Preparation(root, isOld);
  preparation.look(root);
  return preparation;
}

class Preparation implements Prepared {
  readonly root: Schema;
  readonly patterns = new Map<string, Pattern>();
  readonly references = new Map<string, Schema>();
  remembers = false;
  readonly #isOld: boolean;
  readonly #anchors = new Map<string, Schema>();
  readonly #seen = new Set<Schema>();
  #instructions = 0;

  constructor(root: Schema, isOld: boolean) {
    this.root = root;
    this.#isOld = isOld;
  }

  get size(): number {
    return this.#instructions * INSTRUCTION;
  }

  /** Of the whole, or of what stands where only a reference leads to. */
  look(schema: Schema): void {
    const [problem] = schemaProblems(schema, "", { lists: this.#isOld, annotations: false });
    if (problem !== undefined) throw new Error(problem);
    const found: string[] = [];
    this.#walk(schema, found);
    for (const reference of found) {
      if (this.references.has(reference)) continue;
      const target = this.#resolve(reference);
      this.references.set(reference, target);
      if (!this.#seen.has(target)) this.look(target);
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
      else if (key.startsWith("unevaluated")) this.remembers = true;
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
    if (this.#instructions > MOST_INSTRUCTIONS)
      throw new Error("its patterns are too large, with all that they repeat");
  }

  #resolve(reference: string): Schema {
    const anchored = this.#anchors.get(reference);
    if (anchored !== undefined) return anchored;
    let target: unknown = reference === "#" || reference.startsWith("#/") ? this.root : undefined;
    for (const part of reference.split("/").slice(1)) {
      const key = nameOf(part);
      target =
        typeof target === "object" && target !== null && Object.hasOwn(target, key) ? target[key as never] : undefined;
    }
    if (typeof target === "boolean" || isObject(target)) return target;
    throw new Error(`can't resolve reference ${reference.slice(0, 100)}`);
  }
}

/** Of one part of a JSON pointer in a fragment. */
function nameOf(part: string): string {
  let text = part;
  try {
    text = decodeURIComponent(part);
  } catch {
    // It stands for itself.
  }
  return text.replaceAll("~1", "/").replaceAll("~0", "~");
}
