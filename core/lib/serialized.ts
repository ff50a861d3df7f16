/** JSON that is serialized before the reply of which it becomes a part. */
/** Text, or its bytes in UTF-8. Large texts are kept as bytes, which the garbage collector does not copy. */
export type Text = string | Uint8Array;

export const joinTexts = (texts: readonly Text[]): string =>
  texts
    .map((text) =>
      typeof text === "string" ? text : Buffer.from(text.buffer, text.byteOffset, text.length).toString(),
    )
    .join("");

/** A payload that is JSON text already, and is inserted into the envelope unchanged. */
export class Serialized {
  /** The text in consecutive pieces. */
  readonly pieces: readonly Text[];
  constructor(...pieces: readonly Text[]) {
    this.pieces = pieces;
  }
  get json(): string {
    return joinTexts(this.pieces);
  }
  /** The whole text, for a caller in the same process. */
  async whole(): Promise<string> {
    return this.json;
  }
}

/** JSON text that is too large to be held in memory: each piece is made when the previous one has been sent. */
export class SerializedStream extends Serialized {
  readonly stream: AsyncIterable<string>;
  constructor(stream: AsyncIterable<string>) {
    super();
    this.stream = stream;
  }
  override get json(): string {
    throw new Error("this text comes in pieces: read its stream");
  }
  override async whole(): Promise<string> {
    let text = "";
    for await (const piece of this.stream) text += piece;
    return text;
  }
}

/** Longer texts become separate pieces, so that they need not be copied. */
const LONG_TEXT = 16 * 1024;

/** The texts with commas between them. */
export async function* joined(groups: AsyncIterable<readonly string[]>): AsyncGenerator<string, void> {
  let separator = "";
  for await (const texts of groups) {
    let piece = "";
    for (const text of texts) {
      piece += separator;
      separator = ",";
      if (text.length < LONG_TEXT) {
        piece += text;
        continue;
      }
      if (piece !== "") yield piece;
      yield text;
      piece = "";
    }
    if (piece !== "") yield piece;
  }
}

export async function* between(
  begin: string,
  stream: AsyncIterable<string>,
  end: string,
): AsyncGenerator<string, void> {
  yield begin;
  yield* stream;
  yield end;
}
