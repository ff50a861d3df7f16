/** Sizes as people write them: `64KiB`, `1MiB`, plain bytes. */

const BYTES: Readonly<Record<string, number>> = { B: 1, KiB: 1_024, MiB: 1_048_576, GiB: 1_073_741_824 };

/**
 * Number of bytes of a size.
 *
 * @throws Error when the value is not a size
 */
export function parseSize(value: string | number): number {
  if (typeof value === "number") return value;
  const [, digits, unit = "B"] = /^(\d{1,12})(B|KiB|MiB|GiB)?$/.exec(value) ?? [];
  if (digits === undefined)
    throw new Error(`${JSON.stringify(value)} is not a size: write bytes, or a number and KiB, MiB or GiB`);
  return Number(digits) * BYTES[unit]!;
}

/** Formats bytes in the largest unit of which they are an integer multiple. */
export function formatSize(bytes: number): string {
  const units = Object.entries(BYTES).reverse();
  const [unit, size] = units.find(([, each]) => bytes >= each && bytes % each === 0) ?? ["B", 1];
  return `${bytes / size} ${unit}`;
}

export const jsonBytes = (value: unknown): number => Buffer.byteLength(JSON.stringify(value) ?? "");
