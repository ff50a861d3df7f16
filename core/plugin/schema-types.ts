/**
 * The TypeScript type of a literal JSON Schema: the type of a valid value, for the keywords that determine one. Anything else is
 * `unknown`, so that an author writes a type there instead of getting a wrong one.
 */

/** The type of what a client sends: defaults are not filled in. */
export type InputOf<S> = Value<S, never>;

/** The type of `with` in the manifest: keys with a default are always present. */
export type ConfigOf<S> = Value<S, { readonly default: unknown }>;

/** `D` matches schemas of properties that are present although not required. Keywords intersect, and a missing one has no effect. */
type Value<S, D> = S extends false ? never : Flat<Const<S> & Enum<S> & OneOfMany<S, D> & AllOf<S, D> & Typed<S, D>>;

type Const<S> = S extends { readonly const: infer V } ? V : unknown;
type Enum<S> = S extends { readonly enum: readonly (infer V)[] } ? V : unknown;
type OneOfMany<S, D> = S extends { readonly anyOf: readonly (infer M)[] } | { readonly oneOf: readonly (infer M)[] }
  ? M extends unknown
    ? Value<M, D>
    : never
  : unknown;
type AllOf<S, D> = S extends { readonly allOf: infer All } ? Every<All, D> : unknown;
type Every<All, D> = All extends readonly [infer First, ...infer Rest] ? Value<First, D> & Every<Rest, D> : unknown;

type Typed<S, D> = S extends { readonly type: infer T }
  ? T extends readonly (infer Each)[]
    ? OfType<Each, S, D>
    : OfType<T, S, D>
  : unknown;

type OfType<T, S, D> = T extends "string"
  ? string
  : T extends "number" | "integer"
    ? number
    : T extends "boolean"
      ? boolean
      : T extends "null"
        ? null
        : T extends "array"
          ? (S extends { readonly items: infer I } ? Value<I, D> : unknown)[]
          : T extends "object"
            ? Properties<S, D>
            : unknown;

type Properties<S, D> = S extends { readonly properties: infer P }
  ? { -readonly [K in Present<P, S, D>]: Value<P[K], D> } & {
      -readonly [K in Exclude<keyof P, Present<P, S, D>>]?: Value<P[K], D>;
    }
  : S extends { readonly additionalProperties: infer A extends object }
    ? Record<string, Value<A, D>>
    : Record<string, unknown>;

/** The keys that a valid object always has: those that are required, and those that have a default if defaults count. */
type Present<P, S, D> =
  | (S extends { readonly required: readonly (infer R)[] } ? Extract<keyof P, R> : never)
  | { [K in keyof P]: [D] extends [never] ? never : P[K] extends D ? K : never }[keyof P];

/** Flattens an intersection of objects into one object, which is easier to read in an editor. */
type Flat<T> = T extends readonly unknown[] ? T : T extends object ? { [K in keyof T]: T[K] } : T;
