/**
 * A real HTTP server that speaks OpenAI's chat completions, with every misbehaviour that a provider is capable of.
 *
 *     const upstream = await startOpenAIUpstream();            // upstream.baseURL goes into the manifest
 *     upstream.replies(failure(429, { retryAfter: 0 }), says("Hello"));   // one for each request, then the fallback
 *     upstream.fallback((request) => says(request.lastUserText));          // the default: an echo
 *     ... call it ...
 *     upstream.requests[0].body.messages
 *     await upstream.requests[0].aborted;                      // settles when the client cut the socket before the end
 *     await upstream.close();
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { completionOf, eventsOf, type Step, type StreamedCall } from "./openai-wire.ts";

export interface UpstreamRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into it as they need
  readonly body: any;
  readonly lastUserText: string;
  /** The outputs that tools gave since the user spoke. */
  readonly toolOutputs: readonly string[];
  /** Settles when the client closed its socket before the reply was complete; else never. */
  readonly aborted: Promise<void>;
  /** True once `aborted` has settled. */
  wasAborted: boolean;
  /** True once the reply was sent wholly. */
  completed: boolean;
}

export interface Reply {
  status?: number;
  headers?: Record<string, string>;
  /** A plain JSON body instead of a completion. */
  json?: unknown;
  /** A page of HTML, as a proxy sends it. */
  page?: string;
  /** Milliseconds before the head is sent; `Infinity` never sends it. */
  headDelay?: number;
  /** Nothing is sent before this settles. */
  after?: Promise<unknown>;
  steps?: readonly Step[];
}

type Usage = {
  prompt?: number;
  completion?: number;
  cached?: number;
  reasoning?: number;
};

interface Manner {
  /** How many deltas a text or the JSON of a tool call is cut into. */
  chunks?: number;
  /** Milliseconds before each delta. */
  delay?: number;
  reasoning?: string;
  /** Default: 10 prompt and 5 completion tokens; null sends none. */
  usage?: Usage | null;
  finishReason?: string;
}

function cut(text: string, chunks: number): string[] {
  const count = Math.max(1, Math.min(chunks, text.length));
  return Array.from({ length: count }, (_, index) =>
    text.slice(Math.floor((text.length * index) / count), Math.floor((text.length * (index + 1)) / count)),
  );
}

const paced = (steps: Step[], delay = 0): Step[] =>
  delay > 0 ? steps.flatMap((step) => [{ wait: delay }, step]) : steps;

function ending(manner: Manner, finishReason: string): Step[] {
  const usage = manner.usage === undefined ? {} : manner.usage;
  return [{ finish: manner.finishReason ?? finishReason }, ...(usage === null ? [] : [{ usage }]), { done: true }];
}

/** A text, after its reasoning where there is some. */
export function says(text: string, manner: Manner = {}): Reply {
  const thought = manner.reasoning === undefined ? [] : [{ reasoning: manner.reasoning }];
  const deltas = cut(text, manner.chunks ?? 1).map((piece): Step => ({ text: piece }));
  return { steps: [...paced([...thought, ...deltas], manner.delay), ...ending(manner, "stop")] };
}

/** A JSON object as text: what structured output looks like. */
export const saysJson = (value: unknown, manner: Manner = {}): Reply => says(JSON.stringify(value), manner);

/** Tool calls, all in one step of the model. */
export function calls(tools: readonly { name: string; input?: unknown; id?: string }[], manner: Manner = {}): Reply {
  const steps = tools.flatMap(({ name, input = {}, id }, index): Step[] => {
    const call: StreamedCall = { index, id: id ?? `call_${name}_${index}`, name };
    const pieces = cut(JSON.stringify(input), manner.chunks ?? 2);
    return [{ call: { ...call, arguments: "" } }, ...pieces.map((piece) => ({ call: { index, arguments: piece } }))];
  });
  return { steps: [...paced(steps, manner.delay), ...ending(manner, "tool_calls")] };
}

/** A refusal with OpenAI's error body. `retryAfter` in seconds. */
export function failure(status: number, options: { retryAfter?: number; message?: string; code?: string } = {}): Reply {
  const { retryAfter, message = `upstream says ${status}`, code = "failed" } = options;
  return {
    status,
    headers: retryAfter === undefined ? {} : { "retry-after": String(retryAfter) },
    json: { error: { message, type: code, code } },
  };
}

/** Accepts the request and never answers. */
export const stallsBeforeHead = (): Reply => ({ headDelay: Number.POSITIVE_INFINITY });

/** Sends the head, then nothing. */
export const stallsBeforeText = (): Reply => ({ steps: [{ stall: true }] });

/** Says something, then nothing more; the socket stays open. */
export const stallsAfter = (text: string): Reply => ({ steps: [{ text }, { stall: true }] });

/** Says something, then the connection breaks. An empty text breaks it before anything was said. */
export const cutsAfter = (text: string): Reply => ({
  steps: text === "" ? [{ cut: true }] : [{ text }, { wait: 20 }, { cut: true }],
});

/** Says something, then sends an error inside the stream. */
export const failsAfter = (text: string, error: unknown = { message: "overloaded", type: "server_error" }): Reply => ({
  steps: text === "" ? [{ error }] : [{ text }, { error }, { done: true }],
});

