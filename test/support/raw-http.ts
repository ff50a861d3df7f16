/** A client below HTTP: sends the bytes it is given, keeps the bytes it gets. */
import { connect, type Socket } from "node:net";

export interface RawReply {
  status: number;
  /** Names in lower case. */
  headers: Record<string, string>;
  body: string;
}

/** How long to wait for what must happen; only a hang takes so long. */
const HANG_MS = 240_000;

export class RawClient {
  readonly socket: Socket;
  /** All bytes received, one character each. */
  received = "";
  /** Settles when the connection is over, whatever ended it. */
  readonly closed: Promise<void>;
  isClosed = false;
  #changed: (() => void)[] = [];

  private constructor(socket: Socket) {
    this.socket = socket;
    socket.setNoDelay(true);
    socket.on("data", (chunk) => {
      this.received += chunk.toString("latin1");
      this.#notify();
    });
    socket.on("error", () => {});
    this.closed = new Promise((resolve) => {
      socket.once("close", () => {
        this.isClosed = true;
        resolve();
        this.#notify();
      });
    });
  }

  static open(port: number): Promise<RawClient> {
    return new Promise((resolve, reject) => {
      const socket = connect(port, "127.0.0.1");
      socket.once("error", reject);
      socket.once("connect", () => resolve(new RawClient(socket)));
    });
  }

  /** Sends the pieces as segments of their own: 30 ms apart. */
  async send(...pieces: (string | Uint8Array)[]): Promise<void> {
    for (const [index, piece] of pieces.entries()) {
      if (index > 0) await sleep(30);
      if (!this.socket.destroyed) this.socket.write(typeof piece === "string" ? Buffer.from(piece, "latin1") : piece);
    }
  }

  /** Waits until `holds` does, or the connection is over. Throws when neither happens. */
  async until(holds: (received: string) => boolean, patience = HANG_MS): Promise<void> {
    const deadline = Date.now() + patience;
    while (!holds(this.received) && !this.isClosed) {
      const left = deadline - Date.now();
      if (left <= 0) throw new Error(`nothing happened; received ${JSON.stringify(this.received.slice(0, 500))}`);
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, left);
        this.#changed.push(() => {
          clearTimeout(timer);
          resolve();
        });
      });
    }
  }

  /** Waits for `count` whole replies and gives all that came. */
  async replies(count = 1, heads = false): Promise<RawReply[]> {
    await this.until((received) => parseReplies(received, heads).length >= count);
    return parseReplies(this.received, heads);
  }

  async reply(): Promise<RawReply> {
    const [first] = await this.replies(1);
    if (first === undefined) throw new Error(`closed without a reply: ${JSON.stringify(this.received.slice(0, 500))}`);
    return first;
  }

  close(): void {
    this.socket.destroy();
  }

  #notify(): void {
    for (const change of this.#changed.splice(0)) change();
  }
}

/** Whole replies in `text`, in order; interim ones (1xx) are left out. `heads` says that no reply has a body. */
export function parseReplies(text: string, heads = false): RawReply[] {
  const replies: RawReply[] = [];
  let rest = text;
  for (;;) {
    const end = rest.indexOf("\r\n\r\n");
    if (end < 0) return replies;
    const [line, ...lines] = rest.slice(0, end).split("\r\n");
    const status = Number(line!.split(" ")[1]);
    const headers: Record<string, string> = Object.create(null);
    for (const each of lines) {
      const colon = each.indexOf(":");
      headers[each.slice(0, colon).toLowerCase()] = each.slice(colon + 1).trim();
    }
    rest = rest.slice(end + 4);
    if (status < 200) continue;
    const taken = heads || status === 204 || status === 304 ? { body: "", size: 0 } : takeBody(rest, headers);
    if (taken === null) return replies;
    replies.push({ status, headers, body: taken.body });
    rest = rest.slice(taken.size);
  }
}

function takeBody(text: string, headers: Record<string, string>): { body: string; size: number } | null {
  if (headers["transfer-encoding"] === "chunked") return takeChunks(text);
  // A refusal of a parser may have no length: its connection ends with it.
  if (headers["content-length"] === undefined) return { body: text, size: text.length };
  const size = Number(headers["content-length"]);
  return text.length < size ? null : { body: text.slice(0, size), size };
}

function takeChunks(text: string): { body: string; size: number } | null {
  let at = 0;
  let body = "";
  for (;;) {
    const end = text.indexOf("\r\n", at);
    if (end < 0) return null;
    const size = Number.parseInt(text.slice(at, end), 16);
    if (Number.isNaN(size)) throw new Error(`bad chunk size in ${JSON.stringify(text.slice(at, at + 50))}`);
    if (text.length < end + 2 + size + 2) return null;
    body += text.slice(end + 2, end + 2 + size);
    at = end + 2 + size + 2;
    if (size === 0) return { body, size: at };
  }
}

export const sleep = (milliseconds: number) => new Promise<void>((resolve) => setTimeout(resolve, milliseconds));
