/**
 * The TypeScript type of a literal JSON Schema: what a value that fits it is, for the keywords that say so. What it cannot tell is
 * `unknown`, so that an author states a type there instead of being given a wrong one.
 */

/** Of what a client sends: no defaults are filled in. */
export type InputOf<S> = Value<S, never>;

/** Of `with` in the manifest: keys with a default are always there. */
export type ConfigOf<S> = Value<S, { readonly default: unknown }>;

/** `D` is what a property has that is there although it is not required. Keywords hold together, and a missing one says nothing. */
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

/** The keys of an object that fits: those that are required, and those that have a default where defaults count. */
type Present<P, S, D> =
  | (S extends { readonly required: readonly (infer R)[] } ? Extract<keyof P, R> : never)
  | { [K in keyof P]: [D] extends [never] ? never : P[K] extends D ? K : never }[keyof P];

/** One object instead of an intersection of some, for those who read it in an editor. */
type Flat<T> = T extends readonly unknown[] ? T : T extends object ? { [K in keyof T]: T[K] } : T;
