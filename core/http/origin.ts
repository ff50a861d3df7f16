/**
 * Who stands behind a request that a browser sends. Its user did not, where the page is a stranger's: under a name that was made to
 * lead here (DNS rebinding), or with what browsers send to any site without asking it first (Fetch, "CORS protocol").
 */
import { ServiceError } from "../lib/errors.ts";
import { hostName, isAddress } from "../lib/host-name.ts";
import { splitList } from "./client.ts";
import type { Cors } from "./cors.ts";
import { isJsonType } from "./decode.ts";
import type { Exchange } from "./exchange.ts";
import type { Site } from "./site.ts";
import { truncatePath } from "./unknown-path.ts";

/** The head of a request, and who sent it. */
type Head = Pick<Exchange, "method" | "header" | "remoteAddress">;

/** Whose pages a route serves beside those of the service: all that CORS allows, or those alone that it allows by name. */
export type AllowedPages = "allowed" | "named";

/** The refusal of a request for a host that may be a stranger's; null where there is none. */
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

/** What a trusted proxy was asked for. All of it counts: who comes first in a list may have been written by a client. */
function forwardedHosts(head: Head, { trusts }: Site): string[] | null {
  if (trusts === null) return null;
  const forwarded = head.header("x-forwarded-host");
  return forwarded !== "" && trusts(head.remoteAddress()) ? splitList(forwarded) : null;
}

/**
 * A name that nobody has on the internet, or an address: how proxies call who stands behind them. A page that comes past the proxy
 * can say what it likes in X-Forwarded-Host, but `Host` is the name that it was loaded by.
 */
function isInternal(host: string): boolean {
  const name = hostName(host);
  return name !== null && (!name.includes(".") || isAddress(name));
}

const UNSAFE_METHODS: ReadonlySet<string> = new Set(["POST", "PUT", "PATCH", "DELETE"]);

/**
 * The refusal of a page that is a stranger to a route; null where there is none. It goes before credentials are looked at: a browser
 * sends those that it knows whoever wrote the page.
 *
 * @param cors of the route
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

/** The refusal of what browsers send for a page of another site without asking first. */
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
 * The refusal of a page that is not served; null for the others, and for programs, which send no origin.
 *
 * @param cors of what it asks for
 * @param action what it may not do, for people
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
      : 'name them in server.cors.origin ("*" names nobody), or the host of the service in server.allowedHosts';
  return new ServiceError("forbidden", `pages of ${truncatePath(origin)} may not ${action}: ${rule}`);
}

const isNamedOrigin = (origin: string, cors: Cors, { publicOrigin }: Site): boolean =>
  origin === publicOrigin || cors.names(origin);

/** Whether a page of `origin` was loaded from where its request goes, as far as names tell. */
function isSameOrigin(origin: string, head: Head, { clientOf }: Site): boolean {
  if (!URL.canParse(origin)) return false;
  const page = new URL(origin);
  const asked = clientOf(head.remoteAddress(), (name) => head.header(name));
  // Without a proxy that is believed nobody knows the scheme: one that is not may stand between.
  const own = asked.origin ?? `${page.protocol}//${asked.host}`;
  return URL.canParse(own) && new URL(own).origin === page.origin && page.origin !== "null";
}

/** The name of a stranger's page may be made to lead here; an address, and a name of the service, may not. */
function isRebindingProof(origin: string, site: Site): boolean {
  const { host, hostname } = new URL(origin);
  return site.isKnown(host) || isAddress(hostname);
}
