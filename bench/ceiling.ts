/**
 * The bare uWebSockets.js server: sends prepared replies and does nothing else but read and parse a POST's JSON.
 * Its rate is the maximum for any server on this transport on this machine.
 */
import uws, { type HttpResponse } from "uWebSockets.js";
import type { Reply } from "./capture.ts";

interface Ready {
  status: string;
  headers: [string, string][];
  chunks: Buffer[];
  streamed: boolean;
}

const decoder = new TextDecoder();

function send(response: HttpResponse, ready: Ready): void {
  response.cork(() => {
    response.writeStatus(ready.status);
    for (const [name, value] of ready.headers) response.writeHeader(name, value);
    if (!ready.streamed) {
      response.end(ready.chunks[0]);
      return;
    }
    for (const chunk of ready.chunks) response.write(chunk);
    response.end();
  });
}

/** Reads the body, parses it, and replies. */
function receive(response: HttpResponse, ready: Ready): void {
  let gone = false;
  let rest = "";
  response.onAborted(() => {
    gone = true;
  });
  response.onData((bytes, last) => {
    rest += decoder.decode(bytes);
    if (!last || gone) return;
    JSON.parse(rest);
    send(response, ready);
  });
}

process.once("message", (replies: Reply[]) => {
  const table = new Map<string, Ready>();
  for (const { method, path, status, headers, chunks, streamed } of replies) {
    table.set(`${method.toLowerCase()} ${path.split("?")[0]}`, {
      status,
      headers,
      streamed,
      chunks: chunks.map((text) => Buffer.from(text)),
    });
  }
  // Requests that differ in a number get the only reply there is.
  const only = table.size === 1 ? [...table.values()][0] : undefined;
  // Undocumented switch: no `uWebSockets: 20` header, as in the gateway.
  (uws as unknown as { _cfg(option: string): void })._cfg("silent");
  uws
    .App()
    .any("/*", (response, request) => {
      const method = request.getMethod();
      const ready = table.get(`${method} ${request.getUrl()}`) ?? only;
      if (!ready) response.writeStatus("404 Not Found").end();
      else if (method === "post") receive(response, ready);
      else send(response, ready);
    })
    .listen("127.0.0.1", 0, (socket) => {
      if (!socket) throw new Error("the bare server cannot listen");
      process.send?.({ port: uws.us_socket_local_port(socket) });
    });
});
