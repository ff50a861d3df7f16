/** A TCP proxy before PostgreSQL that lets everything through but notices, as a pooler does that gives each statement a connection. */
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { addressOf, urlThrough } from "./postgres.ts";

/** The type of a NotificationResponse; every message of the server has one byte of type and four of length. */
const NOTIFICATION = "A".charCodeAt(0);
const HEAD_BYTES = 5;

function withoutNotices(): (chunk: Buffer) => Buffer {
  let rest: Buffer = Buffer.alloc(0);
  return (chunk) => {
    rest = Buffer.concat([rest, chunk]);
    const kept: Buffer[] = [];
    while (rest.length >= HEAD_BYTES) {
      const length = 1 + rest.readUInt32BE(1);
      if (rest.length < length) break;
      if (rest[0] !== NOTIFICATION) kept.push(rest.subarray(0, length));
      rest = rest.subarray(length);
    }
    return Buffer.concat(kept);
  };
}

/** @returns the URL of the database behind the proxy */
export async function startDeafProxy(t: { after(end: () => unknown): void }, url: string): Promise<string> {
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const upstream = connect(addressOf(url));
    const filter = withoutNotices();
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on("error", () => socket.destroy());
      socket.on("close", () => {
        client.destroy();
        upstream.destroy();
        sockets.delete(socket);
      });
    }
    client.on("data", (chunk) => upstream.write(chunk));
    upstream.on("data", (chunk) => client.write(filter(chunk)));
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return urlThrough((server.address() as { port: number }).port, url);
}
