/**
 * A provider behind HTTP, as a separate process, that costs next to nothing: its answers are bytes that were built at the start.
 *
 *     POST /burst/v1/chat/completions      32 deltas, usage and [DONE] in one burst, or one JSON for a call that does not stream
 *     POST /burst/v1/responses             the same as events of OpenAI's responses API
 *     POST /paced/MS/COUNT/v1/chat/completions    COUNT deltas, one per MS milliseconds; each contains the time at which it is sent
 *
 * Its port is reported to the parent.
 */
import uws, { type HttpResponse } from "uWebSockets.js";
import { DELTAS, WORDS } from "../replies.ts";

const USAGE = { prompt_tokens: 12, completion_tokens: DELTAS, total_tokens: 12 + DELTAS };
const PIECES = WORDS.split(/(?<= )/);

const event = (data: unknown) => `data: ${JSON.stringify(data)}\n\n`;
const head = (object: string) => ({ id: "chatcmpl-bench", object, created: 1_700_000_000, model: "bench" });

function chunk(delta: object, finish: string | null = null): string {
  const choices = [{ index: 0, delta, logprobs: null, finish_reason: finish }];
  return event({ ...head("chat.completion.chunk"), choices });
}

const FIRST = chunk({ role: "assistant", content: "" });
const LAST = event({ ...head("chat.completion.chunk"), choices: [], usage: USAGE });
const END = `${chunk({}, "stop")}${LAST}data: [DONE]

`;

const STREAMED = Buffer.from([FIRST, ...PIECES.map((content) => chunk({ content })), END].join(""));

const WHOLE = Buffer.from(
  JSON.stringify({
    ...head("chat.completion"),
    choices: [{ index: 0, message: { role: "assistant", content: WORDS }, logprobs: null, finish_reason: "stop" }],
    usage: USAGE,
  }),
);

const response = { id: "resp_bench", created_at: 1_700_000_000, model: "bench" };
const item = { type: "message", id: "msg_bench", role: "assistant", content: [] };
const RESPONSES = Buffer.from(
  [
    { type: "response.created", response },
    { type: "response.output_item.added", output_index: 0, item },
    ...PIECES.map((delta) => ({ type: "response.output_text.delta", item_id: item.id, output_index: 0, delta })),
    { type: "response.output_item.done", output_index: 0, item },
    {
      type: "response.completed",
      response: { ...response, usage: { input_tokens: 12, output_tokens: DELTAS, total_tokens: 12 + DELTAS } },
    },
  ]
    .map(event)
    .join(""),
);

/** A paced delta before and after the microseconds of its sending. */
const [BEFORE, AFTER] = chunk({ content: "@" }).split("@") as [string, string];

/** The clock that all processes of a machine share. */
const nowMicros = () => process.hrtime.bigint() / 1_000n;

interface Paced {
  response: HttpResponse;
  /** When the next delta is due. */
  due: number;
  every: number;
  left: number;
  gone: boolean;
}

/** One clock of one millisecond for all streams, each in the slot in which it is due next: a tick touches only those. */
class Pacer {
  readonly #slots: Paced[][] = Array.from({ length: 4096 }, () => []);
  #now = Math.floor(performance.now());

  constructor() {
    setInterval(() => this.#tick(), 1);
  }

  add(stream: Paced): void {
    this.#slots[stream.due % this.#slots.length]!.push(stream);
  }

  get now(): number {
    return this.#now;
  }

  #tick(): void {
    for (const until = Math.floor(performance.now()); this.#now < until; ) {
      this.#now += 1;
      const index = this.#now % this.#slots.length;
      const due = this.#slots[index]!;
      this.#slots[index] = [];
      for (const stream of due) this.#send(stream);
    }
  }

  #send(stream: Paced): void {
    if (stream.gone) return;
    stream.left -= 1;
    const delta = `${BEFORE}${nowMicros()} ${AFTER}`;
    stream.response.cork(() => {
      if (stream.left > 0) stream.response.write(delta);
      else stream.response.end(delta + END);
    });
    stream.gone = stream.left === 0;
    stream.due += stream.every;
    if (!stream.gone) this.add(stream);
  }
}

let pacer: Pacer | undefined;
let streams = 0;

function pace(response: HttpResponse, every: number, count: number): void {
  pacer ??= new Pacer();
  // Streams that start together are spread over the interval.
  streams += 1;
  const stream = { response, due: pacer.now + 1 + ((streams * 7) % every), every, left: count, gone: false };
  response.onAborted(() => {
    stream.gone = true;
  });
  response.cork(() => response.writeHeader("content-type", "text/event-stream").write(FIRST));
  pacer.add(stream);
}

function answer(response: HttpResponse, path: string, streamed: boolean): void {
  const [, speed, every, count] = path.split("/");
  if (speed === "paced") {
    pace(response, Number(every), Number(count));
    return;
  }
  const type = streamed ? "text/event-stream" : "application/json";
  const bytes = !streamed ? WHOLE : path.endsWith("/responses") ? RESPONSES : STREAMED;
  // Chunked, like real providers: the length of a stream is unknown before its end.
  response.cork(() => {
    response.writeHeader("content-type", type);
    if (streamed) {
      response.write(bytes);
      response.end();
    } else response.end(bytes);
  });
}

const STREAM = Buffer.from('"stream":true');

// Undocumented switch: no `uWebSockets: 20` header.
(uws as unknown as { _cfg(option: string): void })._cfg("silent");
uws
  .App()
  .post("/*", (reply, request) => {
    const path = request.getUrl();
    let gone = false;
    let streamed = false;
    reply.onAborted(() => {
      gone = true;
    });
    reply.onData((bytes, last) => {
      streamed ||= Buffer.from(bytes).includes(STREAM);
      if (last && !gone) answer(reply, path, streamed);
    });
  })
  .listen("127.0.0.1", 0, (socket) => {
    if (!socket) throw new Error("the provider cannot listen");
    process.send?.({ port: uws.us_socket_local_port(socket) });
  });
