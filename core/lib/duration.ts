/** Durations as people write them: `250ms`, `5s`, `2m`, `24h`, `30d`. */

const UNITS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const SHAPE = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/;

/** The pattern of a duration in a JSON Schema. */
export const DURATION_PATTERN = SHAPE.source;

/**
 * Milliseconds of a duration, as an integer.
 *
 * @throws Error when the text is not a duration; the message quotes the text and shows the format.
 */
export function parseDuration(text: string): number {
  const match = SHAPE.exec(text);
  const unit = match === null ? undefined : UNITS[match[2]!];
  if (match === null || unit === undefined) {
    throw new Error(`${JSON.stringify(text)} is not a duration: write a number and ms, s, m, h or d, like "5s"`);
  }
  return Math.round(Number(match[1]) * unit);
}

/** Formats milliseconds for messages: `60s`, `250ms`. */
export function formatDuration(milliseconds: number): string {
  return milliseconds % 1000 === 0 ? `${milliseconds / 1000}s` : `${milliseconds}ms`;
}
