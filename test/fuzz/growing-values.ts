/** JSON texts that grow at one place of a schema: valid ones, and ones with a mistake at the beginning, the end, everywhere. */
import { LONG } from "../support/at-length.ts";
import {
  branchesOf,
  itemsOf,
  type Json,
  mistakes,
  propertiesOf,
  type Resolve,
  resolved,
  restOf,
  type Schema,
  sample,
  typesOf,
} from "./schema-values.ts";

export interface Growth {
  /** What grows, and how: `messages[].content: items {} everywhere`. */
  readonly title: string;
  /** A text of about so many bytes. */
  text(size: number): string;
}

/** Where a value stands: what is around it. */
interface Place {
  readonly name: string;
  around(value: Json): Json;
}

interface Walk {
  readonly resolve: Resolve;
  /** False for what is not to be looked into again. */
  enter(schema: Schema): boolean;
}

/** Levels of a tower: beyond 128, bodies are refused as they are read. */
const TOWER = 100;
/** Texts that something may be slow at: the first few in every run. */
const ALL_LETTERS = ["a", "a ", "{{", "-eyJ", "!", "/", "0", "=", ",", "[", "\\", "\n", "😀", "~1"];
const LETTERS = LONG ? ALL_LETTERS : ALL_LETTERS.slice(0, 4);
/** Stands for a number whose digits JavaScript would not keep. */
const NUMBER = "@number@";

/** @param names values that properties of these names should have at the top, such as ids of what exists */
export function* growthsOf(
  root: Schema,
  resolve: Resolve,
  names: Readonly<Record<string, Json>> = {},
): Generator<Growth> {
  const top = resolved(root, resolve);
  const known = propertiesOf(top).filter(([name]) => name in names);
  const given = Object.fromEntries(known.map(([name]) => [name, names[name]]));
  const around = (value: Json) => (isObject(value) ? { ...given, ...value } : value);
  yield* growAt(root, { name: "", around }, followOnce(resolve));
}

/** What is referred to is looked into where it is first met: schemas that are recursive would have no end. */
function followOnce(resolve: Resolve): Walk {
  const met = new Set<unknown>();
  const enter = ({ $ref }: Schema): boolean => {
    if ($ref === undefined) return true;
    const isNew = !met.has($ref);
    met.add($ref);
    return isNew;
  };
  return { resolve, enter };
}

const isObject = (value: Json): value is object => typeof value === "object" && value !== null && !Array.isArray(value);

function* growAt(given: Schema, place: Place, walk: Walk): Generator<Growth> {
  if (!walk.enter(given)) return;
  const { resolve } = walk;
  const schema = resolved(given, resolve);
  const types = typesOf(schema);
  const allows = (type: string) => types.length === 0 || types.includes(type);
  for (const branch of branchesOf(schema)) yield* growAt(branch, place, walk);
  // What may be anything is asked once, and not for what its branches have said.
  if (types.length === 0 && branchesOf(schema).length > 0) return;
  if (allows("array")) {
    yield* lists(schema, place, resolve);
    if ("items" in schema) {
      const inside = { name: `${place.name}[]`, around: (value: Json) => place.around([value]) };
      yield* growAt(itemsOf(schema), inside, walk);
    }
  }
  if (allows("object")) {
    yield* maps(schema, place, resolve);
    const plain = sample(schema, resolve);
    const rest = Object.keys(restOf(schema)).length > 0 ? [["any", restOf(schema)] as [string, Schema]] : [];
    for (const [name, property] of [...propertiesOf(schema), ...rest]) {
      const put = (value: Json) => place.around({ ...(isObject(plain) ? plain : {}), [name]: value });
      yield* growAt(property, { name: place.name === "" ? name : `${place.name}.${name}`, around: put }, walk);
    }
  }
  if (allows("string")) yield* texts(place);
  if (allows("number")) yield* numbers(place);
}

const sizeOf = (value: Json): number => Buffer.byteLength(JSON.stringify(value) ?? "") + 1;

const fill = (size: number, item: Json): Json[] =>
  Array.from({ length: Math.max(1, Math.floor(size / sizeOf(item))) }, () => item);

