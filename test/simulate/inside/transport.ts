/** Stands in for the choice of a transport: whoever has the process may call its dispatch. */
import type { Transport } from "../../../core/http/exchange.ts";

export const chooseTransport = async (): Promise<Transport> => ({
  name: "node",
  async listen(dispatch) {
    simulated.dispatch = dispatch;
    return { port: 1, connections: 0, stop: () => {}, close: async () => simulated.hangUp() };
  },
});
