/** A listener of uWebSockets.js that replies with the text, or streams the chunks, of the seed in its query; it says its port on standard output. */
import type { Exchange } from "../../core/http/exchange.ts";
import { createUwsTransport } from "../../core/transport/uws.ts";
import { chunksOf, wholeOf } from "./short-writes.ts";

const HEADERS = ["content-type", "text/plain"];

function atOnce(exchange: Exchange): void {
  exchange.begin(200, HEADERS);
  for (const chunk of chunksOf(Number(exchange.query))) exchange.write(chunk);
  exchange.end();
}

async function paced(exchange: Exchange): Promise<void> {
  exchange.begin(200, HEADERS);
  for (const [index, chunk] of chunksOf(Number(exchange.query)).entries()) {
    if (exchange.closed) return;
    if (!exchange.write(chunk)) await exchange.drained();
    else if (index % 7 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  exchange.end();
}

const transport = await createUwsTransport();
const listening = await transport.listen(
  (exchange) => {
    if (exchange.path === "/small") exchange.reply(200, HEADERS, "x".repeat(5_000));
    else if (exchange.path === "/whole") exchange.reply(200, HEADERS, wholeOf(Number(exchange.query)));
    else if (exchange.path === "/paced") void paced(exchange);
    else if (exchange.path === "/at-once") atOnce(exchange);
    else setImmediate(() => exchange.cork(() => atOnce(exchange)));
  },
  { host: "127.0.0.1", port: 0, connections: 10, headLimit: 16_384, stall: 60_000 },
);
process.stdout.write(`${listening.port}\n`);
