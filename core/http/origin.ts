/** Whose pages may reach what CORS does not protect: connections and protocols that a browser opens without a preflight. */
import { isIP } from "node:net";
import { ServiceError } from "../errors.ts";
import type { Cors } from "./cors.ts";
import type { Exchange } from "./exchange.ts";
import { shown } from "./unanswered.ts";

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

/** @throws ServiceError `forbidden` for a page of a foreign origin */
export function requireOrigin(exchange: Exchange, cors: Cors, publicUrl: string | undefined): void {
  const origin = exchange.header("origin");
  if (isOriginAllowed(origin, exchange.header("host"), cors, publicUrl)) return;
  throw new ServiceError("forbidden", `pages of ${shown(origin)} may not use this: server.cors does not allow them`);
}

/**
 * What has no type of JSON, browsers send for any page without asking first (Fetch, "CORS protocol"): so it is asked here.
 *
 * @throws ServiceError `forbidden` for a page of a foreign origin
 */
export function requireAnnounced(exchange: Exchange, cors: Cors, publicUrl: string | undefined): void {
  const origin = exchange.header("origin");
  if (origin !== "" && !isSameHost(origin, exchange.header("host"))) requireOrigin(exchange, cors, publicUrl);
}

/** Whether a page of `origin` was loaded from where its request goes, as far as names tell. */
const isSameHost = (origin: string, host: string): boolean =>
  URL.canParse(origin) && new URL(origin).host === host.toLowerCase();

function isOwn(origin: string, host: string, publicUrl: string | undefined): boolean {
  if (!URL.canParse(origin)) return false;
  const page = new URL(origin);
  if (publicUrl !== undefined && page.origin === new URL(publicUrl).origin) return true;
  return isSameHost(origin, host) && cannotBeRebound(page.hostname);
}

/** The name of a stranger's page may be made to lead here; an address and `localhost` may not. */
const cannotBeRebound = (hostname: string): boolean =>
  hostname === "localhost" || isIP(hostname.replace(/^\[|\]$/g, "")) !== 0;
