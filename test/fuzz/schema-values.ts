/** Values that a JSON Schema allows, and values that it does not, made from the schema alone. */

export type Schema = Record<string, unknown>;
export type Json = unknown;

/** Leads from `$ref` to what it names. */
export type Resolve = (reference: string) => Schema;

const TEXTS = ["a", "a/b", "https://a", "0".repeat(16), "0".repeat(32), "2026-01-31T09:30:00Z", "1s", "1MiB", "a.b"];
/** One of each type, the likeliest mistakes first. */
const MISTAKES: readonly Json[] = [1, {}, "x", null, true, [], [1]];
/** Levels of a schema that are looked into for mistakes, and that a plain value may have. */
const DEEPEST = 4;
/** Mistakes of one schema that are tried. */
const MOST = 24;

const asList = (value: unknown): unknown[] => (Array.isArray(value) ? value : value === undefined ? [] : [value]);
const isSchema = (value: unknown): value is Schema =>
  typeof value === "object" && value !== null && !Array.isArray(value);

function typeOf(value: Json): string {
  if (value === null) return "null";
  return Array.isArray(value) ? "array" : typeof value;
}

/** The types that it allows; none: all of them. */
export function typesOf(schema: Schema): string[] {
  const named = asList(schema.type).map((type) => (type === "integer" ? "number" : String(type)));
  if (named.length > 0) return named;
  if ("const" in schema || "enum" in schema) return ["string"];
  if ("properties" in schema || "additionalProperties" in schema) return ["object"];
  return "items" in schema ? ["array"] : [];
}

/** With what its `$ref` leads to. */
export function resolved(schema: Schema, resolve: Resolve): Schema {
  if (typeof schema.$ref !== "string") return schema;
  const { $ref, ...beside } = schema;
  return { ...resolved(resolve($ref), resolve), ...beside };
}

/** Its alternatives and conditions: what stands in them may stand in the value. */
export function branchesOf(schema: Schema): Schema[] {
  const { allOf, anyOf, oneOf, then, else: otherwise } = schema;
  return [allOf, anyOf, oneOf, otherwise, then].flatMap(asList).filter(isSchema);
}

export const propertiesOf = (schema: Schema): [string, Schema][] =>
  Object.entries((schema.properties ?? {}) as Record<string, unknown>).map(([name, property]) => [
    name,
    isSchema(property) ? property : {},
  ]);

export const itemsOf = (schema: Schema): Schema => (isSchema(schema.items) ? schema.items : {});

/** What keys that are not named may have. */
export const restOf = (schema: Schema): Schema =>
  isSchema(schema.additionalProperties) ? schema.additionalProperties : {};

/** A small value that it allows, as far as that can be told without solving it. */
export function sample(given: Schema, resolve: Resolve, depth = 0): Json {
  const schema = resolved(given, resolve);
  if ("const" in schema) return schema.const;
  if (Array.isArray(schema.enum)) return schema.enum[0];
  const [first, ...others] = branchesOf(schema);
  const [type] = typesOf(schema);
  if (first !== undefined && type === undefined) return sample(first, resolve, depth + 1);
  switch (type) {
    case "array": {
      const least = Number(schema.minItems ?? 0);
      return Array.from({ length: least }, () => sample(itemsOf(schema), resolve, depth + 1));
    }
    case "object": {
      const value: Record<string, Json> = {};
      // Of the two ends of a condition the first is `else`, which asks for no key that is not there.
      const alternative =
        schema.allOf === undefined ? first : others.find((branch) => !asList(schema.allOf).includes(branch));
      for (const part of asList(schema.allOf).filter(isSchema))
        if (part.if === undefined && depth < DEEPEST) Object.assign(value, sample(part, resolve, depth + 1));
      if (alternative !== undefined && depth < DEEPEST)
        Object.assign(value, sample(alternative, resolve, depth + 1) ?? {});
      const properties = Object.fromEntries(propertiesOf(schema));
      for (const name of asList(schema.required) as string[])
        value[name] ??= sample(properties[name] ?? {}, resolve, depth + 1);
      for (const name of alsoRequired(schema, value))
        value[name] ??= sample(properties[name] ?? {}, resolve, depth + 1);
      return value;
    }
    case "number":
      return Number(schema.minimum ?? schema.exclusiveMinimum ?? 0) + (schema.exclusiveMinimum === undefined ? 0 : 1);
    case "boolean":
      return true;
    case "null":
      return null;
    default:
      return textFor(schema);
  }
}

/** What conditions of `allOf` ask for beside certain constants. */
function alsoRequired(schema: Schema, value: Readonly<Record<string, Json>>): string[] {
  const conditions = (asList(schema.allOf) as Schema[]).filter((each) => isSchema(each.if) && isSchema(each.then));
  const holds = (condition: Schema) => propertiesOf(condition).every(([name, { const: is }]) => value[name] === is);
  return conditions
    .filter((each) => holds(each.if as Schema))
    .flatMap((each) => asList((each.then as Schema).required) as string[]);
}

function textFor({ pattern, minLength = 1 }: Schema): string {
  const fits = (text: string) => pattern === undefined || new RegExp(String(pattern), "u").test(text);
  return TEXTS.find((text) => text.length >= Number(minLength) && fits(text)) ?? "a".repeat(Number(minLength));
}

/** Values that it refuses, each with one mistake: at the top, then further inside. */
export function mistakes(given: Schema, resolve: Resolve, depth = 0): Json[] {
  const schema = resolved(given, resolve);
  const types = [schema, ...branchesOf(schema)].flatMap((each) => typesOf(resolved(each, resolve)));
  const found = types.length === 0 ? [] : MISTAKES.filter((value) => !types.includes(typeOf(value)));
  if ("maxLength" in schema) found.push("x".repeat(Number(schema.maxLength) + 1));
  if ("pattern" in schema || "enum" in schema || "format" in schema) found.push("\n");
  if ("minimum" in schema || "maximum" in schema) found.push(-1e9, 1e300);
  if (types.includes("object")) found.push({});
  if (depth < DEEPEST) {
    for (const each of [schema, ...branchesOf(schema).map((branch) => resolved(branch, resolve))]) {
      found.push(...mistakesInside(each, sample(schema, resolve), resolve, depth));
    }
  }
  return found.slice(0, MOST);
}

function* mistakesInside(schema: Schema, plain: Json, resolve: Resolve, depth: number): Generator<Json> {
  if ("items" in schema) for (const bad of mistakes(itemsOf(schema), resolve, depth + 1).slice(0, 4)) yield [bad];
  for (const [name, property] of propertiesOf(schema)) {
    const around = typeOf(plain) === "object" ? (plain as object) : {};
    for (const bad of mistakes(property, resolve, depth + 1).slice(0, 4)) yield { ...around, [name]: bad };
  }
}
