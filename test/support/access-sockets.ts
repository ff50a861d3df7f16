/** Contract, "WebSocket authentication", as tables: sockets beside the routes of access-table.ts. */
import { type Credential, credentials, type Signer } from "./access-credentials.ts";
import type { Endpoint, Needs } from "./access-table.ts";

const socket = (path: string, authNext: Needs, legacy: Needs, listed = true): Endpoint => ({
  method: "WS",
  path,
  authNext,
  legacy,
  listed,
});

/** "Default console routes" and "Legacy `auth`". */
export const CONTRACT_SOCKETS: readonly Endpoint[] = [
  socket("/ws", "console", "public"),
  socket("/ws/logs", "console", "public"),
  socket("/ws/observability", "console", "either"),
  socket("/ws/observability/deep/er", "console", "either"),
  socket("/v1/responses", "user", "user"),
];

/** Those of the tests, by what their path says of them. `**` is asked for as `deep`. */
export const CUSTOM_SOCKETS: readonly Endpoint[] = [
  socket("/sockets/:id", "user", "custom", false),
  socket("/sockets/:id/below/**", "user", "custom", false),
  socket("/ws/:name/mine", "user", "custom", false),
  socket("/observability/live", "console", "either", false),
  socket("/api/memory/live", "user", "user", false),
];

/** What no socket answers is asked for what a custom one there would be, or the one whose path it spells otherwise; a route is none. */
export const NO_SOCKETS: readonly Endpoint[] = [
  socket("/nowhere", "user", "custom", false),
  socket("/ws//", "console", "public", false),
  socket("/agents", "user", "custom", false),
  socket("/healthz", "user", "custom", false),
  socket("/observability/traces", "console", "either", false),
  socket("/ws/observability/a/b/c/d", "console", "either", false),
];

/** What a handshake may carry: all that a request may, and tokens and the bypass of development in its query. */
export function socketCredentials(signer: Signer): Credential[] {
  const all = credentials(signer).map((credential): Credential => {
    if (credential.name === "token in the query") return { ...credential, worth: "user" };
    if (credential.name === "development in the query") return { ...credential, worth: "development" };
    return credential;
  });
  const good = signer.sign();
  const inQuery = all.flatMap(({ name, worth, headers = {}, query }): Credential[] => {
    const token = /^Bearer (\S+)$/.exec(headers.authorization ?? "")?.[1];
    if (token === undefined || query !== undefined || Object.keys(headers).length > 1) return [];
    return [{ name: `${name}, as a parameter`, worth, query: `?token=${encodeURIComponent(token)}` }];
  });
  return [
    ...all,
    ...inQuery,
    {
      name: "a bad token in the header, a good one in the query",
      worth: "nothing",
      headers: { authorization: "Bearer x" },
      query: `?token=${good}`,
    },
    {
      name: "another scheme in the header, a token in the query",
      worth: "user",
      headers: { authorization: "Basic eDp5" },
      query: `?token=${good}`,
    },
    { name: "an empty token", worth: "nothing", query: "?token=" },
    { name: "a token under another name", worth: "nothing", query: `?access_token=${good}` },
    { name: "a token with its scheme", worth: "nothing", query: `?token=Bearer%20${good}` },
    { name: "development in the query: 1", worth: "nothing", query: "?dev=1" },
    { name: "development in the query: TRUE", worth: "nothing", query: "?dev=TRUE" },
    { name: "development in the query, withdrawn", worth: "nothing", query: "?dev=true&dev=false" },
    { name: "a token as a subprotocol", worth: "nothing", headers: { "sec-websocket-protocol": `bearer, ${good}` } },
  ];
}
