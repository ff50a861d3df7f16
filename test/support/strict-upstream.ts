/**
 * A model provider on the loopback that refuses what the real one refuses: the HTTP server and the script, which the strict
 * upstreams of all providers share. A model says what the test has told it to, one answer for each request.
 */
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";
import { promptFlaw } from "./prompt-rules.ts";

// biome-ignore lint/suspicious/noExplicitAny: bodies of other people's protocols
export type Json = any;

/** One answer of the model. Its parts come in this order. */
export interface Answer {
  /** What it thought. Each provider signs it in its own way. */
  thought?: string;
  /** Thoughts that the provider does not show, only their signed form. */
  hidden?: boolean;
  text?: string;
  calls?: readonly { name: string; input?: unknown; id?: string }[];
  /** Why it ended, in the words of the provider (Anthropic and Gemini). Default: it said all that it had to say. */
  ended?: string;
  /** The connection breaks after so many events, if there are more. */
  breaksAfter?: number;
  /** The provider is not available: a reply with the status 500. Nothing is checked and nothing is said. */
  down?: true;
}

/** Thrown by the rules: the provider's own reply to a request that it does not accept. */
export class Refusal extends Error {
  override readonly name = "Refusal";
  readonly status: number;
  readonly body: unknown;

  constructor(status: number, message: string, body: unknown) {
    super(message);
    this.status = status;
    this.body = body;
  }
}

/** What one provider makes of a request. */
export interface Dialect {
  /** Beside the origin: where the API begins. */
  readonly base: string;
  /** @throws Refusal */
  check(body: Json, path: string): void;
  /** The body with all that it only refers to. */
  whole?(body: Json): Json;
  /** The events of the answer, as text for the socket. */
  events(answer: Answer, body: Json): string[];
}

export interface StrictUpstream {
  readonly baseURL: string;
  /** The bodies of all requests, refused ones too. */
  readonly requests: Json[];
  /** Why requests were refused. */
  readonly refusals: string[];
  /** What the model says to the next requests. Refused requests use up nothing. */
  says(...answers: Answer[]): void;
}

export async function startStrictUpstream(test: Pick<TestContext, "after">, dialect: Dialect): Promise<StrictUpstream> {
  const requests: Json[] = [];
  const refusals: string[] = [];
  const queue: Answer[] = [];
  const server = createServer((incoming, response) => {
    void (async () => {
      const body = JSON.parse(await textOf(incoming));
      requests.push(body);
      if (queue[0]?.down === true) {
        queue.shift();
        response.writeHead(500).end();
        return;
      }
      try {
        const path = incoming.url ?? "";
        dialect.check(body, path);
        const flaw = promptFlaw(dialect.whole?.(body) ?? body, path);
        if (flaw !== null) throw new Refusal(400, flaw, { error: { message: flaw, type: "invalid_request_error" } });
        const answer = queue.shift() ?? { text: "There is nothing more to say." };
        const events = dialect.events(answer, body);
        const { breaksAfter = events.length } = answer;
        response.writeHead(200, { "content-type": "text/event-stream" });
        for (const event of events.slice(0, breaksAfter)) response.write(event);
        // What was written has to be sent before the connection breaks.
        if (breaksAfter >= events.length) response.end();
        else setTimeout(() => response.destroy(), 10);
      } catch (error) {
        if (!(error instanceof Refusal)) throw error;
        refusals.push(error.message);
        response.writeHead(error.status, { "content-type": "application/json" });
        response.end(JSON.stringify(error.body));
      }
    })().catch((error) => response.destroy(error));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  test.after(
    () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  );
  const { port } = server.address() as AddressInfo;
  return {
    baseURL: `http://127.0.0.1:${port}${dialect.base}`,
    requests,
    refusals,
    says: (...answers) => void queue.push(...answers),
  };
}

async function textOf(incoming: IncomingMessage): Promise<string> {
  const pieces: Buffer[] = [];
  for await (const piece of incoming) pieces.push(piece);
  return Buffer.concat(pieces).toString();
}

/** A server-sent event. `type` is sent as its name too where the provider does so. */
export const event = (data: unknown, type?: string): string =>
  `${type === undefined ? "" : `event: ${type}\n`}data: ${JSON.stringify(data)}\n\n`;

/** Cuts a text in two, so that nothing arrives whole. */
export function halves(text: string): string[] {
  const middle = Math.ceil(text.length / 2);
  return [text.slice(0, middle), text.slice(middle)].filter((piece) => piece !== "");
}

/** Ids as unguessable as a provider's, and the same in every run of a test. */
export function counter(prefix: string): () => string {
  let count = 0;
  return () => `${prefix}${String(++count).padStart(12, "0")}`;
}
