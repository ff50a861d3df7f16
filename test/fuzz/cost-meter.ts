/** Tells work that grows faster than its input from work that does not, on a machine that others use too. */
import { LONG } from "../support/at-length.ts";

/** Bytes of the bodies that are tried one after the other: each four times as large as the one before. */
export const SIZES: readonly number[] = LONG ? [4_000, 16_000, 64_000, 256_000, 1_000_000] : [2_000, 8_000, 32_000];

/** Microseconds of a byte below which nobody has to ask how the work grows: a body of 1 MiB takes 0.1 s at most. */
const CHEAP = 0.1;
/** How much more four times as many bytes may cost: linear work takes four times as much, squares sixteen times. */
const MOST_GROWTH = 10;
/** Noise makes work look dearer, never cheaper: the least of several tries counts. */
const TRIES = 8;

interface Excess {
  bytes: number;
  milliseconds: number;
  /** How many times as much as for a quarter of it. */
  growth: number;
}

/** User and system time of this process, in microseconds. */
async function cost(work: () => unknown): Promise<number> {
  const before = process.cpuUsage();
  await work();
  const { user, system } = process.cpuUsage(before);
  return user + system;
}

/**
 * The first size at which it costs too much, or null.
 *
 * @param prepare makes a body of a size, and gives its bytes and the work to be measured, which can be done again
 */
export async function findExcess(
  prepare: (size: number) => { bytes: number; work: () => unknown },
  sizes: readonly number[] = SIZES,
): Promise<Excess | null> {
  let smaller: { bytes: number; work: () => unknown; least: number } | null = null;
  for (const size of sizes) {
    const { bytes, work } = prepare(size);
    let least = await cost(work);
    const isDear = () => least > bytes * CHEAP;
    const isSteep = () => smaller !== null && least > (smaller.least * MOST_GROWTH * bytes) / (4 * smaller.bytes);
    for (let tries = 0; tries < TRIES && isDear() && isSteep(); tries++) {
      least = Math.min(least, await cost(work));
      smaller!.least = Math.min(smaller!.least, await cost(smaller!.work));
    }
    if (smaller !== null && isDear() && isSteep())
      return { bytes, milliseconds: least / 1_000, growth: least / smaller.least };
    smaller = { bytes, work, least };
  }
  return null;
}
