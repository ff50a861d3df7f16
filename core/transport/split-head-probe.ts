/** Asks a transport, over a throwaway listener, whether a request line may arrive in two TCP segments. */
import { connect } from "node:net";
import type { Transport } from "../http/exchange.ts";

/** Milliseconds between the pieces: enough for two reads, too little to be felt at boot. */
const GAP = 20;
const PATIENCE = 1_000;

/** True when the request is answered with 200. A listener or connection that fails counts as not passed. */
export async function passesSplitHead(transport: Transport): Promise<boolean> {
  const answer = (exchange: { reply(status: number, headers: [], body: null, close: boolean): void }) =>
    exchange.reply(200, [], null, true);
  try {
    const listening = await transport.listen(answer, { host: "127.0.0.1", port: 0, connections: 8, headLimit: 4096 });
    const passed = await sendSplit(listening.port);
    await listening.close();
    return passed;
  } catch {
    return false;
  }
}

function sendSplit(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    let reply = "";
    socket.setNoDelay(true);
    socket.setEncoding("latin1");
    socket.setTimeout(PATIENCE, () => socket.destroy());
    socket.once("connect", () => {
      socket.write("GET /sp");
      setTimeout(() => socket.write("lit HTTP/1.1\r\nHost: probe\r\n\r\n"), GAP);
    });
    socket.on("data", (text: string) => {
      reply += text;
    });
    socket.on("error", () => {});
    socket.once("close", () => resolve(reply.startsWith("HTTP/1.1 200")));
  });
}
