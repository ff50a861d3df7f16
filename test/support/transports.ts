/** The network transports that this machine can run: uWebSockets.js has no binary for every platform. */
import { createUwsTransport } from "../../core/transport/uws.ts";

const uws = await createUwsTransport().then(
  () => true,
  (error: Error) => {
    console.error(`uWebSockets.js does not load here, its tests are left out: ${error.message}`);
    return false;
  },
);

export const TRANSPORTS: readonly ("uws" | "node")[] = uws ? ["uws", "node"] : ["node"];
