/** Checks a value against a stranger's schema by reading the schema: nothing is compiled, and every step is counted. */
import type { ErrorObject } from "ajv/dist/2020.js";
import { APPLICATORS, LAST } from "./applicators.ts";
import { ASSERTIONS } from "./assertions.ts";
import type { Prepared, Schema } from "./prepare.ts";
import { TooMuchWork, WorkBudget } from "./work.ts";

/** Steps of one check, of some 50 to 100 ns: for any value, for each character of it more, and at most. */
const STEPS = { least: 100_000, perCharacter: 20, most: 1_000_000 };
/** Schemas within schemas, through references too. */
const DEEPEST = 400;
/** Problems that are told. */
const MOST_PROBLEMS = 20;

/** Which properties and items of one value schemas have spoken of. */
export class Evaluated {
  readonly properties = new Set<string>();
  allProperties = false;
  readonly items = new Set<number>();
  /** All items before this one. */
  itemsBefore = 0;

  add(other: Evaluated): void {
    for (const property of other.properties) this.properties.add(property);
    for (const item of other.items) this.items.add(item);
    this.allProperties ||= other.allProperties;
    this.itemsBefore = Math.max(this.itemsBefore, other.itemsBefore);
  }
}

export class Interpreter {
  readonly schema: Prepared;
  readonly work: WorkBudget;
  readonly errors: ErrorObject[] = [];
  /** Where the value stands that is being checked. */
  readonly #path: (string | number)[] = [];
  #depth = 0;
  /** Above 0 nobody wants to know what is wrong. */
  #silent = 0;

  constructor(schema: Prepared, work: WorkBudget) {
    this.schema = schema;
    this.work = work;
  }

  /** Whether there is no use in looking for more that is wrong. */
  get stops(): boolean {
    return this.#silent > 0 || this.errors.length >= MOST_PROBLEMS;
  }

  fail(keyword: string, message: string, params: Record<string, unknown> = {}): false {
    if (this.stops) return false;
    const instancePath = this.#path.map((part) => `/${pointer(part)}`).join("");
    this.errors.push({ instancePath, schemaPath: "", keyword, params, message });
    return false;
  }

  /** @param evaluated is told what the schema speaks of, if it holds; null where nobody asks */
  check(schema: Schema, value: unknown, evaluated: Evaluated | null = null): boolean {
    this.work.spend(1);
    if (schema === true) return true;
    if (schema === false) return this.fail("false schema", "boolean schema is false");
    if (++this.#depth > DEEPEST) throw new TooMuchWork(`it goes more than ${DEEPEST} levels deep`);
    const asks =
      this.schema.remembers && (schema.unevaluatedProperties !== undefined || schema.unevaluatedItems !== undefined);
    const own = asks || evaluated !== null ? new Evaluated() : null;
    const holds = this.#checkWith(schema, value, own);
    if (holds && own !== null) evaluated?.add(own);
    this.#depth--;
    return holds;
  }

  #checkWith(schema: Exclude<Schema, boolean>, value: unknown, evaluated: Evaluated | null): boolean {
    let holds = true;
    let later = false;
    // What is said of the value itself comes before what is said of its parts.
    for (const keyword in schema) {
      this.work.spend(1);
      const assertion = ASSERTIONS.get(keyword);
      const said = schema[keyword];
      // What may be a schema is looked at again.
      if (assertion === undefined || typeof said === "object" || said === true) later = true;
      if (assertion !== undefined && !assertion(this, said, value, schema)) {
        holds = false;
        if (this.stops) return false;
      }
    }
    if (!later) return holds;
    for (const table of evaluated === null ? [APPLICATORS] : [APPLICATORS, LAST]) {
      for (const keyword in schema) {
        const applicator = table.get(keyword);
        if (applicator === undefined || applicator(this, schema[keyword] as never, value, schema, evaluated)) continue;
        holds = false;
        if (this.stops) return false;
      }
    }
    return holds;
  }

  /** A part of the value. */
  checkPart(schema: Schema, value: unknown, part: string | number): boolean {
    this.#path.push(part);
    const holds = this.check(schema, value);
    this.#path.pop();
    return holds;
  }

  /** Without a word about what is wrong. */
  tries(schema: Schema, value: unknown, evaluated: Evaluated | null = null): boolean {
    this.#silent++;
    const holds = this.check(schema, value, evaluated);
    this.#silent--;
    return holds;
  }

  /** Takes back what was said of one of several schemas of which another holds. */
  forget(problems: number): void {
    if (this.errors.length > problems) this.errors.length = problems;
  }

  matches(pattern: string, text: string): boolean {
    return this.schema.patterns.get(pattern)!.test(text, this.work);
  }
}

/** What is wrong with a value, the first problems of it; empty when it fits. @throws TooMuchWork */
export function problemsOf(schema: Prepared, value: unknown): { fits: boolean; errors: ErrorObject[] } {
  const steps = STEPS.least + STEPS.perCharacter * charactersOf(value);
  const interpreter = new Interpreter(schema, new WorkBudget(Math.min(steps, STEPS.most)));
  const fits = interpreter.check(schema.root, value);
  return { fits, errors: interpreter.errors };
}

/** Of a value as JSON, about. */
function charactersOf(value: unknown): number {
  if (typeof value === "string") return value.length + 2;
  if (typeof value !== "object" || value === null) return 4;
  let count = 2;
  for (const key in value) count += 4 + charactersOf((value as Record<string, unknown>)[key]);
  return count;
}

const pointer = (part: string | number): string =>
  typeof part === "number" ? String(part) : part.replaceAll("~", "~0").replaceAll("/", "~1");
