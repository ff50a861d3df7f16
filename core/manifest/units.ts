/** Durations and sizes as people write them. */

const MILLISECONDS: Record<string, number> = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const BYTES: Record<string, number> = { B: 1, KiB: 1_024, MiB: 1_048_576, GiB: 1_073_741_824 };

/** `250ms`, `5s`, `2m`, `12h`, `30d` in milliseconds; null when the text is no duration. */
export function parseDuration(text: string): number | null {
  const match = /^(\d{1,9}(?:\.\d{1,3})?)(ms|s|m|h|d)$/.exec(text);
  return match === null ? null : Math.round(Number(match[1]) * MILLISECONDS[match[2]!]!);
}

/** `64KiB`, `1MiB` or plain bytes in bytes; null when it is no size. */
export function parseSize(value: string | number): number | null {
  if (typeof value === "number") return Number.isInteger(value) && value >= 0 ? value : null;
  const match = /^(\d{1,12})(B|KiB|MiB|GiB)?$/.exec(value);
  return match === null ? null : Number(match[1]) * BYTES[match[2] ?? "B"]!;
}
