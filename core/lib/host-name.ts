/** Names of hosts, as requests and settings write them. */
import { isIP } from "node:net";

/** What browsers put before and after the colon of a port; a name that URLs would read in another way is none. */
const HOST_AND_PORT = /^[\w.:[\]-]{1,300}$/;

/** `LOCALHOST.:3141` -> `localhost`, `[0::1]:80` -> `[::1]`, as browsers see it and without the port; null for what is no host. */
export function hostName(host: string): string | null {
  const url = `http://${host}`;
  if (!HOST_AND_PORT.test(host) || !URL.canParse(url)) return null;
  return new URL(url).hostname.replace(/\.$/, "");
}

/** An address as a URL has it: one of IPv6 in brackets. */
export const bracketed = (host: string): string => (isIP(host) === 6 ? `[${host}]` : host);

/** Whether a name, as `hostName` gives it, leads to this machine whoever resolves it. */
export const isLoopback = (name: string): boolean =>
  name === "localhost" ||
  name.endsWith(".localhost") ||
  name === "[::1]" ||
  (isIP(name) === 4 ? name.startsWith("127.") : /^\[::ffff:7f[0-9a-f]{2}:[0-9a-f]{1,4}\]$/.test(name));

/** Whether it is an address, which nobody's name server can make to lead elsewhere. */
export const isAddress = (name: string): boolean => isIP(name.replace(/^\[|\]$/g, "")) !== 0;
