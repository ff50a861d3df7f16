/** A proxy that serves something below a path which it strips, as a service behind `publicUrl` with a base path is reached. */
import { createServer, request } from "node:http";
import { type AddressInfo, connect } from "node:net";

/**
 * @param sockets whether it lets WebSockets through
 * @returns the address of the service behind it, with a slash at the end
 */
export async function startPrefixProxy(
  test: { after(callback: () => Promise<void>): void },
  { prefix, port, sockets }: { prefix: string; port: number; sockets: boolean },
): Promise<string> {
  const inside = (url: string | undefined) => (url?.startsWith(`${prefix}/`) ? url.slice(prefix.length) : null);
  const server = createServer((incoming, reply) => {
    const path = inside(incoming.url);
    if (path === null) {
      reply.writeHead(404).end("this is the proxy");
      return;
    }
    const { method, headers } = incoming;
    const forwarded = request({ host: "127.0.0.1", port, path, method, headers }, (answer) => {
      reply.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(reply);
    });
    forwarded.on("error", () => reply.destroy());
    reply.on("close", () => forwarded.destroy());
    incoming.pipe(forwarded);
  });
  server.on("upgrade", (incoming, client) => {
    const path = inside(incoming.url);
    if (!sockets) {
      client.destroy();
      return;
    }
    const upstream = connect(port, "127.0.0.1");
    for (const [socket, other] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      socket.on("error", () => other.destroy());
      socket.on("close", () => other.destroy());
    }
    const fields = incoming.rawHeaders.map((text, index) => (index % 2 === 0 ? `${text}: ` : `${text}\r\n`)).join("");
    upstream.write(`GET ${path ?? "/"} HTTP/1.1\r\n${fields}\r\n`);
    upstream.pipe(client).pipe(upstream);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  test.after(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}${prefix}/`;
}
