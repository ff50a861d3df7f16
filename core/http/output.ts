/** Compiles how the result of a handler becomes a reply, once per route at boot. */
import type { EventProducer, TextSink } from "../lib/event-sink.ts";
import { SerializedStream } from "../lib/serialized.ts";
import { type Call, NO_WARNINGS } from "./call.ts";
import { envelope, envelopePieces, factHeaders, JSON_TYPE } from "./encode.ts";
import { EVENT_HEADERS } from "./event-writer.ts";
import type { HeaderList } from "./exchange.ts";
import type { EventOutput, EventReply, PageReply, RawReply, RouteOutput } from "./route.ts";

type Encode = (call: Call<unknown>, value: unknown) => void;

/** @param constant CORS headers that all origins share, so that the list is made once; null when they are computed per request */
export function compileOutput(output: RouteOutput, constant: HeaderList | null): Encode {
  if ("json" in output) {
    const status = output.status ?? 200;
    const headers = combine(["content-type", JSON_TYPE], constant);
    return (call, value) => {
      if (!(value instanceof SerializedStream))
        return call.reply(call.replyWith?.status ?? status, withOwn(headers(call), call), envelope(value));
      call.track();
      // A large reply has no form for a failure: the connection is closed, so that what was sent does not look complete.
      call.streamText(headers(call), {
        status,
        headers: [],
        stream: (sink) => sendPieces(sink, envelopePieces(value)),
      });
    };
  }
  if ("envelope" in output) {
    const headers = combine(["content-type", JSON_TYPE], constant);
    return (call, value) => call.reply(200, headers(call), JSON.stringify(value));
  }
  if ("bare" in output) {
    const headers = combine(["content-type", output.type], constant);
    return (call, value) => {
      const { body, status = 200, headers: more } = value as PageReply;
      call.reply(status, more === undefined ? headers(call) : [...headers(call), ...more], body);
    };
  }
  if ("events" in output) {
    const stream = compileEvents(output, constant);
    const others = new Map(
      Object.entries(output.others ?? {}).map(([name, it]) => [name, compileEvents(it, constant)]),
    );
    const empty = combine([], constant);
    return (call, value) => {
      const reply = value as EventReply;
      if (reply === null) call.reply(204, empty(call), null);
      else if (typeof reply === "function") stream(call, reply);
      else others.get(reply.form)!(call, reply.events);
    };
  }
  if ("raw" in output) {
    return (call, value) => {
      const reply = value as RawReply;
      const headers = withOwn(call.cors.length === 0 ? reply.headers : [...reply.headers, ...call.cors], call);
      if ("body" in reply) return call.reply(reply.status, headers, reply.body);
      call.track();
      call.streamText(headers, reply);
    };
  }
  return (call, value) => {
    const page = value as PageReply;
    const type = page.type ?? output.page;
    call.reply(page.status ?? 200, ["content-type", type, ...(page.headers ?? []), ...call.cors], page.body);
  };
}

function compileEvents(form: EventOutput, constant: HeaderList | null) {
  const headers = combine([...EVENT_HEADERS, ...(form.headers ?? [])], constant);
  return (call: Call<unknown>, events: EventProducer) => {
    call.track();
    call.stream(withOwn(headers(call), call), form, events);
  };
}

/** Puts the handler's headers before those of CORS, which must come last because kept replies drop them from the end. */
function withOwn(headers: HeaderList, { replyWith, warnings }: Call<unknown>): HeaderList {
  if (replyWith === undefined && warnings === NO_WARNINGS) return headers;
  return [...factHeaders(replyWith?.facts), ...warnings, ...headers];
}

/** Most characters given to a connection at once: a slow reader's copy waits outside of the heap. */
const CHUNK_CHARACTERS = 128 * 1024;

async function sendPieces(sink: TextSink, pieces: AsyncIterable<string>): Promise<void> {
  for await (const piece of pieces) {
    for (let at = 0; at < piece.length && !sink.closed; ) {
      const end = endOfChunk(piece, at + CHUNK_CHARACTERS);
      await sink.send(piece.slice(at, end));
      at = end;
    }
    if (sink.closed) return;
  }
}

/** Moves the end of a chunk by one where it would split a surrogate pair. */
const endOfChunk = (text: string, end: number): number => (/[\uD800-\uDBFF]/.test(text[end - 1] ?? "") ? end + 1 : end);

function combine(own: HeaderList, constant: HeaderList | null): (call: Call<unknown>) => HeaderList {
  const list = [...own, ...(constant ?? [])];
  return constant === null ? ({ cors }) => [...own, ...cors] : () => list;
}
