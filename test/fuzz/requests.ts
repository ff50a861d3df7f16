/** Requests over all rows of the routes table: well formed as HTTP, and spoilt in their path, query, head or body. */
import { ROUTES } from "../../core/api/routes/index.ts";
import { encode, mutateBytes, mutateText, mutateValue } from "./mutate.ts";
import { credentials, parameter } from "./names.ts";
import type { Random } from "./random.ts";
import { growNamed, rpc } from "./values.ts";

/** One request on a connection that is kept. */
export interface RequestCase {
  readonly kind: "request";
  /** `POST /agents/:id/text`. */
  readonly row: string;
  readonly method: string;
  readonly bytes: Buffer;
  /** Milliseconds after which the client leaves; null: it waits for the reply. */
  readonly leaves: number | null;
  /** Whether it says what becomes of its connection. */
  readonly last: boolean;
}

interface Row {
  readonly method: string;
  readonly path: string;
  readonly query?: string | undefined;
  readonly body?: string | undefined;
}

/** The table, and the routes of plugins. */
const ROWS: readonly Row[] = [
  ...ROUTES.map(({ method, path, query, body }) => ({ method, path, query, body })),
  { method: "GET", path: "/hello" },
  { method: "GET", path: "/delivery/:city" },
  { method: "GET", path: "/nowhere" },
];

export const ROW_NAMES: readonly string[] = ROWS.map(({ method, path }) => `${method} ${path}`);

export function requestCase(random: Random, host: string): RequestCase {
  const row = random.pick(ROWS);
  const { method, target, body } = partsOf(random, row);
  const type = contentType(random, body);
  const headers = [`host: ${host}`, ...credentials(random), ...type, ...extras(random, host)];
  if (body !== null) headers.push(`content-length: ${body.length}`);
  const head = `${method} ${target} HTTP/1.1\r\n${headers.join("\r\n")}\r\n\r\n`;
  return {
    kind: "request",
    row: `${row.method} ${row.path}`,
    method,
    bytes: Buffer.concat([Buffer.from(head, "latin1"), body ?? Buffer.alloc(0)]),
    leaves: random.chance(0.03) ? random.below(20) : null,
    last: headers.some((line) => line.startsWith("connection:")),
  };
}

