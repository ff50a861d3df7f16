/** The rows of the table of the real path: the requests, and the expected replies. */
import { tokenHeaders } from "../credentials.ts";
import { MARKER } from "../numbers.ts";
import { DELTAS, enveloped, eventsOf, WORDS } from "../replies.ts";

export type Server = "provider" | "floor" | "plain" | "package" | "openai" | "parts" | "everything";

export interface Asked {
  path: string;
  /** JSON text, in which the connection's number replaces the marker. */
  body: string;
  reply: "chunks" | "completion" | "text" | "stream";
}

export interface Row {
  name: string;
  title: string;
  /** The process: rows with the same process are measured in it one after the other. */
  server: Server;
  asked: Asked;
  /** The floor's row with the same reply; null when there is none. */
  floor: "floor-text" | "floor-stream" | null;
  headers?(): Readonly<Record<string, string>>;
}

const completion = (stream: boolean) =>
  JSON.stringify({ model: "bench", messages: [{ role: "user", content: WORDS }], stream });
const input = JSON.stringify({ input: WORDS });
/** Each connection has a conversation of its own, so that none waits for another. */
const remembered = JSON.stringify({
  input: WORDS,
  options: { memory: { conversationId: `conversation-${MARKER}` } },
});

const provider = (name: string, title: string, stream: boolean): Row => ({
  name,
  title,
  server: "provider",
  asked: {
    path: "/burst/v1/chat/completions",
    body: completion(stream),
    reply: stream ? "chunks" : "completion",
  },
  floor: null,
});

function pair(name: string, title: string, server: Server, path: (reply: string) => string, more: Partial<Row> = {}) {
  return (["text", "stream"] as const).map(
    (reply): Row => ({
      name: `${name}-${reply}`,
      title: `${title}, /${reply}`,
      server,
      asked: { path: path(reply), body: input, reply },
      floor: `floor-${reply}`,
      ...more,
      ...(more.asked && { asked: { ...more.asked, path: path(reply), reply } }),
    }),
  );
}

const agent = (name: string) => (reply: string) => `/agents/${name}/${reply}`;

/** The first row is the one with which the others are compared. */
export const ROWS: readonly Row[] = [
  provider("direct", "the provider itself", true),
  provider("direct-json", "the provider itself, not streaming", false),
  ...pair("floor", "floor: no gateway", "floor", (reply) => `/${reply}/burst`),
  ...pair("penstock", "Penstock, openai-compatible", "plain", agent("wire")),
  ...pair("everything", "with traces, memory on SQLite, JWT", "everything", agent("wire"), {
    headers: tokenHeaders,
    asked: { path: "", body: remembered, reply: "text" },
  }),
  ...pair("bare", "Penstock over the floor's own client", "plain", agent("bare")),
  ...pair("package", "package @ai-sdk/openai-compatible", "package", agent("package")),
  ...pair("openai", "package @ai-sdk/openai, responses API", "openai", agent("openai")),
  ...pair("parts", "a package's ReadableStream, without HTTP", "parts", agent("parts"), { floor: null }),
];

const textFits = (text: unknown) => (text === WORDS ? null : `the text is ${JSON.stringify(text)}`);

const CHECKS: Record<Asked["reply"], (body: string) => string | null> = {
  chunks: (body) =>
    textFits(
      eventsOf(body)
        .flatMap((event) => (event.choices as { delta: { content?: string } }[] | undefined) ?? [])
        .map(({ delta }) => delta.content ?? "")
        .join(""),
    ),
  completion: (body) => textFits(JSON.parse(body).choices[0].message.content),
  text: enveloped((data) => (data.finishReason === "stop" ? textFits(data.text) : "it did not stop")),
  stream: (body) => {
    const events = eventsOf(body);
    const deltas = events.filter(({ type }) => type === "text-delta");
    if (deltas.length !== DELTAS) return `${deltas.length} deltas instead of ${DELTAS}: ${body.slice(0, 300)}`;
    if (events.at(-1)?.type !== "finish") return `the last event is ${JSON.stringify(events.at(-1))}`;
    return textFits(deltas.map(({ delta }) => delta).join(""));
  },
};

/** The problem of a reply, or null; a reply that cannot be parsed is reported too. */
export const checkOf =
  ({ reply }: Asked) =>
  (body: string): string | null => {
    try {
      return CHECKS[reply](body);
    } catch (error) {
      return `${(error as Error).message} in ${JSON.stringify(body.slice(0, 200))}`;
    }
  };
