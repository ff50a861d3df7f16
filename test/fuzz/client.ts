/** Sends a case and says what is wrong with what came back. */
import { setTimeout as sleep } from "node:timers/promises";
import { parseReplies, RawClient, type RawReply } from "../support/raw-http.ts";
import type { FrameCase } from "./frames.ts";
import type { FramingCase } from "./framing.ts";
import type { RequestCase } from "./requests.ts";
import { judgeEvents, judgeFrames, judgeReply } from "./verdict.ts";

export type Case = RequestCase | FramingCase | FrameCase;

/** Milliseconds until what must come is missed: only a hang takes so long. */
const PATIENCE = 30_000;
/** Milliseconds after which a stream that has begun, and goes on, is left. */
const STREAM = 1_500;
/** Milliseconds that something has to come, where nothing must. */
const MOMENT = 40;

/** One of the clients that work at the same time: a connection that it keeps, and others that it opens and leaves. */
export class FuzzClient {
  readonly #port: number;
  #kept: RawClient | null = null;
  /** Replies by their status; `none` where the connection ended without one; `left` by the client itself. */
  readonly seen = new Map<string, number>();

  constructor(port: number) {
    this.#port = port;
  }

  /** Gives a problem, or null. */
  async run(each: Case): Promise<string | null> {
    if (each.kind === "request") return this.#request(each);
    if (each.kind === "framing") return this.#framing(each);
    return this.#frames(each);
  }

  close(): void {
    this.#kept?.close();
    this.#kept = null;
  }

  #count(what: string | number): void {
    this.seen.set(String(what), (this.seen.get(String(what)) ?? 0) + 1);
  }

  async #request({ method, bytes, leaves, last }: RequestCase): Promise<string | null> {
    if (this.#kept?.isClosed !== false) this.#kept = await RawClient.open(this.#port);
    const client = this.#kept;
    client.received = "";
    await client.send(bytes);
    if (leaves !== null) {
      await sleep(leaves);
      this.#count("left");
      this.close();
      return null;
    }
    const head = method === "HEAD";
    const isWhole = () => wholeReplies(client, head).length > 0;
    await settle(client, (received) => isWhole() || /\r\ncontent-type: text\/event-stream/i.test(received), PATIENCE);
    if (!isWhole() && client.received !== "") await settle(client, isWhole, STREAM);
    const [reply, ...more] = wholeReplies(client, head);
    if (reply === undefined) {
      const partial = client.received;
      const { isClosed } = client;
      this.close();
      if (isClosed || !/text\/event-stream/.test(partial))
        return `no reply${isClosed ? ": closed" : ""}: ${partial.slice(0, 300)}`;
      this.#count("stream left");
      return judgePart(partial);
    }
    this.#count(reply.status);
    if (more.length > 0) return "more than one reply";
    if (last || /close/i.test(reply.headers.connection ?? "")) this.close();
    return judgeReply(reply, head);
  }

  async #framing({ pieces, must, most, then }: FramingCase): Promise<string | null> {
    const client = await RawClient.open(this.#port);
    for (const { bytes, wait } of pieces) {
      if (wait > 0) await sleep(wait);
      if (client.isClosed) break;
      await client.send(bytes);
    }
    if (then === "end") client.socket.end();
    if (then !== "leave") {
      const enough = must > 0 ? must : most;
      await settle(client, () => wholeReplies(client).length >= enough, must > 0 ? PATIENCE : MOMENT);
    }
    const replies = wholeReplies(client);
    const { received } = client;
    client.close();
    this.#count(then === "leave" ? "left" : (replies[0]?.status ?? "none"));
    if (replies.length < must) return `${replies.length} replies where ${must} must come: ${received.slice(0, 300)}`;
    // One more: the parser's refusal of what it finds behind the requests.
    if (replies.length > most + 1) return `${replies.length} replies to ${most}`;
    for (const reply of replies) {
      const problem = judgeReply(reply, false);
      if (problem !== null) return problem;
    }
    return null;
  }

  async #frames({ handshake, good, frames, atOnce, echoes, ends }: FrameCase): Promise<string | null> {
    const client = await RawClient.open(this.#port);
    const all = Buffer.concat(frames);
    await client.send(atOnce ? Buffer.concat([handshake, all]) : handshake);
    await settle(client, (received) => received.includes("\r\n\r\n"), good ? PATIENCE : 10 * MOMENT);
    if (!client.received.startsWith("HTTP/1.1 101 ")) {
      await settle(client, () => wholeReplies(client).length > 0, MOMENT);
      const [reply] = wholeReplies(client);
      client.close();
      this.#count(reply?.status ?? "none");
      if (good) return `the handshake is refused: ${client.received.slice(0, 300)}`;
      return reply === undefined ? null : judgeReply(reply, false);
    }
    const heard = () =>
      judgeFrames(Buffer.from(client.received.slice(client.received.indexOf("\r\n\r\n") + 4), "latin1"));
    if (echoes.length > 0) {
      await client.send(Buffer.concat(echoes));
      await settle(client, () => heard().echoes >= echoes.length, PATIENCE);
    }
    const { echoes: came } = heard();
    if (!atOnce) await client.send(all);
    await settle(client, () => heard().closed, ends ? PATIENCE : MOMENT);
    const { problem, closed } = heard();
    const { isClosed } = client;
    client.close();
    this.#count(isClosed ? "socket ended" : "socket left");
    if (problem !== null) return problem;
    if (came < echoes.length) return `${came} echoes of ${echoes.length}`;
    return ends && !isClosed && !closed ? "the socket goes on" : null;
  }
}

/** Waits until it holds, the connection is over, or the time is. */
const settle = (client: RawClient, holds: (received: string) => boolean, patience: number) =>
  client.until(holds, patience).catch(() => {});

/** Those that are complete: one without a length is when its connection is over. */
function wholeReplies(client: RawClient, heads = false): RawReply[] {
  const replies = parseReplies(client.received, heads);
  const last = replies.at(-1);
  const open = last !== undefined && !heads && last.headers["content-length"] === undefined;
  const endless = open && last.headers["transfer-encoding"] !== "chunked" && last.status !== 204 && last.status !== 304;
  return endless && !client.isClosed ? replies.slice(0, -1) : replies;
}

/** Of a stream that the client has left: its events so far. */
function judgePart(received: string): string | null {
  const body = received.slice(received.indexOf("\r\n\r\n") + 4);
  const text = body.replace(/(^|\r\n)[0-9a-f]+\r\n/g, "").replace(/\r\n$/, "");
  return judgeEvents(Buffer.from(text, "latin1").toString(), false);
}