export interface OpenAIUpstream {
  readonly origin: string;
  /** `http://127.0.0.1:PORT/v1` */
  readonly baseURL: string;
  readonly requests: UpstreamRequest[];
  /** Sockets that are open now. */
  connections(): Promise<number>;
  /** The next requests get these, in order. */
  replies(...replies: Reply[]): void;
  /** What requests get when no reply is left. */
  fallback(reply: Reply | ((request: UpstreamRequest) => Reply)): void;
  /** Resolves with the request of this index as soon as it is here. */
  request(index: number): Promise<UpstreamRequest>;
  close(): Promise<void>;
}

export async function startOpenAIUpstream(): Promise<OpenAIUpstream> {
  const requests: UpstreamRequest[] = [];
  const queue: Reply[] = [];
  const waiting: { index: number; resolve: (request: UpstreamRequest) => void }[] = [];
  let fallback: (request: UpstreamRequest) => Reply = (request) => says(request.lastUserText);

  const server = createServer((incoming, response) => {
    void (async () => {
      const request = await record(incoming, response);
      requests.push(request);
      for (const { index, resolve } of waiting) if (index === requests.length - 1) resolve(request);
      if (request.path.endsWith("/embeddings")) return sendJson(response, 200, embeddings(request.body));
      await play(queue.shift() ?? fallback(request), request, response);
    })().catch((error) => response.destroy(error));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;

  return {
    origin,
    baseURL: `${origin}/v1`,
    requests,
    connections: () =>
      new Promise((resolve, reject) =>
        server.getConnections((error, count) => (error ? reject(error) : resolve(count))),
      ),
    replies: (...replies) => void queue.push(...replies),
    fallback: (reply) => {
      fallback = typeof reply === "function" ? reply : () => reply;
    },
    request: (index) => {
      const request = requests[index];
      return request ? Promise.resolve(request) : new Promise((resolve) => waiting.push({ index, resolve }));
    },
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

async function record(incoming: IncomingMessage, response: ServerResponse): Promise<UpstreamRequest> {
  let abort: () => void = () => undefined;
  const aborted = new Promise<void>((resolve) => {
    abort = resolve;
  });
  const pieces: Buffer[] = [];
  for await (const piece of incoming) pieces.push(piece);
  const text = Buffer.concat(pieces).toString();
  const body = text === "" ? null : JSON.parse(text);
  const messages: { role: string; content: unknown }[] = body?.messages ?? [];
  const spoken = messages.findLastIndex(({ role }) => role === "user");
  const request: UpstreamRequest = {
    method: incoming.method ?? "",
    path: incoming.url ?? "",
    headers: incoming.headers,
    body,
    lastUserText: textOf(messages[spoken]?.content),
    toolOutputs: messages.slice(spoken + 1).flatMap(({ role, content }) => (role === "tool" ? [textOf(content)] : [])),
    aborted,
    wasAborted: false,
    completed: false,
  };
  response.on("finish", () => {
    request.completed = true;
  });
  response.on("close", () => {
    // A connection that this server cut itself is no abort of the client.
    if (request.completed || response.errored !== null) return;
    request.wasAborted = true;
    abort();
  });
  return request;
}

function textOf(content: unknown): string {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content.map((part) => (part?.type === "text" ? part.text : "")).join("");
}

async function play(reply: Reply, request: UpstreamRequest, response: ServerResponse): Promise<void> {
  if (reply.headDelay === Number.POSITIVE_INFINITY) return;
  if (reply.headDelay) await sleep(reply.headDelay);
  await reply.after;
  if (response.destroyed) return;
  const { status = 200, headers = {}, steps = [] } = reply;
  if (reply.page !== undefined) {
    response.writeHead(status, { "content-type": "text/html" });
    response.end(reply.page);
    return;
  }
  if (reply.json !== undefined) return sendJson(response, status, reply.json, headers);
  if (request.body?.stream !== true) return sendJson(response, status, completionOf(steps, request.body), headers);
  response.writeHead(status, { "content-type": "text/event-stream", ...headers });
  response.flushHeaders();
  for (const step of steps) {
    if (response.destroyed) return;
    if ("wait" in step) await sleep(step.wait);
    else if ("stall" in step) return;
    else if ("cut" in step) return void response.destroy(new Error("cut"));
    else for (const event of eventsOf(step, request.body)) response.write(event);
  }
  response.end();
}

function sendJson(response: ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}): void {
  response.writeHead(status, { "content-type": "application/json", ...headers });
  response.end(JSON.stringify(body));
}

const sleep = (milliseconds: number) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Vectors of three numbers: the length of the text and those of its first two words. */
function embeddings(body: { input: string[] }): unknown {
  const vector = (text: string) => [text.length, ...[0, 1].map((index) => text.split(" ")[index]?.length ?? 0)];
  const tokens = body.input.join(" ").split(" ").length;
  return {
    object: "list",
    data: body.input.map((text, index) => ({ object: "embedding", index, embedding: vector(text) })),
    usage: { prompt_tokens: tokens, total_tokens: tokens },
  };
}

/** What replies show of the usage that an answer has here by default. */
export const SHOWN_USAGE = {
  promptTokens: 10,
  completionTokens: 5,
  totalTokens: 15,
  cachedInputTokens: 0,
  reasoningTokens: 0,
  inputTokens: 10,
  outputTokens: 5,
};
