/** JSON that was serialized before the reply it becomes part of. */
/** Text, or its bytes in UTF-8. Large texts are kept as bytes, which the garbage collector does not copy. */
export type Text = string | Uint8Array;

export const joinTexts = (texts: readonly Text[]): string =>
  texts
    .map((text) =>
      typeof text === "string" ? text : Buffer.from(text.buffer, text.byteOffset, text.length).toString(),
    )
    .join("");

/** A payload that is JSON text already, to be put into the envelope as it is. */
export class Serialized {
  /** The text in consecutive pieces. */
  readonly pieces: readonly Text[];
  constructor(...pieces: readonly Text[]) {
    this.pieces = pieces;
  }
  get json(): string {
    return joinTexts(this.pieces);
  }
}
