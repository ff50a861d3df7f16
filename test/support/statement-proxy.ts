/**
 * A TCP proxy before PostgreSQL that knows where statements begin and end, and asks for the fate of each: when it goes on, and whether
 * the connection breaks before it, behind it, or when only its answer is missing.
 */
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { addressOf, urlThrough } from "./postgres.ts";

/**
 * `pass`: nothing happens. `before`: the connection breaks, and the server never gets the statement. `sent`: it breaks as soon as the
 * server was given the statement. `late`: it breaks, and the server gets the statement some time afterwards. `answered`: it breaks when the server is through, and the client does not know. `terminated`: the
 * server itself ends the session meanwhile.
 */
export type End = "pass" | "before" | "sent" | "late" | "answered" | "terminated";

export interface Fate {
  /** Milliseconds before it goes on. */
  readonly delay: number;
  readonly end: End;
}

export interface StatementProxy {
  /** Of the database behind it. */
  readonly url: string;
  /** Asked for every statement, which is what the server answers at once: a query, or all messages up to Sync. Null: all pass. */
  fate: (() => Fate) | null;
  /** Whether new connections are refused. */
  refusing: boolean;
  /** How many statements met each end. */
  readonly ends: Record<End, number>;
  /** Resolves when every statement has had its fate. */
  settled(): Promise<void>;
  close(): Promise<void>;
}

const LATE_MS = 30;

const READY_FOR_QUERY = 0x5a;
const BACKEND_KEY_DATA = 0x4b;
const QUERY = 0x51;
const SYNC = 0x53;

/** @param terminate ends the session of the server process `pid` */
export async function startStatementProxy(
  url: string,
  terminate: (pid: number) => Promise<unknown> = async () => {},
): Promise<StatementProxy> {
  const sockets = new Set<Socket>();
  const underWay = new Set<Promise<void>>();
  const keep = (socket: Socket) => {
    sockets.add(socket);
    socket.setNoDelay(true);
    socket.on("error", () => socket.destroy());
    socket.on("close", () => sockets.delete(socket));
  };

  function serve(client: Socket): void {
    keep(client);
    if (proxy.refusing) {
      client.destroy();
      return;
    }
    const upstream = connect(addressOf(url));
    keep(upstream);
    const breakUp = () => {
      client.destroy();
      upstream.destroy();
    };
    let late = false;
    client.on("close", () => {
      if (!late) upstream.destroy();
    });
    upstream.on("close", breakUp);

    let pid = 0;
    let swallowing = false;
    const answers = messages(false, (type, message) => {
      if (type === BACKEND_KEY_DATA) pid = message.readInt32BE(5);
      if (swallowing && type === READY_FOR_QUERY) breakUp();
    });
    upstream.on("data", (chunk: Buffer) => {
      answers(chunk);
      if (!swallowing) client.write(chunk);
    });

    async function send(statement: Buffer[]): Promise<void> {
      const { delay, end } = proxy.fate?.() ?? { delay: 0, end: "pass" };
      proxy.ends[end]++;
      if (delay > 0) await sleep(delay);
      if (end === "before") return breakUp();
      swallowing = end === "answered" || end === "late";
      late = end === "late";
      if (late) {
        client.destroy();
        await sleep(LATE_MS);
      }
      if (end === "terminated") terminate(pid).catch(() => undefined);
      upstream.write(Buffer.concat(statement), () => {
        if (end === "sent") breakUp();
      });
    }

    /** Statements keep their order, however long one of them waits. */
    let turn = Promise.resolve();
    let statement: Buffer[] = [];
    const asked = messages(true, (type, message) => {
      statement.push(message);
      // The startup, a password and the goodbye pass as they are.
      const pass = type === null || (type !== QUERY && type !== SYNC && statement.length === 1 && !PARTS.has(type));
      if (type !== QUERY && type !== SYNC && !pass) return;
      const whole = statement;
      statement = [];
      turn = turn.then(() => (pass ? void upstream.write(Buffer.concat(whole)) : send(whole)));
      const current = turn;
      underWay.add(current);
      void current.finally(() => underWay.delete(current));
    });
    client.on("data", asked);
  }

  const server = createServer(serve);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("the proxy has no port");
  const proxy: StatementProxy = {
    url: urlThrough(address.port, url),
    fate: null,
    refusing: false,
    ends: { pass: 0, before: 0, sent: 0, late: 0, answered: 0, terminated: 0 },
    async settled() {
      while (underWay.size > 0) await Promise.all(underWay);
    },
    async close() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, "close");
    },
  };
  return proxy;
}

/** Parse, Bind, Describe, Execute, Close and Flush: the server answers them when Sync comes. */
const PARTS = new Set([..."PBDECH"].map((letter) => letter.charCodeAt(0)));

/**
 * Cuts a stream into messages of the protocol: a letter, the length, the rest.
 *
 * @param startup whether the first one comes without a letter, as a client's does
 */
function messages(startup: boolean, found: (type: number | null, message: Buffer) => void): (chunk: Buffer) => void {
  let rest = Buffer.alloc(0);
  let first = startup;
  return (chunk) => {
    rest = rest.length === 0 ? Buffer.from(chunk) : Buffer.concat([rest, chunk]);
    for (;;) {
      const letter = first ? 0 : 1;
      if (rest.length < letter + 4) return;
      const length = letter + rest.readInt32BE(letter);
      if (rest.length < length) return;
      found(first ? null : rest[0]!, rest.subarray(0, length));
      rest = rest.subarray(length);
      first = false;
    }
  };
}
