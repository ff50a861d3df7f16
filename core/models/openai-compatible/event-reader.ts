/** Reads server-sent events from chunks that are split anywhere; skips a byte order mark. Only `data` fields are read. */
import { StringDecoder } from "node:string_decoder";

const LINE_FEED = 10;
const SPACE = 32;
const COLON = 58;
const FIELD = "data";

export class EventReader {
  readonly #receive: (data: string) => void;
  readonly #decoder = new StringDecoder("utf8");
  /** The pieces of an incomplete line: joined only once, so that a long line costs time in proportion to its length. */
  #pieces: string[] = [];
  /** The data of an incomplete event. */
  #data: string | null = null;
  /** Whether the last line ended with a carriage return: then a following line feed belongs to it. */
  #afterReturn = false;

  /** @param receive called with the data of each event */
  constructor(receive: (data: string) => void) {
    this.#receive = receive;
  }

  push(chunk: Buffer): void {
    this.#read(this.#decoder.write(chunk));
  }

  /** The data of a last event without a closing empty line, which some servers omit; null if there is none. */
  end(): string | null {
    this.#read(this.#decoder.end());
    if (this.#pieces.length > 0) this.#endLine("", 0, 0);
    const data = this.#data;
    this.#data = null;
    return data;
  }

  #read(text: string): void {
    if (text === "") return;
    let from = 0;
    if (this.#afterReturn && text.charCodeAt(from) === LINE_FEED) from++;
    this.#afterReturn = false;
    let feed = text.indexOf("\n", from);
    let carriage = text.indexOf("\r", from);
    while (feed !== -1 || carriage !== -1) {
      const end = carriage === -1 || (feed !== -1 && feed < carriage) ? feed : carriage;
      this.#endLine(text, from, end);
      from = end + 1;
      if (end === carriage) {
        if (feed === from) from++;
        else if (from === text.length) this.#afterReturn = true;
        carriage = text.indexOf("\r", from);
      }
      if (feed !== -1 && feed < from) feed = text.indexOf("\n", from);
    }
    if (from < text.length) this.#pieces.push(text.slice(from));
  }

  #endLine(text: string, from: number, end: number): void {
    if (this.#pieces.length === 0) {
      this.#line(text, from, end);
      return;
    }
    this.#pieces.push(text.slice(from, end));
    const line = this.#pieces.join("");
    this.#pieces = [];
    this.#line(line, 0, line.length);
  }

  #line(text: string, from: number, end: number): void {
    if (from === end) {
      const data = this.#data;
      this.#data = null;
      if (data !== null) this.#receive(data);
      return;
    }
    if (!text.startsWith(FIELD, from)) return;
    let start = from + FIELD.length;
    if (start < end) {
      if (text.charCodeAt(start) !== COLON) return;
      start++;
      if (start < end && text.charCodeAt(start) === SPACE) start++;
    }
    const value = text.slice(start, end);
    this.#data = this.#data === null ? value : `${this.#data}\n${value}`;
  }
}
