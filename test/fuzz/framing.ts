/** HTTP framing: heads and bodies that come late, in pieces, twice or in part, and lengths that lie. */
import { CONSOLE_KEY } from "../support/access-credentials.ts";
import { token } from "../support/tokens.ts";
import { mutateBytes } from "./mutate.ts";
import type { Random } from "./random.ts";

interface Piece {
  readonly bytes: Buffer;
  /** Milliseconds before it is sent. */
  readonly wait: number;
}

/** What is sent on a connection of its own. */
export interface FramingCase {
  readonly kind: "framing";
  readonly row: string;
  readonly pieces: readonly Piece[];
  /** Replies that must come, because a server has to understand this. */
  readonly must: number;
  /** Replies at most. */
  readonly most: number;
  /** What the client does at the end: waits and leaves, leaves at once, or says that it will send no more. */
  readonly then: "wait" | "leave" | "end";
}

const latin = (text: string) => Buffer.from(text, "latin1");

interface Request {
  readonly line: string;
  readonly headers: readonly string[];
  readonly body: Buffer;
}

const CREDENTIALS = [`authorization: Bearer ${token({ sub: "ada" })}`, `x-console-access-key: ${CONSOLE_KEY}`];

const post = (path: string, body: unknown) => ["POST", path, latin(JSON.stringify(body))] as const;
const SOME: readonly (readonly [method: string, path: string, body: Buffer])[] = [
  ["GET", "/agents", latin("")],
  ["GET", "/healthz", latin("")],
  ["GET", "/nowhere", latin("")],
  post("/agents/support/text", { input: "Hello" }),
  post("/tools/lookup_order/execute", { input: { orderId: "A-1002" } }),
  post("/tools/lookup_order/execute", { input: {}, context: { text: "x".repeat(40_000) } }),
  post("/api/memory/conversations", { conversationId: "c0", userId: "ada" }),
  post("/workflows/refund/execute", { input: { orderId: "A-1001", amount: 5 } }),
];

function request(random: Random, host: string): Request {
  const [method, path, body] = random.pick(SOME);
  const type = body.length === 0 ? [] : ["content-type: application/json"];
  return { line: `${method} ${path} HTTP/1.1`, headers: [`host: ${host}`, ...CREDENTIALS, ...type], body };
}

const headOf = (line: string, headers: readonly string[]) => latin(`${[line, ...headers].join("\r\n")}\r\n\r\n`);

/** With its right length. */
function whole({ line, headers, body }: Request): Buffer {
  const length = body.length === 0 ? [] : [`content-length: ${body.length}`];
  return Buffer.concat([headOf(line, [...headers, ...length]), body]);
}

const cut = (random: Random, bytes: Buffer, from: number, count: number): Piece[] => {
  const places = Array.from({ length: count }, () => from + random.below(Math.max(1, bytes.length - from)));
  const bounds = [0, ...places.toSorted((a, b) => a - b), bytes.length];
  return bounds
    .slice(1)
    .map((end, index) => ({ bytes: bytes.subarray(bounds[index], end), wait: index === 0 ? 0 : random.below(6) }));
};

function chunked(random: Random, body: Buffer, trick: string): Buffer {
  const pieces: Buffer[] = [];
  for (let at = 0; at < body.length; ) {
    const size = Math.min(
      body.length - at,
      random.weighted([
        [3, 1],
        [3, 17],
        [2, 4_000],
      ]),
    );
    const stated =
      trick === "size"
        ? random.pick(["zz", "-1", "", "ffffffffffffffffff", "0x5", " 5", "5;a=b", "5 ;"])
        : size.toString(16);
    const extension = trick === "extension" ? ';a="b"' : "";
    pieces.push(
      latin(`${stated}${extension}\r\n`),
      body.subarray(at, at + size),
      latin(trick === "end" ? "\n" : "\r\n"),
    );
    at += size;
  }
  return Buffer.concat([...pieces, latin(trick === "trailer" ? "0\r\nx-a: b\r\n\r\n" : "0\r\n\r\n")]);
}

type Maker = (random: Random, base: Request, host: string) => Omit<FramingCase, "kind" | "row">;

const once = (bytes: Buffer): Piece[] => [{ bytes, wait: 0 }];
const may = (pieces: Piece[], most = 1) => ({ pieces, must: 0, most, then: "wait" as const });
const must = (pieces: Piece[]) => ({ pieces, must: 1, most: 1, then: "wait" as const });

