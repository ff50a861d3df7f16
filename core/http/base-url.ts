/** The address of the service that its documents and log lines name, without a slash at the end. */
/**
 * @param publicUrl `server.publicUrl`, which may have a base path
 * @param address where the service listens, such as `http://0.0.0.0:3141`; used when there is no public address
 */
export const baseUrl = (publicUrl: string | undefined, address: string): string =>
  (publicUrl ?? reachable(address)).replace(/(?<!\/)\/+$/, "");

/** `0.0.0.0` and `[::]` mean all interfaces and cannot be called, so the loopback address stands in for them. */
const reachable = (address: string) =>
  address.replace(/^(?<scheme>https?:\/\/)(0\.0\.0\.0|\[::\])(?=[:/]|$)/, "$<scheme>127.0.0.1");
