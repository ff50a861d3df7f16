/** Requests of one scenario that differ in a number, for example of the conversation or the user. */

/** Placeholder for the number in a path or a body; as long as the number, so that every request has the same length. */
export const MARKER = "#########";

/** Placeholder in the path of a second request for the id from the first reply. */
export const ID = "@@ID@@";

/** Placeholder in the header `idempotency-key` for a text that is unique to the request. */
export const KEY = "@@KEY@@";

export interface Numbers {
  /** Upper bound (exclusive) of the numbers. */
  below: number;
  /** `turn`: in cyclic order; `random`: at random. */
  pick: "turn" | "random";
}

/** Formats a number for a request. */
export const numeral = (number: number): string => String(number).padStart(MARKER.length, "0");

export const fill = (text: string, number: number): string => text.replaceAll(MARKER, numeral(number));

/** Returns the next number with each call. */
export function createPicker({ below, pick }: Numbers): () => number {
  let last = -1;
  return () => {
    last = pick === "random" ? Math.floor(Math.random() * below) : (last + 1) % below;
    return last;
  };
}
