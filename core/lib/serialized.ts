/** JSON text that was made ahead of the reply it goes into. */

/** Text, or its bytes in UTF-8: large ones as bytes, which garbage collection does not copy around. */
export type Text = string | Uint8Array;

export const joinTexts = (texts: readonly Text[]): string =>
  texts
    .map((text) =>
      typeof text === "string" ? text : Buffer.from(text.buffer, text.byteOffset, text.length).toString(),
    )
    .join("");

/** JSON text of a payload that was serialised ahead, to be put into the envelope as it is. */
export class Serialized {
  /** They follow each other. */
  readonly pieces: readonly Text[];
  constructor(...pieces: readonly Text[]) {
    this.pieces = pieces;
  }
  get json(): string {
    return joinTexts(this.pieces);
  }
}
