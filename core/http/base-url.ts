/** The address that documents name, without a slash at its end. */

/**
 * @param publicUrl `server.publicUrl`, which may have a base path
 * @param address where the service listens, e.g. `http://0.0.0.0:3141`: stands in where no public address is named
 */
export const baseUrl = (publicUrl: string | undefined, address: string): string =>
  (publicUrl ?? reachable(address)).replace(/(?<!\/)\/+$/, "");

/** Every address of the machine is no address to call: on this machine, the loopback one is. */
const reachable = (address: string) =>
  address.replace(/^(?<scheme>https?:\/\/)(0\.0\.0\.0|\[::\])(?=[:/]|$)/, "$<scheme>127.0.0.1");