function* grown(place: Place, how: string, make: (size: number) => Json): Generator<Growth> {
  yield { title: `${place.name || "body"}: ${how}`, text: (size) => JSON.stringify(place.around(make(size))) };
}

const shown = (value: Json) => JSON.stringify(value).slice(0, 60);

function* lists(schema: Schema, place: Place, resolve: Resolve): Generator<Growth> {
  const items = itemsOf(schema);
  const good = sample(items, resolve);
  const bad = mistakes(items, resolve);
  const most = Number(schema.maxItems ?? Number.POSITIVE_INFINITY);
  yield* grown(place, "items", (size) => fill(size, good));
  for (const [index, item] of [...bad, ...(bad.length === 0 ? [{}, [], 1] : [])].entries()) {
    yield* grown(place, `items ${shown(item)} everywhere`, (size) => fill(size, item));
    if (index > 2) continue;
    yield* grown(place, `items, ${shown(item)} at the beginning`, (size) => [item, ...fill(size, good)]);
    yield* grown(place, `items, ${shown(item)} at the end`, (size) => [...fill(size, good), item]);
    if (most < 10_000)
      yield* grown(place, `as many items ${shown(item)} as allowed`, (size) => fill(size, item).slice(0, most));
  }
  const tower = JSON.parse("[".repeat(TOWER) + "]".repeat(TOWER)) as Json;
  yield* grown(place, "towers of lists", (size) => fill(size, tower));
}

const keyed = (values: readonly Json[]): Json => Object.fromEntries(values.map((value, index) => [`k${index}`, value]));

function* maps(schema: Schema, place: Place, resolve: Resolve): Generator<Growth> {
  const rest = restOf(schema);
  const plain = sample(schema, resolve);
  const beside = (map: Json): Json => ({ ...(isObject(plain) ? plain : {}), ...(map as object) });
  // Each has a key of some five characters before it.
  const many = (size: number, value: Json) => fill(size / 2, value);
  const good = sample(rest, resolve);
  yield* grown(place, "keys", (size) => beside(keyed(many(size, good))));
  yield* grown(place, "one long key", (size) => beside({ ["k".repeat(size)]: good }));
  yield* grown(place, "one long key of ~ and /", (size) => beside({ ["~/".repeat(size / 2)]: 1 }));
  for (const value of [...mistakes(rest, resolve).slice(0, 3), {}, [1]]) {
    yield* grown(place, `keys, ${shown(value)} everywhere`, (size) => beside(keyed(many(size, value))));
    yield* grown(place, `keys, ${shown(value)} at the beginning`, (size) =>
      beside(keyed([value, ...many(size, good)])),
    );
    yield* grown(place, `keys, ${shown(value)} at the end`, (size) => beside(keyed([...many(size, good), value])));
  }
  const tower = JSON.parse(`${'{"a":'.repeat(TOWER)}1${"}".repeat(TOWER)}`) as Json;
  yield* grown(place, "towers of maps", (size) => beside(keyed(fill(size, tower))));
}

function* texts(place: Place): Generator<Growth> {
  for (const letters of LETTERS) {
    const long = (size: number) => letters.repeat(Math.max(1, Math.floor(size / sizeOf(letters))));
    yield* grown(place, `text of ${shown(letters)}`, long);
  }
  yield* grown(place, 'text of "a", "!" at the beginning', (size) => `!${"a".repeat(size)}`);
  yield* grown(place, 'text of "a", "!" at the end', (size) => `${"a".repeat(size)}!`);
}

function* numbers(place: Place): Generator<Growth> {
  const forms: [string, (size: number) => string][] = [
    ["digits", (size) => "7".repeat(size)],
    ["digits behind the point", (size) => `0.${"7".repeat(size)}`],
    ["digits of an exponent", (size) => `1e-${"7".repeat(size)}`],
  ];
  for (const [how, digits] of forms) {
    const text = (size: number) => JSON.stringify(place.around(NUMBER)).replace(JSON.stringify(NUMBER), digits(size));
    yield { title: `${place.name}: number of many ${how}`, text };
  }
}
