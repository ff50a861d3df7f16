/** Formats timestamps of the API. A record has a dozen of them, and `Date.prototype.toISOString` takes several times as long. */

/** In seconds. */
const DAY = 86_400;
const TWO: readonly string[] = Array.from({ length: 100 }, (_, value) => String(value).padStart(2, "0"));
const MILLISECONDS: readonly string[] = Array.from(
  { length: 1000 },
  (_, value) => `.${String(value).padStart(3, "0")}Z`,
);

/** @param at milliseconds since 1970 as an integer, not before 1970 and not after the year 9999 */
export const isoTime = isoTimes();

/** Most times that are formatted one after the other are of the same second: its text is kept. */
function isoTimes(): (at: number) => string {
  let latest = -1;
  let text = "";
  return (at) => {
    const second = Math.floor(at / 1000);
    if (second !== latest) text = isoSecond(second);
    latest = second;
    return text + MILLISECONDS[at - second * 1000];
  };
}

function isoSecond(at: number): string {
  const days = Math.floor(at / DAY);
  // From here on all numbers are small: `| 0` truncates, and keeps the arithmetic to integers.
  const time = at - days * DAY;
  const minutes = (time / 60) | 0;
  const hours = (minutes / 60) | 0;
  return `${isoDate(days)}T${TWO[hours]}:${TWO[minutes - hours * 60]}:${TWO[time - minutes * 60]}`;
}

/** Counts years from March, so that the leap day is the last day of a year; year 0 of this count began 719468 days before 1970. */
function isoDate(days: number): string {
  const since = days + 719_468;
  const era = (since / 146_097) | 0;
  const ofEra = since - era * 146_097;
  const leaps = ((ofEra / 1460) | 0) - ((ofEra / 36_524) | 0) + ((ofEra / 146_096) | 0);
  const yearOfEra = ((ofEra - leaps) / 365) | 0;
  const ofYear = ofEra - (365 * yearOfEra + ((yearOfEra / 4) | 0) - ((yearOfEra / 100) | 0));
  const march = ((5 * ofYear + 2) / 153) | 0;
  const month = march < 10 ? march + 3 : march - 9;
  const year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0);
  return `${year}-${TWO[month]}-${TWO[ofYear - (((153 * march + 2) / 5) | 0) + 1]}`;
}
