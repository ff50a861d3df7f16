/** WebSockets: handshakes, masks, operations, fragments, lengths, codes, and text that is none. */
import { CONSOLE_KEY } from "../support/access-credentials.ts";
import { token } from "../support/tokens.ts";
import { mutateBytes, mutateText } from "./mutate.ts";
import type { Random } from "./random.ts";

export interface FrameCase {
  readonly kind: "frames";
  readonly row: string;
  readonly handshake: Buffer;
  /** Whether a server must take the handshake. */
  readonly good: boolean;
  /** Messages that must come back before the frames are sent. */
  readonly echoes: readonly Buffer[];
  readonly frames: readonly Buffer[];
  /** Sent right behind the handshake, without waiting for its answer: they may be lost. */
  readonly atOnce: boolean;
  /** Whether the server must end it after these frames. */
  readonly ends: boolean;
}

interface Frame {
  readonly operation: number;
  readonly data: Buffer;
  readonly final?: boolean;
  readonly reserved?: number;
  readonly masked?: boolean;
  /** Said in place of the true length. */
  readonly length?: bigint;
  /** Bytes that its length takes; the least that will do when left out. */
  readonly wide?: 2 | 8;
}

function frame(
  random: Random,
  { operation, data, final = true, reserved = 0, masked = true, length, wide }: Frame,
): Buffer {
  const said = length ?? BigInt(data.length);
  const bytes = wide ?? (said < 126n ? 0 : said < 65_536n ? 2 : 8);
  const head = Buffer.alloc(2 + bytes);
  head[0] = (final ? 0x80 : 0) | (reserved << 4) | operation;
  head[1] = (masked ? 0x80 : 0) | (bytes === 0 ? Number(said) : bytes === 2 ? 126 : 127);
  if (bytes === 2) head.writeUInt16BE(Number(said & 0xffffn), 2);
  if (bytes === 8) head.writeBigUInt64BE(BigInt.asUintN(64, said), 2);
  if (!masked) return Buffer.concat([head, data]);
  const mask = random.bytes(4);
  return Buffer.concat([head, mask, data.map((byte, index) => byte ^ mask[index % 4]!)]);
}

const [CONTINUED, TEXT, BINARY, CLOSE, PING, PONG] = [0, 1, 2, 8, 9, 10];
const utf8 = (text: string) => Buffer.from(text);

const MESSAGES = [
  { type: "PING" },
  { type: "updateFilter", filter: { level: "warn" } },
  { type: "updateFilter", filter: { level: 7, limit: -1 } },
  { type: "updateFilter" },
  ["x", 1, null],
  "é€😀",
  { a: { b: "x".repeat(3_000) } },
].map((value) => JSON.stringify(value));

const code = (number: number, reason: Buffer = Buffer.alloc(0)) =>
  Buffer.concat([Buffer.from([number >> 8, number & 255]), reason]);

/** Frames, and whether a server has to end the connection that they came on. */
type Maker = (random: Random) => { frames: Buffer[]; ends: boolean };

