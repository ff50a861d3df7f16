/** CORS headers of replies and preflights, compiled from the manifest. */
import type { HeaderList } from "./exchange.ts";

export interface CorsSettings {
  /** `*` for all origins, a list, or a function that returns the allowed origin, or undefined to reject it. */
  origin: "*" | readonly string[] | ((origin: string) => string | undefined);
  allowHeaders?: readonly string[];
  allowMethods?: readonly string[];
  exposeHeaders?: readonly string[];
  /** Seconds. */
  maxAge?: number;
  credentials?: boolean;
}

export interface Cors {
  /** The headers that every reply gets, or null when they depend on the origin of the request. */
  readonly constant: HeaderList | null;
  /** Headers of a reply to a request from `origin` (empty when it has none). */
  headers(origin: string): HeaderList;
  /** Whether pages of `origin` may read replies. */
  allows(origin: string): boolean;
  /** Whether the settings name this origin. `*` allows every origin and names none. */
  names(origin: string): boolean;
  /** Headers of the answer to a preflight. */
  preflight(origin: string, requestedHeaders: string, allow: string): HeaderList;
}

/** Response headers that scripts in a browser may read. */
const EXPOSED = [
  "x-request-id",
  "x-error-code",
  "x-error-source",
  "retry-after",
  "x-vercel-ai-ui-message-stream",
  "x-execution-id",
  "x-run-id",
  "x-approval-id",
  "x-warning",
  "idempotency-replayed",
  "mcp-session-id",
  "www-authenticate",
];
const HEADER_NAMES = /^[A-Za-z0-9_\-, ]{1,2048}$/;

const NEVER = () => false;

/** Settings that add no headers: `cors: false`. */
export const NO_CORS: Cors = { constant: [], headers: () => [], allows: NEVER, names: NEVER, preflight: () => [] };

export function compileCors(settings: CorsSettings): Cors {
  const credentials = settings.credentials ?? false;
  const expose = [...new Set([...EXPOSED, ...(settings.exposeHeaders ?? [])])].join(", ");
  const shared: string[] = ["access-control-expose-headers", expose];
  if (credentials) shared.push("access-control-allow-credentials", "true");
  const allowed = matcher(settings.origin);
  // `*` even with credentials, where browsers refuse it: echoing every origin instead would open the service to every site.
  const constant = settings.origin === "*" ? ["access-control-allow-origin", "*", ...shared] : null;

  const headers = (origin: string): HeaderList => {
    if (constant !== null) return constant;
    const answer = origin === "" ? undefined : allowed(origin);
    if (answer === undefined) return ["vary", "Origin"];
    return ["access-control-allow-origin", answer, "vary", "Origin", ...shared];
  };
  const preflight = (origin: string, requestedHeaders: string, allow: string): HeaderList => {
    const answer = headers(origin);
    if (!answer.includes("access-control-allow-origin")) return answer;
    const list = [...answer, "access-control-allow-methods", (settings.allowMethods ?? [allow]).join(", ")];
    const names = settings.allowHeaders?.join(", ") ?? (HEADER_NAMES.test(requestedHeaders) ? requestedHeaders : "");
    if (names !== "") list.push("access-control-allow-headers", names);
    if (settings.maxAge !== undefined) list.push("access-control-max-age", String(settings.maxAge));
    return list;
  };
  const allows = (origin: string) => {
    const answer = constant === null ? allowed(origin) : "*";
    return answer === "*" || answer === origin;
  };
  const names = (origin: string) => constant === null && allowed(origin) === origin;
  return { constant, headers, allows, names, preflight };
}

function matcher(origin: CorsSettings["origin"]): (origin: string) => string | undefined {
  if (typeof origin === "function") return origin;
  const known = new Set(origin);
  return (given) => (known.has(given) ? given : undefined);
}
