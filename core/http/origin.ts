/**
 * Refuses requests that a browser sends for a foreign page: from pages that were loaded under a name which an attacker made resolve to
 * this service (DNS rebinding), and cross-origin requests that need no CORS preflight ("simple requests").
 */
import { ServiceError } from "../lib/errors.ts";
import { bracketed, hostName, isAddress, isLoopback } from "../lib/host-name.ts";
import type { ServerManifest } from "../manifest/manifest.ts";
import { type ClientOf, compileClients, compileTrust, splitList } from "./client.ts";
import type { Cors } from "./cors.ts";
import { isJsonType } from "./decode.ts";
import type { Exchange } from "./exchange.ts";
import { truncatePath } from "./unknown-path.ts";

// The addresses under which the service is known, from its manifest: they tell its own pages and hosts from foreign ones.

export interface Site {
  /** Whether requests for unknown hosts are refused: when there is no authentication, and only this machine can connect or hosts are listed. */
  readonly onlyKnownHosts: boolean;
  /** Whether the service is known by this host, given with or without a port. */
  isKnown(host: string): boolean;
  /** Origin of `server.publicUrl`; null without one. */
  readonly publicOrigin: string | null;
  /** Whether a peer is a trusted proxy; null when there are none. */
  readonly trusts: ((peer: string) => boolean) | null;
  readonly clientOf: ClientOf;
}

type Settings = Pick<ServerManifest, "publicUrl" | "allowedHosts" | "trustedProxies">;

/** Bound of the cache of hosts that were checked. The clients of a service use few. */
const MAX_REMEMBERED_HOSTS = 32;

export function compileSite({ publicUrl, allowedHosts, trustedProxies }: Settings, onlyKnownHosts: boolean): Site {
  const origin = publicUrl === undefined ? null : new URL(publicUrl);
  const names = new Set(allowedHosts.map((host) => hostName(bracketed(host))));
  if (origin !== null) names.add(hostName(origin.host));
  names.delete(null);
  const remembered = new Set<string>();
  return {
    onlyKnownHosts,
    isKnown(host) {
      if (remembered.has(host)) return true;
      const name = hostName(host);
      if (name === null || !(isLoopback(name) || names.has(name))) return false;
      if (remembered.size === MAX_REMEMBERED_HOSTS) remembered.clear();
      remembered.add(host);
      return true;
    },
    publicOrigin: origin?.origin ?? null,
    trusts: trustedProxies.length === 0 ? null : compileTrust(trustedProxies),
    clientOf: compileClients(trustedProxies),
  };
}

/** The head of a request and the address of its sender. */
type Head = Pick<Exchange, "method" | "header" | "remoteAddress">;

/** Which pages may use a route beside those of the service: all that CORS allows, or only those whose origin CORS names. */
export type AllowedPages = "allowed" | "named";

/** The error for a request whose host is not one of this service's; null when it is. */
export function foreignHost(head: Head, site: Site): ServiceError | null {
  const host = head.header("host");
  const forwarded = forwardedHosts(head, site);
  if (forwarded === null && site.isKnown(host)) return null;
  const asked = forwarded === null || !isInternal(host) ? [host, ...(forwarded ?? [])] : forwarded;
  const named = asked.find((each) => !site.isKnown(each));
  if (named === undefined) return null;
  return new ServiceError(
    "forbidden",
    `the host ${JSON.stringify(truncatePath(named))} is not known here: without auth, requests are answered for localhost, the host of ` +
      `server.publicUrl and those in server.allowedHosts`,
  );
}

/** The hosts that a trusted proxy reports. All are checked: the first of a list may have been written by the client. */
function forwardedHosts(head: Head, { trusts }: Site): string[] | null {
  if (trusts === null) return null;
  const forwarded = head.header("x-forwarded-host");
  return forwarded !== "" && trusts(head.remoteAddress()) ? splitList(forwarded) : null;
}

/**
 * Whether a host is a name without a dot, or an address: what a proxy writes into `Host` for the service behind it. A foreign page that
 * bypasses the proxy may set X-Forwarded-Host as it likes, but its `Host` is the public name that the page was loaded from.
 */
function isInternal(host: string): boolean {
  const name = hostName(host);
  return name !== null && (!name.includes(".") || isAddress(name));
}

const UNSAFE_METHODS: ReadonlySet<string> = new Set(["POST", "PUT", "PATCH", "DELETE"]);

/**
 * The error for a request of a page that may not use a route; null for all others. Must be checked before the credentials, because a
 * browser sends the credentials that it has stored no matter who wrote the page.
 *
 * @param cors settings of the route
 */
export function foreignOrigin(
  head: Head,
  { method, pages }: { method: string; pages?: AllowedPages },
  cors: Cors,
  site: Site,
): ServiceError | null {
  const simpleRequest = UNSAFE_METHODS.has(method) ? foreignSimpleRequest(head, cors, site) : null;
  return simpleRequest ?? (pages === undefined ? null : foreignPage(head, pages, cors, site));
}

/** The error for a cross-origin request that a browser sends without a preflight. */
function foreignSimpleRequest(head: Head, cors: Cors, site: Site): ServiceError | null {
  const origin = head.header("origin");
  if (origin === "" || isJsonType(head.header("content-type"))) return null;
  if (isSameOrigin(origin, head, site) || isNamedOrigin(origin, cors, site)) return null;
  return new ServiceError(
    "forbidden",
    `a ${head.method} from a page of ${truncatePath(origin)} must have the content-type application/json, unless server.cors.origin names ` +
      "that origin",
  );
}

/**
 * The error for a page that may not use a route; null for other pages, and for programs, which send no origin.
 *
 * @param cors settings of the requested path
 * @param action what the page may not do: text for the message
 */
export function foreignPage(
  head: Head,
  pages: AllowedPages,
  cors: Cors,
  site: Site,
  action = "use this",
): ServiceError | null {
  const origin = head.header("origin");
  if (origin === "" || isNamedOrigin(origin, cors, site)) return null;
  if (pages === "allowed" && cors.allows(origin)) return null;
  if (isSameOrigin(origin, head, site) && isRebindingProof(origin, site)) return null;
  const rule =
    pages === "allowed"
      ? "server.cors does not allow them"
      : 'name them in server.cors.origin ("*" names no origin), or the host of the service in server.allowedHosts';
  return new ServiceError("forbidden", `pages of ${truncatePath(origin)} may not ${action}: ${rule}`);
}

const isNamedOrigin = (origin: string, cors: Cors, { publicOrigin }: Site): boolean =>
  origin === publicOrigin || cors.names(origin);

/** Whether the page has the same origin as the requested host, comparing names only. */
function isSameOrigin(origin: string, head: Head, { clientOf }: Site): boolean {
  if (!URL.canParse(origin)) return false;
  const page = new URL(origin);
  const asked = clientOf(head.remoteAddress(), (name) => head.header(name));
  // Without a trusted proxy the scheme is unknown, because an unknown proxy may terminate TLS: assume that of the page.
  const own = asked.origin ?? `${page.protocol}//${asked.host}`;
  return URL.canParse(own) && new URL(own).origin === page.origin && page.origin !== "null";
}

/** Any foreign name can be made to resolve to this service (DNS rebinding); an address, or a name of the service, cannot. */
function isRebindingProof(origin: string, site: Site): boolean {
  const { host, hostname } = new URL(origin);
  return site.isKnown(host) || isAddress(hostname);
}
