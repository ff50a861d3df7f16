/** Checks the server (addresses, limits, origins), custom routes and the store. */
import { isIP } from "node:net";
import { bracketed, hostName } from "../lib/host-name.ts";
import { isObject } from "../lib/is-object.ts";
import { parseSize } from "../lib/size.ts";
import { type CheckContext, checkName, checkRepeats, entriesOf, type Json, listOf, mapOf } from "./check.ts";
import { type Path, suggest } from "./manifest.ts";

export function checkServer(check: CheckContext): void {
  const server = mapOf(check.document.server);
  checkTexts(check, ["server", "trustedProxies"], server.trustedProxies, isNetwork, NO_NETWORK);
  checkTexts(check, ["server", "allowedHosts"], server.allowedHosts, isHost, NO_HOST);
  for (const key of ["downloads", "push"]) {
    const { allowPrivate } = mapOf(server[key]);
    const isPlace = (text: string) => isNetwork(text) || isHost(text);
    checkTexts(check, ["server", key, "allowPrivate"], allowPrivate, isPlace, NO_PLACE);
  }
  checkLimits(check, server.limits);
  if (isObject(server.cors)) checkCors(check, ["server", "cors"], server.cors);
  for (const [pattern, settings] of entriesOf(server.corsRoutes)) {
    const path = ["server", "corsRoutes", pattern];
    if (!/^([A-Z]+ )?\/\S*$/.test(pattern)) check.report(path, "must be a path with an optional method before it");
    if (isObject(settings)) checkCors(check, path, settings);
  }
}

/** The default of `limits.body.generation`. It may exceed `uploads`: the document contains it even if it was not written. */
const DEFAULT_GENERATION = "14MiB";

/** `uploads` limits all bodies together, so a single body of the largest permitted size must fit into it. */
function checkLimits(check: CheckContext, limits: unknown): void {
  if (!isObject(limits)) return;
  const { body, uploads = "256MiB" } = limits;
  const sizes = isObject(body) ? [body.default, body.generation] : [body];
  const chosen = sizes.filter((size) => size !== undefined && size !== DEFAULT_GENERATION);
  if (chosen.some((size) => sizeOrNaN(uploads) < sizeOrNaN(size)))
    check.report(
      ["server", "limits", "uploads"],
      "must be at least limits.body: a body of that size would never be accepted",
    );
}

/** Parses a size; NaN when it is invalid, which validation reports. */
function sizeOrNaN(value: unknown): number {
  try {
    return parseSize(value as string);
  } catch {
    return Number.NaN;
  }
}

/** Checks that the scheme is one that Penstock knows itself, or the name of a store plugin. */
export function checkStore(check: CheckContext): void {
  const { store } = check.document;
  if (typeof store !== "string" || /^(memory|sqlite|postgres(ql)?):/.test(store)) return;
  const [name = ""] = store.split(":", 1);
  if (check.plugins.store.includes(name)) return;
  const meant = suggest(name, ["memory", "sqlite", "postgres", ...check.plugins.store]);
  const hint =
    meant !== undefined ? `, did you mean ${meant}:?` : store.includes(":") ? "" : `, did you mean sqlite:${store}?`;
  check.report(["store"], `must be memory:, sqlite:FILE or postgres://...; there is no store plugin "${name}"${hint}`);
}

export const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
/** An origin as browsers send it: nothing follows the host and the port. */
const ORIGIN = /^(\*|null|[a-z][a-z0-9+.-]*:\/\/[^\s/?#@]+)$/i;

function checkCors(check: CheckContext, path: Path, settings: Json): void {
  const { origin, credentials } = settings;
  const isOrigin = (text: string) => ORIGIN.test(text);
  if (typeof origin === "string" && !isOrigin(origin)) check.report([...path, "origin"], `"${origin}" ${NO_ORIGIN}`);
  checkTexts(check, [...path, "origin"], origin, isOrigin, NO_ORIGIN);
  for (const key of ["allowHeaders", "exposeHeaders"])
    checkTexts(check, [...path, key], settings[key], (text) => HEADER_NAME.test(text), "is not a header name");
  if (isObject(origin)) checkName(check, [...path, "origin", "use"], "origin plugin", origin.use, check.plugins.origin);
  if (credentials === true && origin === "*") {
    check.report([...path, "credentials"], 'browsers refuse credentials with origin "*": name the origins', "warning");
  }
}

const NO_NETWORK = "is not an address or network such as 10.0.0.0/8";
const NO_HOST = "is not a host such as desk.example: write a name without a port, or an address";
const NO_PLACE = "is not a host name, an address or a network such as 10.0.0.0/8";
const NO_ORIGIN = "is not an origin such as https://app.example: a browser never sends it";

/** Reports the texts of a list that are not valid. */
function checkTexts(
  check: CheckContext,
  path: Path,
  list: unknown,
  isValid: (text: string) => boolean,
  problem: string,
): void {
  for (const [index, text] of listOf(list).entries())
    if (typeof text === "string" && !isValid(text)) check.report([...path, index], `"${text}" ${problem}`);
}

/** Whether a text is a host name or an address, without a port. */
function isHost(text: string): boolean {
  const host = bracketed(text);
  return hostName(host) !== null && hostName(`${host}:1`) !== null;
}

function isNetwork(text: string): boolean {
  const [address = "", bits, ...rest] = text.split("/");
  const version = isIP(address);
  if (version === 0 || rest.length > 0) return false;
  return bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) <= (version === 4 ? 32 : 128));
}

export function checkRoutes(check: CheckContext): void {
  const routes = listOf(check.document.routes);
  const names = routes.map((route) => (isObject(route) ? route.use : undefined));
  const { route, socket } = check.plugins;
  for (const [index, name] of names.entries()) {
    checkName(check, ["routes", index, "use"], "route plugin", name, [...route, ...socket]);
  }
  checkRepeats(check, ["routes"], names);
}
