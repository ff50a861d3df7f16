/** Chooses the network transport according to `server.transport`. */
import type { Logger } from "pino";
import type { Transport } from "../http/exchange.ts";
import { firstFault } from "./head-probe.ts";
import { createUwsTransport } from "./uws.ts";

type TransportSetting = "auto" | "uws" | "node";

const LOOPBACK = /^(localhost|127(\.\d{1,3}){3}|::1|::ffff:127(\.\d{1,3}){3})$/i;

/** Loaded on demand, because it is rarely used. */
const createNodeTransport = async () => (await import("./node.ts")).createNodeTransport();

const isMissing = (error: unknown): boolean => {
  const { cause } = error as { cause?: { code?: unknown } };
  return cause?.code === "ERR_MODULE_NOT_FOUND";
};

/**
 * `node` and `uws` are used as named: `uws` rejects when the addon does not load. `auto` uses uws if the addon loads and
 * either only this machine can connect or the addon passes the probes of request heads; otherwise node, with one warning that says
 * why and what to do. On loopback `auto` costs no more than loading the addon.
 */
export async function chooseTransport(setting: TransportSetting, host: string, logger: Logger): Promise<Transport> {
  if (setting === "node") return createNodeTransport();
  if (setting === "uws") return createUwsTransport();
  let transport: Transport;
  try {
    transport = await createUwsTransport();
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    const text = `serving over node:http, which is slower: ${why}. Set server.transport: node to accept that silently`;
    // A missing package is the user's choice; one that is installed but does not load is a surprise.
    logger[isMissing(error) ? "info" : "warn"](text);
    return createNodeTransport();
  }
  const fault = LOOPBACK.test(host) ? null : await firstFault(transport);
  if (fault === null) return transport;
  logger.warn(
    `serving over node:http, which is slower: the uWebSockets.js of Node ${process.version} ${fault}, ` +
      `and ${host} is open to the network. Put a reverse proxy in front and listen on ` +
      "127.0.0.1, or set server.transport: uws if every client is near, or node to accept this silently",
  );
  return createNodeTransport();
}
