/** Parses timestamps from clients: ISO 8601. */
import { invalid } from "./errors.ts";

const DAY = /^(\d{4})-(\d{2})-(\d{2})/;
/** A timestamp. In a query, an unescaped `+` before the zone has become a space. */
const INSTANT = /^(\d{4}-\d{2}-\d{2})(?:[Tt ](\d{2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?)(Z|z|[+ -]\d{2}(?::?\d{2})?)?)?$/;

/**
 * Milliseconds since 1970 of a timestamp such as `2026-11-20`, `2026-11-20T09:30:00Z` or `2026-11-20T10:30+01:00`. Without a
 * zone it is UTC.
 *
 * @param field for the message
 * @throws ServiceError `invalid_input` when the text is not such a timestamp
 */
export function parseInstant(field: string, text: string): number {
  const match = INSTANT.exec(text);
  if (match !== null && dayExists(text)) {
    const [, day, time = "00:00", zone = "Z"] = match;
    const at = Date.parse(`${day}T${time.replace(",", ".")}${normalizeZone(zone)}`);
    if (!Number.isNaN(at)) return at;
  }
  throw invalid(`${field} must be an ISO 8601 timestamp such as 2026-11-20T09:30:00Z`);
}

function normalizeZone(zone: string): string {
  if (zone === "Z" || zone === "z") return "Z";
  const digits = zone.slice(1).replace(":", "").padEnd(4, "0");
  return `${zone[0] === "-" ? "-" : "+"}${digits.slice(0, 2)}:${digits.slice(2)}`;
}

/** Whether the day exists: `Date.parse` reads the 30th of February as the 2nd of March. */
function dayExists(text: string): boolean {
  const [, year, month, day] = DAY.exec(text)!.map(Number);
  return month! >= 1 && month! <= 12 && day! >= 1 && day! <= new Date(Date.UTC(year!, month!, 0)).getUTCDate();
}
