/** Choices by chance that a seed repeats. */
import { createRandom } from "../crash/model.ts";

export interface Random {
  /** In [0, 1). */
  next(): number;
  /** A whole number in [0, bound). */
  below(bound: number): number;
  chance(probability: number): boolean;
  pick<T>(list: readonly T[]): T;
  /** One of the values, as often as its weight says. */
  weighted<T>(choices: readonly (readonly [weight: number, value: T])[]): T;
  bytes(length: number): Buffer;
}

export function randomOf(seed: number): Random {
  const next = createRandom(seed);
  const below = (bound: number) => Math.floor(next() * bound);
  return {
    next,
    below,
    chance: (probability) => next() < probability,
    pick: (list) => list[below(list.length)]!,
    weighted(choices) {
      let left = next() * choices.reduce((sum, [weight]) => sum + weight, 0);
      for (const [weight, value] of choices) {
        left -= weight;
        if (left < 0) return value;
      }
      return choices.at(-1)![1];
    },
    bytes: (length) => Buffer.from(Array.from({ length }, () => below(256))),
  };
}

/** The numbers of one run are far apart, so that case 1 of seed 2 is not case 2 of seed 1. */
export const caseSeed = (seed: number, index: number): number => (Math.imul(seed, 0x9e3779b1) + index) >>> 0;