const METHODS = ["HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "GET", "POST", "TRACE", "PROPFIND"];

/** A request to one row, most of the time spoilt in one place or two. */
function partsOf(random: Random, row: Row = random.pick(ROWS)) {
  const spoils = random.chance(0.75);
  const path = pathOf(random, row.path, spoils && random.chance(0.2));
  const query = queryOf(random, row.query, spoils && random.chance(0.4));
  const method = spoils && random.chance(0.06) ? random.pick(METHODS) : row.method;
  const body = method === "GET" || method === "HEAD" ? null : bodyOf(random, row, spoils);
  return { method, target: path + query, body };
}

const SEGMENTS = [
  "..",
  ".",
  "%2e%2e",
  "%2F",
  "%00",
  "%",
  "%zz",
  "%ff",
  "%C3%A9",
  "a".repeat(500),
  "__proto__",
  ";a=b",
  "'",
  "*",
];

function pathOf(random: Random, pattern: string, spoils: boolean): string {
  const path = pattern.replace(/:([^/]+)/g, (_all, name: string) => parameter(random, pattern, name));
  if (!spoils) return path;
  const segments = path.split("/");
  const at = 1 + random.below(segments.length - 1);
  return random.pick<() => string>([
    () => `${path}/`,
    () => path.replace("/", "//"),
    () => path.toUpperCase(),
    () => `/${random.pick(SEGMENTS)}${path}`,
    () => segments.with(at, random.pick(SEGMENTS)).join("/"),
    () => segments.with(at, "").join("/"),
    () => [...segments, random.pick(SEGMENTS)].join("/"),
    () => `/${visible(mutateText(random, path.slice(1)))}`,
  ])();
}

/** Without what would end the request line: that is for `framing.ts`. */
const visible = (text: string) => text.replace(/[^\x21-\x7e]/g, "~");

const VALUES = [
  "",
  "-1",
  "0",
  "1e3",
  "9999999999999999999",
  "abc",
  "%",
  "%zz",
  "%00",
  "null",
  "{}",
  '{"a":1}',
  "[]",
  "true",
];

function queryOf(random: Random, schema: string | undefined, spoils: boolean): string {
  const grown = schema === undefined ? {} : (growNamed(random, schema) as Record<string, unknown>);
  const pairs = Object.entries(grown).map(([name, value]) => [name, encodeURIComponent(textOf(value))] as const);
  if (spoils) {
    const name =
      pairs.length === 0 || random.chance(0.3) ? random.pick(["key", "dev", "token", "limit", "a"]) : pairs[0]![0];
    pairs.push([name, random.chance(0.7) ? encodeSome(random.pick(VALUES)) : visible(mutateText(random, "abc=def&g"))]);
    if (random.chance(0.2)) pairs.push(...pairs, ...pairs);
  }
  return pairs.length === 0 ? "" : `?${pairs.map(([name, value]) => `${name}=${value}`).join("&")}`;
}

const textOf = (value: unknown) => (typeof value === "string" ? value.toWellFormed() : encode(value));
const encodeSome = (text: string) => (text.startsWith("%") ? text : encodeURIComponent(text));

function bodyOf(random: Random, { path, body }: Row, spoils: boolean): Buffer {
  const protocol = path.startsWith("/a2a/") || path.endsWith("/mcp");
  let value = protocol ? rpc(random) : body === undefined ? {} : growNamed(random, body);
  if (!spoils) return Buffer.from(encode(value));
  for (
    let times = random.weighted([
      [4, 1],
      [2, 2],
      [1, 4],
      [1, 0],
    ]);
    times > 0;
    times--
  )
    value = mutateValue(random, value);
  let bytes = Buffer.from(encode(value));
  for (
    let times = random.weighted([
      [6, 0],
      [2, 1],
      [1, 3],
    ]);
    times > 0;
    times--
  )
    bytes = mutateBytes(random, bytes) as Buffer<ArrayBuffer>;
  return random.chance(0.03) ? Buffer.alloc(0) : bytes;
}

function contentType(random: Random, body: Buffer | null): string[] {
  if (body === null) return [];
  if (random.chance(0.92)) return ["content-type: application/json"];
  const other = [
    "text/plain",
    "application/json; charset=utf-16",
    "APPLICATION/JSON",
    "application/ld+json",
    ";",
    "x".repeat(400),
  ];
  return random.chance(0.2) ? [] : [`content-type: ${random.pick(other)}`];
}

const ODD_TEXT = ["", ",", ";", '"', "0", "-1", "null", "*", "\x80\xff", "a, b", "x".repeat(900), "a b\tc"];

/** Headers that somebody reads, with values that somebody may send. */
const EXTRAS: readonly (readonly [name: string, values: readonly string[]])[] = [
  ["x-request-id", ["abc", "a".repeat(200), "é"]],
  ["traceparent", ["00-0123456789abcdef0123456789abcdef-0123456789abcdef-01", "00-0-0-0", "ff-x"]],
  ["accept", ["application/json", "text/event-stream", "application/json, text/event-stream", "text/html"]],
  ["accept-encoding", ["gzip, br", "identity;q=0"]],
  ["content-encoding", ["gzip", "identity"]],
  ["last-event-id", ["0", "3", "abc", "1e9", "-1"]],
  ["if-none-match", ["*", '"a"', 'W/"a"']],
  ["range", ["bytes=0-1", "bytes=-"]],
  ["cookie", ["a=b; c", "__proto__=1"]],
  ["x-forwarded-for", ["1.2.3.4", "::1, x", "unknown"]],
  ["x-forwarded-proto", ["https", "javascript"]],
  ["x-forwarded-host", ["evil.test", "a b"]],
  ["x-http-method-override", ["DELETE"]],
  ["access-control-request-method", ["POST", "FOO"]],
  ["access-control-request-headers", ["a,b", "é"]],
  ["mcp-protocol-version", ["2025-06-18", "1999-01-01"]],
  ["mcp-session-id", ["a", "é"]],
  ["a2a-version", ["1.0", "0.3", "7"]],
  ["connection", ["close", "keep-alive"]],
  ["idempotency-key", ["a", "b"]],
  ["user-agent", ["fuzz"]],
];

function extras(random: Random, host: string): string[] {
  const count = random.weighted([
    [5, 0],
    [4, 1],
    [2, 3],
    [1, 12],
  ]);
  const lines = Array.from({ length: count }, () => {
    const [name, values] = random.pick(EXTRAS);
    return `${name}: ${random.pick(random.chance(0.3) ? ODD_TEXT : values)}`;
  });
  if (random.chance(0.08))
    lines.push(`origin: ${random.pick([`http://${host}`, "https://evil.test", "null", "", "é"])}`);
  if (random.chance(0.02)) lines.push(`x-long: ${"y".repeat(random.pick([4_000, 12_000, 20_000]))}`);
  return lines;
}