const MAKERS: Readonly<Record<string, Maker>> = {
  "a message in fragments with pings between": (random) => {
    const data = utf8(random.pick(MESSAGES));
    const [one, two] = [random.below(data.length), random.below(data.length)].toSorted((a, b) => a - b) as [
      number,
      number,
    ];
    const ping = frame(random, { operation: PING, data: random.bytes(random.below(126)) });
    return {
      frames: [
        frame(random, { operation: TEXT, data: data.subarray(0, one), final: false }),
        ping,
        frame(random, { operation: CONTINUED, data: data.subarray(one, two), final: false }),
        frame(random, { operation: CONTINUED, data: data.subarray(two) }),
      ],
      ends: false,
    };
  },
  "spoilt text": (random) => ({
    frames: [frame(random, { operation: TEXT, data: utf8(mutateText(random, random.pick(MESSAGES))) })],
    ends: false,
  }),
  "text that is no UTF-8": (random) => ({
    frames: [frame(random, { operation: TEXT, data: Buffer.concat([utf8('"a'), random.pick(NO_UTF8), utf8('"')]) })],
    ends: true,
  }),
  "binary data": (random) => ({ frames: [frame(random, { operation: BINARY, data: random.bytes(20) })], ends: true }),
  "a frame without a mask": (random) => ({
    frames: [frame(random, { operation: TEXT, data: utf8('"a"'), masked: false })],
    ends: false, // as node:http does; the addon waits for the rest of a mask
  }),
  "reserved bits": (random) => ({
    frames: [frame(random, { operation: TEXT, data: utf8('"a"'), reserved: 1 + random.below(7) })],
    ends: true,
  }),
  "an operation that nobody knows": (random) => ({
    frames: [frame(random, { operation: random.pick([3, 4, 5, 6, 7, 11, 12, 15]), data: utf8("a") })],
    ends: true,
  }),
  "a control frame in fragments, or too large": (random) => {
    const operation = random.pick([PING, PONG, CLOSE]);
    const bad = random.chance(0.5) ? { data: random.bytes(126) } : { data: random.bytes(2), final: false };
    return { frames: [frame(random, { operation, ...bad })], ends: true };
  },
  "fragments out of order": (random) => {
    const begun = frame(random, { operation: TEXT, data: utf8('"a'), final: false });
    const late = frame(random, { operation: CONTINUED, data: utf8('"') });
    return { frames: random.chance(0.5) ? [late] : [begun, begun], ends: true };
  },
  "a length that lies": (random) => ({
    frames: [
      frame(random, {
        operation: TEXT,
        data: utf8('"a"'),
        wide: 8,
        length: random.pick([1n << 20n, (1n << 31n) + 1n, 1n << 63n, -1n]),
      }),
    ],
    ends: true,
  }),
  "a length written too long": (random) => ({
    frames: [frame(random, { operation: TEXT, data: utf8('"a"'), wide: random.pick([2, 8] as const) })],
    ends: false,
  }),
  "a message that is too large": (random) => {
    const size = random.pick([66_000, 150_000]);
    return { frames: [frame(random, { operation: TEXT, data: Buffer.alloc(size, "1") })], ends: true };
  },
  "a close frame": (random) => {
    const reasons = [Buffer.alloc(0), utf8("bye"), utf8("é".repeat(61))];
    return {
      frames: [
        frame(random, { operation: CLOSE, data: code(random.pick([1000, 1001, 3000, 4999]), random.pick(reasons)) }),
      ],
      ends: true,
    };
  },
  "a close frame with a code that may not be sent": (random) => {
    const bodies = [
      code(0),
      code(999),
      code(1004),
      code(1005),
      code(1006),
      code(1015),
      code(2999),
      code(5000),
      Buffer.from([3]),
      code(1000, NO_UTF8[0]),
    ];
    return { frames: [frame(random, { operation: CLOSE, data: random.pick(bodies) })], ends: true };
  },
  "spoilt bytes": (random) => {
    const good = random.pick(MESSAGES).slice(0, 300);
    return { frames: [mutateBytes(random, frame(random, { operation: TEXT, data: utf8(good) }))], ends: false };
  },
  "a frame in part": (random) => {
    const bytes = frame(random, { operation: TEXT, data: utf8(random.pick(MESSAGES)) });
    return { frames: [bytes.subarray(0, random.below(bytes.length))], ends: false };
  },
};

const NO_UTF8 = ["ff", "c3", "c080", "eda080", "f4908080", "80"].map((hex) => Buffer.from(hex, "hex"));
const ROWS = Object.keys(MAKERS);
const PATHS = ["/ws", "/ws", "/ws", "/ws/logs", "/ws/observability", "/ws/observability/agents", "/ws/ticker"];
const QUERIES = [
  "",
  "&level=warn",
  "&level=foo",
  "&limit=abc",
  "&since=2026-11-20T00:00:00Z",
  "&entityType=agent&entityId=support",
  "&entityType=x",
  "&%zz=%",
  "&key=wrong",
];
const USER = token({ sub: "ada" });

const GOOD: Readonly<Record<string, string>> = {
  upgrade: "websocket",
  connection: "Upgrade",
  "sec-websocket-version": "13",
  "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
};

const SPOILS: readonly (readonly [name: string, value: string | null])[] = [
  ["upgrade", "h2c"],
  ["upgrade", null],
  ["connection", "keep-alive"],
  ["connection", null],
  ["sec-websocket-version", "8"],
  ["sec-websocket-version", null],
  ["sec-websocket-key", "short"],
  ["sec-websocket-key", "!".repeat(24)],
  ["sec-websocket-key", null],
  ["content-length", "3"],
  ["transfer-encoding", "chunked"],
  ["origin", "https://evil.test"],
  ["sec-websocket-extensions", "permessage-deflate; x=\x80"],
];

export function frameCase(random: Random, host: string): FrameCase {
  const row = random.pick(ROWS);
  const spoilt = random.chance(0.25);
  const path =
    spoilt && random.chance(0.2) ? random.pick(["/ws/nowhere", "/ws/", "/agents", "/ws/logs/x"]) : random.pick(PATHS);
  const query = spoilt ? random.pick(QUERIES) : "";
  const headers: Record<string, string> = { ...GOOD };
  if (random.chance(0.2)) headers["sec-websocket-protocol"] = random.pick(["chat", "a, b"]);
  if (spoilt) {
    const [name, value] = random.pick(SPOILS);
    if (value === null) delete headers[name];
    else headers[name] = value;
  }
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
  const target = `${path}?key=${encodeURIComponent(CONSOLE_KEY)}&token=${USER}${query}`;
  const atOnce = random.chance(0.1);
  const count = path === "/ws" && !atOnce && !spoilt ? random.below(3) : 0;
  const echoes = Array.from({ length: count }, (_, index) =>
    frame(random, { operation: TEXT, data: utf8(JSON.stringify({ index })) }),
  );
  const { frames, ends } = MAKERS[row]!(random);
  return {
    kind: "frames",
    row,
    handshake: Buffer.from(`GET ${target} HTTP/1.1\r\nhost: ${host}\r\n${lines.join("\r\n")}\r\n\r\n`, "latin1"),
    good: !spoilt,
    echoes,
    frames,
    atOnce,
    ends: ends && !atOnce,
  };
}
