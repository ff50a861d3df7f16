/** A real WebSocket client whose messages are read one by one. */
import type { IncomingMessage } from "node:http";
import { type ClientOptions, WebSocket } from "ws";

/** Milliseconds; only a hang takes so long. */
const HANG_MS = 240_000;

interface Closed {
  code: number;
  reason: string;
}

interface Refused {
  status: number;
  /** Names in lower case. */
  headers: Record<string, string>;
  body: string;
}

export class TestSocket {
  readonly socket: WebSocket;
  /** Headers of the 101. */
  headers: Record<string, string> = {};
  readonly closed: Promise<Closed>;
  /** Texts that have arrived and were not read. */
  readonly waiting: string[] = [];
  #arrived: (() => void)[] = [];
  #end: Closed | null = null;

  constructor(socket: WebSocket) {
    this.socket = socket;
    socket.on("message", (data) => {
      this.waiting.push(data.toString());
      for (const tell of this.#arrived.splice(0)) tell();
    });
    socket.on("error", () => {});
    this.closed = new Promise((resolve) => {
      socket.once("close", (code, reason) => {
        this.#end = { code, reason: reason.toString() };
        resolve(this.#end);
        for (const tell of this.#arrived.splice(0)) tell();
      });
    });
  }

  send(value: unknown): void {
    this.socket.send(typeof value === "string" ? value : JSON.stringify(value));
  }

  /** The next message, parsed. Rejects when the socket closes before it comes, or it does not come at all. */
  // biome-ignore lint/suspicious/noExplicitAny: a message is whatever the test expects it to be
  async next(): Promise<any> {
    await this.until(() => this.waiting.length > 0, "a message");
    return JSON.parse(this.waiting.shift()!);
  }

  async until(holds: () => boolean, what: string): Promise<void> {
    const deadline = Date.now() + HANG_MS;
    while (!holds()) {
      if (this.#end !== null) throw new Error(`closed before ${what}: ${this.#end.code} ${this.#end.reason}`);
      const left = deadline - Date.now();
      if (left <= 0) throw new Error(`there was no ${what}`);
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, left);
        this.#arrived.push(() => {
          clearTimeout(timer);
          resolve();
        });
      });
    }
  }

  async close(): Promise<Closed> {
    this.socket.close();
    return this.closed;
  }
}

/** Connects; rejects with what is in `Refused`, as an error, when the handshake is refused. */
export async function openSocket(
  url: string,
  options: ClientOptions = {},
  protocols: string[] = [],
): Promise<TestSocket> {
  const answer = await connect(url, options, protocols);
  if (answer instanceof TestSocket) return answer;
  throw new Error(`refused: ${answer.status} ${answer.body}`);
}

/** The refusal of a handshake; rejects when it is none. */
export async function refusedSocket(url: string, options: ClientOptions = {}): Promise<Refused> {
  const answer = await connect(url, options, []);
  if (!(answer instanceof TestSocket)) return answer;
  answer.socket.terminate();
  throw new Error("the handshake was not refused");
}

function connect(url: string, options: ClientOptions, protocols: string[]): Promise<TestSocket | Refused> {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url.replace(/^http/, "ws"), protocols, { perMessageDeflate: false, ...options });
    const opened = new TestSocket(socket);
    socket.once("upgrade", ({ headers }) => {
      opened.headers = headers as Record<string, string>;
    });
    socket.once("open", () => resolve(opened));
    socket.once("unexpected-response", (request, response) => {
      read(response).then((refused) => {
        request.destroy();
        resolve(refused);
      }, reject);
    });
    socket.once("error", reject);
  });
}

async function read(response: IncomingMessage): Promise<Refused> {
  let body = "";
  for await (const chunk of response.setEncoding("utf8")) body += chunk;
  return { status: response.statusCode ?? 0, headers: response.headers as Record<string, string>, body };
}
