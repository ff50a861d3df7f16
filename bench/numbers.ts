/** Requests of one scenario that differ in a number: which conversation, which user. */

/** Stands in a path or a body where the number goes; as long as the number, so that every request has the same length. */
export const MARKER = "#########";

/** Stands in the path of a second request where the id goes that the first one gave. */
export const ID = "@@ID@@";

/** Stands in the header `idempotency-key` where a text goes that no other request has. */
export const KEY = "@@KEY@@";

export interface Numbers {
  /** Numbers are below this. */
  below: number;
  /** One after another and round again, or by chance. */
  pick: "turn" | "random";
}

/** A number as it stands in a request. */
export const numeral = (number: number): string => String(number).padStart(MARKER.length, "0");

export const fill = (text: string, number: number): string => text.replaceAll(MARKER, numeral(number));

/** Gives the next number each time. */
export function createPicker({ below, pick }: Numbers): () => number {
  let last = -1;
  return () => {
    last = pick === "random" ? Math.floor(Math.random() * below) : (last + 1) % below;
    return last;
  };
}
