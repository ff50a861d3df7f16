/**
 * PGlite, which is PostgreSQL in WebAssembly, with pgvector, on a port. It has one session, which all connections share: one at a time, as
 * long as its transaction lasts. So it is to its clients what a pooler is that lends one connection.
 */
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { createServer, type Socket } from "node:net";
import { PGlite } from "@electric-sql/pglite";
import { vector } from "@electric-sql/pglite/vector";

interface PGliteServer {
  /** Of the only database. */
  readonly url: string;
  close(): Promise<void>;
}

const SYNC = "S".charCodeAt(0);
const QUERY = "Q".charCodeAt(0);
const TERMINATE = "X".charCodeAt(0);

export async function startPGlite(): Promise<PGliteServer> {
  const db = await PGlite.create({ extensions: { vector } });
  // What shows clients that a connection is not a session of its own: they prepare and set nothing.
  await db.exec(
    "CREATE FUNCTION pg_backend_pid() RETURNS int LANGUAGE sql RETURN -1; SET search_path = public, pg_catalog",
  );
  /** Whose turn it is: the end of the turn that was taken last. */
  let turns = Promise.resolve();

  async function serve(socket: Socket): Promise<void> {
    let endTurn: (() => void) | null = null;
    const takeTurn = async () => {
      const before = turns;
      turns = new Promise((resolve) => {
        endTurn = resolve;
      });
      await before;
    };
    try {
      for await (const statement of statementsOf(socket)) {
        if (endTurn === null) await takeTurn();
        const answer: Uint8Array[] = [];
        await db.execProtocolRawStream(statement, { onRawData: (data) => void answer.push(new Uint8Array(data)) });
        if (socket.writable) socket.write(readyOnce(Buffer.concat(answer)));
        if (db.isInTransaction()) continue;
        (endTurn as (() => void) | null)?.();
        endTurn = null;
      }
    } catch {
      // The connection broke.
    }
    if (endTurn !== null && db.isInTransaction()) await db.exec("ROLLBACK");
    (endTurn as (() => void) | null)?.();
    socket.destroy();
  }

  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => undefined);
    socket.on("close", () => sockets.delete(socket));
    void serve(socket);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `postgres://postgres@127.0.0.1:${(server.address() as AddressInfo).port}/postgres`,
    async close() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await turns;
      await db.close();
    },
  };
}

/** ReadyForQuery, before its last byte. */
const READY = Buffer.from("Z\0\0\0\x05", "latin1");
const READY_BYTES = READY.length + 1;

/** After an error PGlite says twice that it is ready, as no server does: the driver takes the second one for the end of the next query. */
function readyOnce(answer: Buffer): Buffer {
  const isReadyAt = (at: number) => at >= 0 && answer.subarray(at, at + READY.length).equals(READY);
  const last = answer.length - READY_BYTES;
  return isReadyAt(last) && isReadyAt(last - READY_BYTES) ? answer.subarray(0, last) : answer;
}

/** What is answered at once: the startup, a query, or all messages up to Sync. */
async function* statementsOf(socket: Socket): AsyncGenerator<Uint8Array, void> {
  let bytes = Buffer.alloc(0);
  /** Where the next message begins. */
  let at = 0;
  let isStarted = false;
  for await (const piece of socket as AsyncIterable<Buffer>) {
    bytes = Buffer.concat([bytes, piece]);
    for (;;) {
      const type = isStarted ? bytes[at] : QUERY;
      const lengthAt = isStarted ? at + 1 : at;
      if (type === TERMINATE) return;
      if (bytes.length < lengthAt + 4) break;
      const end = lengthAt + bytes.readInt32BE(lengthAt);
      if (bytes.length < end) break;
      at = end;
      if (type !== SYNC && type !== QUERY) continue;
      yield new Uint8Array(bytes.subarray(0, end));
      isStarted = true;
      bytes = bytes.subarray(end);
      at = 0;
    }
  }
}
