/** Whether work grows faster than what it is given, told by processor time of sizes that are multiples of each other. */
import vm from "node:vm";

/** Sizes of texts; each is four times the one before. */
const SIZES = [256, 1024, 4096, 16_384];
const FACTOR = 4;
/** Work that doubles with a character or two shows itself here, and would never end with more. */
const SHORT_SIZES = [16, 20, 24];
/** Milliseconds of processor time for so short a text. */
const MOST_FOR_SHORT = 20;
/** Milliseconds of processor time below which nothing is said: noise, and cheap whatever it is. */
const NOISE = 2;
/** Between those of linear work, 4, and of quadratic work, 16. */
const STEEP = 9;
const TRIES = 5;
/** What grows too fast does so each time; a collection of garbage may fall into all tries of one look, and in a large heap of several. */
const LOOKS = 8;
const TRIES_OF_LOOK = 2;
/** Milliseconds after which work that does not end is cut off. */
const ENDLESS = 200_000;

/** @returns what was seen where `work` grows faster than its size; null where it does not */
export function superlinear(textOf: (length: number) => string, work: (text: string) => unknown): string | null {
  for (const size of SHORT_SIZES) {
    const text = textOf(size);
    if (costOf(text, work) > MOST_FOR_SHORT && leastCost(text, work) > MOST_FOR_SHORT)
      return `${size} characters take more than ${MOST_FOR_SHORT} ms`;
  }
  for (const size of SIZES) {
    const text = textOf(size);
    if (costOf(text, work) < NOISE) continue;
    const large = textOf(size * FACTOR);
    let seen: string | null = null;
    for (let look = 0; look < LOOKS; look++) {
      seen = steeper(text, large, work);
      if (seen === null) break;
    }
    if (seen !== null) return seen;
  }
  return null;
}

/** @returns what was seen where `large`, {@link FACTOR} times `text`, takes more than its share; each by its best of several tries */
function steeper(text: string, large: string, work: (text: string) => unknown): string | null {
  const small = leastCost(text, work, 0, TRIES_OF_LOOK);
  if (small < NOISE) return null;
  const most = leastCost(large, work, small * STEEP, TRIES_OF_LOOK);
  if (most < small * STEEP) return null;
  return `${text.length} characters take ${small.toFixed(1)} ms, ${large.length} take ${most.toFixed(1)} ms`;
}

/** Milliseconds of processor time, the least of several tries: others run on this machine too. @param enough a try below it settles the matter */
export function leastCost(text: string, work: (text: string) => unknown, enough = 0, tries = TRIES): number {
  let least = Number.POSITIVE_INFINITY;
  for (let attempt = 0; attempt < tries && least > enough; attempt++) least = Math.min(least, costOf(text, work));
  return least;
}

/** Milliseconds of processor time. */
function costOf(text: string, work: (text: string) => unknown): number {
  const { user, system } = process.cpuUsage();
  work(text);
  const after = process.cpuUsage();
  return (after.user - user + after.system - system) / 1000;
}

/** Runs `work` under V8's watchdog, which stops a regular expression in the middle. @returns whether it came to its end */
export function ends(work: () => void): boolean {
  const place = globalThis as { watched?: () => void };
  place.watched = work;
  try {
    new vm.Script("watched()").runInThisContext({ timeout: ENDLESS });
    return true;
  } catch (error) {
    if ((error as { code?: string }).code === "ERR_SCRIPT_EXECUTION_TIMEOUT") return false;
    throw error;
  } finally {
    delete place.watched;
  }
}
