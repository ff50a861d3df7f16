/** The values that the work of a step has recorded while it ran. */

interface Keeps {
  kept: unknown[];
  hasStreamed: boolean;
}

export const NOTHING_KEPT = Object.freeze([]) as unknown as unknown[];

export function keepValue(step: Keeps, value: unknown): void {
  if (step.kept === NOTHING_KEPT) step.kept = [];
  step.kept.push(value);
}

/** Forgets the values when the step starts anew. */
export function forgetKept(step: Keeps): void {
  step.kept = NOTHING_KEPT;
  step.hasStreamed = false;
}
