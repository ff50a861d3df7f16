/** Names of hosts, in requests and in settings. */
import { isIP } from "node:net";

/** Characters of a host and a port. Others, such as `/` or `@`, would make a URL parser read something else as the host. */
const HOST_AND_PORT = /^[\w.:[\]-]{1,300}$/;

/** `LOCALHOST.:3141` -> `localhost`, `[0::1]:80` -> `[::1]`: the form in browsers, without the port; null for text that is not a host. */
export function hostName(host: string): string | null {
  const url = `http://${host}`;
  if (!HOST_AND_PORT.test(host) || !URL.canParse(url)) return null;
  return new URL(url).hostname.replace(/\.$/, "");
}

/** A host as in a URL: IPv6 addresses are in brackets. */
export const bracketed = (host: string): string => (isIP(host) === 6 ? `[${host}]` : host);

/** Whether a name, as returned by `hostName`, is always this machine, independent of name servers. */
export const isLoopback = (name: string): boolean =>
  name === "localhost" ||
  name.endsWith(".localhost") ||
  name === "[::1]" ||
  (isIP(name) === 4 ? name.startsWith("127.") : /^\[::ffff:7f[0-9a-f]{2}:[0-9a-f]{1,4}\]$/.test(name));

/** Whether a name is an IP address, which no name server can redirect. */
export const isAddress = (name: string): boolean => isIP(name.replace(/^\[|\]$/g, "")) !== 0;
