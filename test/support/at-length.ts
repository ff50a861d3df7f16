/** Searches that take some of all there is to try in the normal run, and far more of it with `npm run test:fuzz`. */

export const LONG = process.env.PENSTOCK_FUZZ === "long";

/** So many of them at most, evenly from all, the first among these. */
export function spread<T>(all: readonly T[], most: number): T[] {
  const step = Math.max(1, all.length / most);
  return Array.from({ length: Math.min(all.length, most) }, (_, index) => all[Math.floor(index * step)]!);
}
