/** Whose pages may reach what CORS does not protect: connections and protocols that a browser opens without a preflight. */
import { isIP } from "node:net";
import type { Cors } from "./cors.ts";

/**
 * Whether a request may come from a page of `origin`. Programs send no origin; a page of the service itself is no foreigner.
 *
 * @param origin the header `Origin`, empty when there is none
 * @param host the header `Host`
 * @param publicUrl where clients reach the service, as the manifest says
 */
export function isOriginAllowed(origin: string, host: string, cors: Cors, publicUrl: string | undefined): boolean {
  return origin === "" || cors.allows(origin) || isOwn(origin, host, publicUrl);
}

function isOwn(origin: string, host: string, publicUrl: string | undefined): boolean {
  if (!URL.canParse(origin)) return false;
  const page = new URL(origin);
  if (publicUrl !== undefined && page.origin === new URL(publicUrl).origin) return true;
  return page.host === host.toLowerCase() && cannotBeRebound(page.hostname);
}

/** The name of a stranger's page may be made to lead here; an address and `localhost` may not. */
const cannotBeRebound = (hostname: string): boolean =>
  hostname === "localhost" || isIP(hostname.replace(/^\[|\]$/g, "")) !== 0;
