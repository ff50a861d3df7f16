/** JSON text that was serialised before the reply that contains it. */

/** Text, or its bytes in UTF-8: large texts are bytes, which the garbage collector does not copy. */
export type Text = string | Uint8Array;

export const joinTexts = (texts: readonly Text[]): string =>
  texts
    .map((text) =>
      typeof text === "string" ? text : Buffer.from(text.buffer, text.byteOffset, text.length).toString(),
    )
    .join("");

/** The JSON text of a payload, to be put into the envelope of the reply as it is. */
export class Serialized {
  /** Concatenated, they are the text. */
  readonly pieces: readonly Text[];
  constructor(...pieces: readonly Text[]) {
    this.pieces = pieces;
  }
  get json(): string {
    return joinTexts(this.pieces);
  }
}