const LENGTHS = ["", "-1", "+5", "0x5", "5, 5", "5 5", "99999999999999999999", "1e1", "٣", "0"];
const ENCODINGS = ["gzip", "chunked, chunked", "gzip, chunked", "Chunked", "identity", "", "xchunked", "chunked;"];
const LINES = [
  "GET /agents HTTP/1.0",
  "GET /agents HTTP/1.2",
  "GET /agents HTTP/2.0",
  "GET  /agents HTTP/1.1",
  "GET /agents\tHTTP/1.1",
  "GET http://a.test/agents HTTP/1.1",
  "OPTIONS * HTTP/1.1",
  "CONNECT a.test:1 HTTP/1.1",
  "PRI * HTTP/2.0",
  "get /agents HTTP/1.1",
  "G\0T /agents HTTP/1.1",
  "GET /\x80\xff HTTP/1.1",
  `GET /${"a".repeat(20_000)} HTTP/1.1`,
  "",
];
const HEADERS = [
  "x_under: a",
  ": a",
  "x-a : b",
  "x-a",
  "x-a: b\r\n folded",
  "x-a: \0",
  "x-a: a\rb",
  "host: other",
  "expect: 100-continue",
  "expect: x",
  "connection: close",
  "connection: upgrade\r\nupgrade: h2c",
  "connection: x, y, close, keep-alive",
  "transfer-encoding: chunked",
  "content-length: 7",
];

const MAKERS: Readonly<Record<string, Maker>> = {
  "a body in pieces": (random, base) => {
    const bytes = whole(base);
    return must(cut(random, bytes, bytes.length - base.body.length, 1 + random.below(4)));
  },
  "a head that comes line by line": (random, base) => {
    const bytes = whole(base);
    const lines = base.line.length + 2;
    return must(cut(random, bytes, lines, 1 + random.below(3)));
  },
  "a request in pieces": (random, base) => may(cut(random, whole(base), 0, 1 + random.below(5))),
  "a chunked body": (random, { line, headers, body }) => {
    if (body.length === 0) return must(once(headOf(line, headers)));
    const head = headOf(line, [...headers, "transfer-encoding: chunked"]);
    return must(cut(random, Buffer.concat([head, chunked(random, body, "")]), head.length, random.below(4)));
  },
  "a chunked body that is not well formed": (random, { line, headers, body }) => {
    const trick = random.pick(["size", "extension", "end", "trailer"]);
    const bytes = chunked(random, body.subarray(0, 500), trick);
    return may([...once(headOf(line, [...headers, "transfer-encoding: chunked"])), { bytes, wait: random.below(3) }]);
  },
  "lengths that differ or lie": (random, { line, headers, body }) => {
    const stated = random.chance(0.5)
      ? [random.pick(LENGTHS)]
      : [String(body.length), String(body.length + random.pick([0, 1, -1, 50]))];
    return may(
      once(Buffer.concat([headOf(line, [...headers, ...stated.map((length) => `content-length: ${length}`)]), body])),
      2,
    );
  },
  "a length beside a coding": (random, { line, headers, body }) => {
    const framing = [
      `transfer-encoding: ${random.pick(ENCODINGS)}`,
      ...(random.chance(0.5) ? [`content-length: ${body.length}`] : []),
    ];
    return may(once(Buffer.concat([headOf(line, [...headers, ...framing]), chunked(random, body, "")])), 2);
  },
  "several requests at once": (random, base, host) => {
    const count = 2 + random.below(4);
    const others = Array.from({ length: count - 1 }, () => whole(request(random, host)));
    return may(cut(random, Buffer.concat([whole(base), ...others]), 0, random.below(2)), count);
  },
  "a client that leaves early": (random, base) => {
    const bytes = whole(base);
    return { ...may(cut(random, bytes.subarray(0, random.below(bytes.length)), 0, 1)), then: "leave" };
  },
  "a client that ends its side": (random, base) => {
    const bytes = whole(base);
    return { ...may(once(random.chance(0.5) ? bytes : bytes.subarray(0, random.below(bytes.length)))), then: "end" };
  },
  "bytes behind the body": (random, base) =>
    may(once(Buffer.concat([whole(base), random.bytes(1 + random.below(60))])), 2),
  "an odd request line": (random, { headers, body }) =>
    may(once(Buffer.concat([headOf(random.pick(LINES), headers), body])), 2),
  "an odd header": (random, { line, headers, body }) => {
    const length = body.length === 0 ? [] : [`content-length: ${body.length}`];
    const odd = Array.from({ length: 1 + random.below(2) }, () => random.pick(HEADERS));
    return may(once(Buffer.concat([headOf(line, [...headers, ...odd, ...length]), body])), 2);
  },
  "many headers": (random, { line, headers }) => {
    const count = random.pick([60, 90, 97, 98, 99, 120, 400]);
    return may(once(headOf(line, [...headers, ...Array.from({ length: count }, (_, index) => `x-${index}: a`)])));
  },
  "bytes of a request that are spoilt": (random, base) => {
    let bytes = whole({ ...base, body: base.body.subarray(0, 400) });
    for (let times = 1 + random.below(4); times > 0; times--) bytes = mutateBytes(random, bytes) as Buffer<ArrayBuffer>;
    return may(once(bytes), 3);
  },
  "no HTTP at all": (random) => may(once(random.bytes(1 + random.below(200)))),
};

const ROWS = Object.keys(MAKERS);

export function framingCase(random: Random, host: string): FramingCase {
  const row = random.pick(ROWS);
  return { kind: "framing", row, ...MAKERS[row]!(random, request(random, host), host) };
}
