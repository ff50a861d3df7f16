/** Spoils what is well formed: values at a place in their structure, text and bytes anywhere. */
import type { Random } from "./random.ts";

const nested = (depth: number): unknown => (depth === 0 ? 1 : [nested(depth - 1)]);

/** Made when asked for: some are large. */
const ODD: readonly (() => unknown)[] = [
  () => null,
  () => true,
  () => -1,
  () => 0.1,
  () => 1e308,
  () => Number.MAX_SAFE_INTEGER + 1,
  () => "",
  () => "\u0000",
  () => "\ud800",
  () => "é".repeat(300),
  () => "x".repeat(70_000),
  () => "__proto__",
  () => "../../etc/passwd",
  () => "{{ input }}",
  () => "a\r\nb: c",
  () => [],
  () => ({}),
  () => nested(60),
  () => nested(140),
  () => Array.from({ length: 300 }, () => ({})),
  () => Array.from({ length: 300 }, (_, index) => index),
  () => Object.fromEntries(Array.from({ length: 300 }, (_, index) => [`k${index}`, index])),
  () => ({ toString: 1, constructor: { prototype: {} }, then: "x", length: -1 }),
  () => JSON.parse('{"__proto__": {"polluted": true}}'),
];

interface Place {
  readonly holder: Record<string, unknown>;
  readonly key: string;
}

function placesOf(value: unknown, found: Place[] = []): Place[] {
  if (typeof value !== "object" || value === null || found.length > 500) return found;
  for (const key of Object.keys(value)) {
    found.push({ holder: value as Record<string, unknown>, key });
    placesOf((value as Record<string, unknown>)[key], found);
  }
  return found;
}

/** Changes one place, or the whole value. */
export function mutateValue(random: Random, root: unknown): unknown {
  const places = placesOf(root);
  if (places.length === 0 || random.chance(0.05)) return random.pick(ODD)();
  const { holder, key } = random.pick(places);
  const value = holder[key];
  random.pick<() => void>([
    () => put(holder, key, random.pick(ODD)()),
    () => put(holder, key, random.pick(ODD)()),
    () => put(holder, key, random.pick(ODD)()),
    () => void delete holder[key],
    () => put(holder, key, [value]),
    () => put(holder, key, { [key]: value }),
    () => put(holder, `${key}x`, value),
    () => put(holder, random.pick(["__proto__", "constructor", "", "\u0000", "a.b"]), value),
    () => put(holder, key, random.pick(places).holder[random.pick(places).key]),
    () => put(holder, key, typeof value === "string" ? mutateText(random, value) : encode(value)),
  ])();
  return root;
}

const put = (holder: Record<string, unknown>, key: string, value: unknown): void => {
  Object.defineProperty(holder, key, { value, enumerable: true, writable: true, configurable: true });
};

/** A value may have been put into itself. */
export function encode(value: unknown): string {
  try {
    return JSON.stringify(value) ?? "";
  } catch {
    return '{"a":';
  }
}

export function mutateText(random: Random, text: string): string {
  return mutateBytes(random, Buffer.from(text)).toString("latin1");
}

const MARKS = Buffer.from('"{}[],:\\/ \t\r\n\0-+eE.0123456789%&=?#;\xff\xc3\xed\xa0', "latin1");

export function mutateBytes(random: Random, bytes: Buffer): Buffer {
  const at = random.below(bytes.length + 1);
  const span = Math.min(
    random.weighted([
      [4, 1],
      [2, 4],
      [1, 64],
    ]),
    bytes.length - at,
  );
  const [before, middle, after] = [bytes.subarray(0, at), bytes.subarray(at, at + span), bytes.subarray(at + span)];
  const put = (...pieces: Buffer[]) => Buffer.concat([before, ...pieces, after]);
  return random.pick<() => Buffer>([
    () => put(),
    () => put(middle, middle),
    () => put(random.bytes(span)),
    () => put(middle, Buffer.from([random.pick([...MARKS])])),
    () => Buffer.from(before),
    () => put(Buffer.from(middle).reverse()),
    () => {
      const flipped = Buffer.from(bytes);
      if (at < flipped.length) flipped[at] = flipped[at]! ^ (1 << random.below(8));
      return flipped;
    },
  ])();
}
