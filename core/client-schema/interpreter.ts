/**
 * Validates a value against a schema from a client. The schema is interpreted, not compiled to code, and every step is counted, so
 * that the work is bounded.
 */
import type { ErrorObject } from "ajv/dist/2020.js";
import type { PreparedSchema, Schema } from "./prepare.ts";
import { TooMuchWork, type WorkBudget } from "./work.ts";

/** Deepest nesting of schemas, including those behind references. */
const MAX_DEPTH = 400;
/** Most problems that are reported. */
const MAX_PROBLEMS = 20;

/** What checks each keyword. The argument is its value in the schema; values of types to which a keyword does not apply are valid. */
export interface Keywords {
  /** Those about the value itself. */
  readonly assertions: ReadonlyMap<string, Assertion>;
  /** Those that apply subschemas to the value or to its parts. */
  readonly applicators: ReadonlyMap<string, Applicator>;
  /** Those that come after all others. */
  readonly unevaluated: ReadonlyMap<string, Applicator>;
}

type SchemaObject = Exclude<Schema, boolean>;

export type Assertion = (interpreter: Interpreter, argument: unknown, value: unknown, schema: SchemaObject) => boolean;

export type Applicator = (
  interpreter: Interpreter,
  argument: never,
  value: unknown,
  schema: SchemaObject,
  evaluated: Evaluated | null,
) => boolean;

/** The properties and items of a value that schemas have evaluated, for unevaluatedProperties and unevaluatedItems. */
export class Evaluated {
  readonly properties = new Set<string>();
  allProperties = false;
  readonly items = new Set<number>();
  /** All items before this index are evaluated. */
  itemsBefore = 0;

  add(other: Evaluated): void {
    for (const property of other.properties) this.properties.add(property);
    for (const item of other.items) this.items.add(item);
    this.allProperties ||= other.allProperties;
    this.itemsBefore = Math.max(this.itemsBefore, other.itemsBefore);
  }
}

export class Interpreter {
  readonly schema: PreparedSchema;
  readonly #keywords: Keywords;
  readonly work: WorkBudget;
  readonly errors: ErrorObject[] = [];
  /** The path of the value that is being checked. */
  readonly #path: (string | number)[] = [];
  #depth = 0;
  /** While it is above 0, problems are not recorded. */
  #silent = 0;

  constructor(keywords: Keywords, schema: PreparedSchema, work: WorkBudget) {
    this.#keywords = keywords;
    this.schema = schema;
    this.work = work;
  }

  /** Whether further problems would not be reported anyway. */
  get canStop(): boolean {
    return this.#silent > 0 || this.errors.length >= MAX_PROBLEMS;
  }

  fail(keyword: string, message: string, params: Record<string, unknown> = {}): false {
    if (this.canStop) return false;
    const instancePath = this.#path.map((part) => `/${escapePointer(part)}`).join("");
    this.errors.push({ instancePath, schemaPath: "", keyword, params, message });
    return false;
  }

  /** @param evaluated collects what the schema evaluates, if the value is valid; null when that is not needed */
  check(schema: Schema, value: unknown, evaluated: Evaluated | null = null): boolean {
    this.work.spend(1);
    if (schema === true) return true;
    if (schema === false) return this.fail("false schema", "boolean schema is false");
    if (++this.#depth > MAX_DEPTH) throw new TooMuchWork(`it goes more than ${MAX_DEPTH} levels deep`);
    const tracks =
      this.schema.tracksEvaluated &&
      (schema.unevaluatedProperties !== undefined || schema.unevaluatedItems !== undefined);
    const own = tracks || evaluated !== null ? new Evaluated() : null;
    const valid = this.#checkWith(schema, value, own);
    if (valid && own !== null) evaluated?.add(own);
    this.#depth--;
    return valid;
  }

  #checkWith(schema: SchemaObject, value: unknown, evaluated: Evaluated | null): boolean {
    const { assertions, applicators, unevaluated } = this.#keywords;
    let valid = true;
    let hasApplicators = false;
    // Assertions about the value itself come before its parts.
    for (const keyword in schema) {
      this.work.spend(1);
      const assertion = assertions.get(keyword);
      const argument = schema[keyword];
      // Other keywords, and those whose value may be a schema, are handled by the applicators.
      if (assertion === undefined || typeof argument === "object" || argument === true) hasApplicators = true;
      if (assertion !== undefined && !assertion(this, argument, value, schema)) {
        valid = false;
        if (this.canStop) return false;
      }
    }
    if (!hasApplicators) return valid;
    for (const table of evaluated === null ? [applicators] : [applicators, unevaluated]) {
      for (const keyword in schema) {
        const applicator = table.get(keyword);
        if (applicator === undefined || applicator(this, schema[keyword] as never, value, schema, evaluated)) continue;
        valid = false;
        if (this.canStop) return false;
      }
    }
    return valid;
  }

  /** Checks a property or an item of the value. */
  checkPart(schema: Schema, value: unknown, part: string | number): boolean {
    this.#path.push(part);
    const valid = this.check(schema, value);
    this.#path.pop();
    return valid;
  }

  /** Checks without recording problems. */
  checkSilently(schema: Schema, value: unknown, evaluated: Evaluated | null = null): boolean {
    this.#silent++;
    const valid = this.check(schema, value, evaluated);
    this.#silent--;
    return valid;
  }

  /** Drops the problems after the first `problems` ones: those of alternatives in `anyOf` when another one is valid. */
  dropErrorsAfter(problems: number): void {
    if (this.errors.length > problems) this.errors.length = problems;
  }

  matches(pattern: string, text: string): boolean {
    return this.schema.patterns.get(pattern)!.test(text, this.work);
  }
}

const escapePointer = (part: string | number): string =>
  typeof part === "number" ? String(part) : part.replaceAll("~", "~0").replaceAll("/", "~1");
