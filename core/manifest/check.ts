/** Checks of the server, agents and MCP, and what all checks of references share. The document may be invalid: nothing relies on its structure. */

import { isIP } from "node:net";
import { DURATION_PATTERN, parseDuration } from "../lib/duration.ts";
import { bracketed, hostName, isLoopback } from "../lib/host-name.ts";
import { isObject } from "../lib/is-object.ts";
import { parseSize } from "../lib/size.ts";
import type { PluginKind } from "../plugin/plugin.ts";
import { type CompileResult, compileCondition, compileTemplate, isTemplate, SCOPES } from "./expression.ts";
import { hint, type Issue, type Path, suggest } from "./manifest.ts";
import { agentToolName, clientOf, exposedName, resumeToolName, workflowToolName } from "./mcp-names.ts";

/** Names of the plugins that were loaded. */
export type KnownPlugins = Readonly<Record<PluginKind, readonly string[]>>;

export type Json = Readonly<Record<string, unknown>>;

export interface CheckContext {
  readonly document: Json;
  readonly plugins: KnownPlugins;
  /** Whether the name of a section is misspelt, so that its content is unknown. The misspelling is reported elsewhere. */
  readonly hasMisspeltSection: boolean;
  /** @param offset of a character in the text at this path, to place the issue there */
  report(path: Path, message: string, severity?: Issue["severity"], offset?: number): void;
  /** Whether the file itself has a value there, as opposed to a default. */
  isWritten(path: Path): boolean;
}

export const entriesOf = (value: unknown): [string, unknown][] => (isObject(value) ? Object.entries(value) : []);

/** The value if it is a map, else an empty one. */
export const mapOf = (value: unknown): Json => (isObject(value) ? value : {});

/** The entries that are maps: what else stands there is reported by the schema. */
export const mapsOf = (value: unknown): [string, Json][] =>
  entriesOf(value).filter((entry): entry is [string, Json] => isObject(entry[1]));

export const keysOf = (value: unknown): string[] => (isObject(value) ? Object.keys(value) : []);

export const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);

/** Reports a name that is not among `known`: `unknown tool "ad", did you mean "add"?` */
export function checkName(
  check: CheckContext,
  path: Path,
  what: string,
  name: unknown,
  known: readonly string[],
): void {
  if (typeof name !== "string" || name === "" || known.includes(name)) return;
  if (known.length === 0 && check.hasMisspeltSection) return;
  check.report(path, `unknown ${what} "${name}"${hint(name, known)}`);
}

/** Reports items that are in a list more than once. */
function checkRepeats(check: CheckContext, path: Path, items: readonly unknown[]): void {
  for (const [index, item] of items.entries()) {
    if (typeof item === "string" && items.indexOf(item) < index)
      check.report([...path, index], `"${item}" is listed twice`);
  }
}

/** Reports an expression that does not compile, and warnings about one that does. */
export function checkCompiled(check: CheckContext, path: Path, compiled: CompileResult): void {
  if ("problem" in compiled) check.report([...path, ...compiled.path], compiled.problem, "error", compiled.offset);
  else for (const { problem, offset } of compiled.warnings ?? []) check.report(path, problem, "warning", offset);
}

/** Every text inside a value with its path: each is compiled separately, so that one problem does not hide another. */
export function collectTexts(value: unknown, path: Path): { text: string; path: Path }[] {
  if (typeof value === "string") return [{ text: value, path }];
  if (Array.isArray(value)) return value.flatMap((item, index) => collectTexts(item, [...path, index]));
  return entriesOf(value).flatMap(([key, item]) => collectTexts(item, [...path, key]));
}

/** Reports every expression inside a value that does not compile. */
export function checkTemplate(check: CheckContext, path: Path, value: unknown, names: readonly string[]): void {
  for (const { text, path: here } of collectTexts(value, path))
    checkCompiled(check, here, compileTemplate(text, names));
}

/** Every cycle of a graph once, as the names along it, with the first one repeated at the end. */
export function findCycles(graph: ReadonlyMap<string, readonly string[]>): string[][] {
  const cycles: string[][] = [];
  const done = new Set<string>();
  const visit = (name: string, trail: readonly string[]): void => {
    const start = trail.indexOf(name);
    if (start >= 0) cycles.push([...trail.slice(start), name]);
    if (start >= 0 || done.has(name)) return;
    for (const next of graph.get(name) ?? []) visit(next, [...trail, name]);
    done.add(name);
  };
  for (const name of graph.keys()) visit(name, []);
  return cycles;
}

// Checks headers that the manifest adds to requests.

/** Valid header values (RFC 9110, section 5.5). Messages do not show the value: headers contain keys. */
const HEADER_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

/** Headers that the HTTP client sets itself: with another value the server would refuse the request. */
const FRAMING_HEADERS = new Set(["content-length", "content-encoding", "transfer-encoding", "connection"]);

export function checkHeaders(check: CheckContext, path: Path, headers: unknown): void {
  for (const [name, value] of entriesOf(headers)) {
    if (!HEADER_NAME.test(name)) check.report([...path, name], `"${name}" is not a header name`);
    else if (FRAMING_HEADERS.has(name.toLowerCase())) check.report([...path, name], "is set by the client itself");
    else if (typeof value === "string" && !HEADER_VALUE.test(value))
      check.report([...path, name], "is not a header value: it must be one line of Latin-1 characters");
  }
}

// Checks the server (addresses, limits, origins), custom routes and the store.

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

const HEADER_NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
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

// Checks agents: their models, tools, sub-agents and memory exist, and their expressions compile.

export function checkAgents(check: CheckContext): void {
  const { document } = check;
  const delegates = new Map<string, string[]>();
  for (const [id, agent] of mapsOf(document.agents)) {
    const path = ["agents", id];
    checkTemplate(check, [...path, "instructions"], agent.instructions, SCOPES.agent);
    checkSources(check, path, agent);
    checkModel(check, [...path, "model"], agent.model);
    checkTools(check, [...path, "tools"], agent);
    checkSubAgents(check, path, id, agent);
    checkBound(check, [...path, "maxSteps"], agent.maxSteps);
    for (const [option, value] of entriesOf(agent.options)) checkBound(check, [...path, "options", option], value);
    delegates.set(id, listOf(agent.subAgents).filter((name) => typeof name === "string" && name !== id) as string[]);
    if (check.isWritten([...path, "memory"])) checkMemory(check, [...path, "memory"], agent.memory);
  }
  for (const cycle of findCycles(delegates)) {
    const [first, second] = cycle as [string, string];
    const agent = (document.agents as Json)[first] as Json;
    const index = listOf(agent.subAgents).indexOf(second);
    check.report(["agents", first, "subAgents", index], `agents delegate in a circle: ${cycle.join(" -> ")}`);
  }
}

/** Checks the prompt and resources that an agent takes from MCP servers. */
function checkSources(check: CheckContext, path: Path, { prompt, resources }: Json): void {
  const clients = keysOf(mapOf(check.document.mcp).clients);
  const places = listOf(resources).map((source, index) => [[...path, "resources", index], source] as const);
  for (const [here, source] of [[[...path, "prompt"], prompt] as const, ...places]) {
    if (!isObject(source)) continue;
    checkName(check, [...here, "client"], "MCP client", source.client, clients);
    checkTemplate(check, [...here, "uri"], source.uri, SCOPES.agent);
    checkTemplate(check, [...here, "arguments"], source.arguments, SCOPES.agent);
  }
}

/** Checks `{default, max}` of an option. */
function checkBound(check: CheckContext, path: Path, value: unknown): void {
  if (!isObject(value)) return;
  const { default: own, max } = value;
  if (typeof own === "number" && typeof max === "number" && own > max)
    check.report([...path, "default"], `is above "max", which is ${max}`);
}

/** Values that older versions of YAML read as false; today they are strings. */
const FORMERLY_FALSE = ["no", "off", "none"];

function checkMemory(check: CheckContext, path: Path, memory: unknown): void {
  const known = keysOf(check.document.memory);
  if (typeof memory === "string" && FORMERLY_FALSE.includes(memory) && !known.includes(memory)) {
    check.report(path, `"${memory}" is read as the name of a memory, and there is no such memory: write false`);
  } else checkName(check, path, "memory", memory, known);
}

/** Checks a model: a name, a list of names or one expression. */
function checkModel(check: CheckContext, path: Path, model: unknown): void {
  if (typeof model === "string") {
    if (isTemplate(model)) checkTemplate(check, path, model, SCOPES.agent);
    else checkModelName(check, path, model);
    return;
  }
  for (const [index, name] of listOf(model).entries()) {
    if (typeof name !== "string") continue;
    if (isTemplate(name))
      check.report([...path, index], "an expression must be alone, not in a list; it may give a list");
    else checkModelName(check, [...path, index], name);
  }
  checkRepeats(check, path, listOf(model));
}

/** Checks a name `provider/model`, whose provider must be declared. */
export function checkModelName(check: CheckContext, path: Path, name: string): void {
  const slash = name.indexOf("/");
  if (slash <= 0 || slash === name.length - 1) {
    const [first] = keysOf(check.document.providers);
    const such = first === undefined || slash >= 0 ? "" : `, such as ${first}/${name}`;
    if (name !== "") check.report(path, `"${name}" must be provider/model${such}`);
    return;
  }
  checkName(check, path, "provider", name.slice(0, slash), keysOf(check.document.providers));
}

function checkTools(check: CheckContext, path: Path, agent: Json): void {
  const items = listOf(agent.tools);
  checkRepeats(check, path, items);
  for (const [index, item] of items.entries()) {
    const here = [...path, index];
    const use = isObject(item) ? item.use : item;
    if (isTemplate(use)) checkTemplate(check, here, use, SCOPES.agent);
    else checkToolName(check, isObject(item) ? [...here, "use"] : here, use);
    if (use === "delegate_task" && listOf(agent.subAgents).length > 0) {
      check.report(
        here,
        '"delegate_task" is the name of the tool that reaches the sub-agents: give yours another name',
      );
    }
    if (isObject(item) && typeof item.if === "string") {
      checkCompiled(check, [...here, "if"], compileCondition(item.if, SCOPES.agent));
    }
  }
}

/** Checks the name of a tool: one of the manifest, or `CLIENT_NAME` of an MCP client, whose tools are unknown until it connects. */
function checkToolName(check: CheckContext, path: Path, name: unknown): void {
  const { tools, mcp } = check.document;
  const clients = keysOf(mapOf(mcp).clients);
  if (typeof name === "string" && clientOf(name, clients) !== undefined) return;
  checkName(check, path, "tool", name, keysOf(tools));
}

/** Checks the name of a tool that the service itself can run. @param caller what names the tool, for the message */
export function checkOwnTool(check: CheckContext, path: Path, name: unknown, caller: string): void {
  checkToolName(check, path, name);
  const tool = entriesOf(check.document.tools).find(([key]) => key === name)?.[1];
  if (isObject(tool) && tool.client === true)
    check.report(path, `"${name}" runs in the client of an agent: ${caller} cannot call it`);
}

function checkSubAgents(check: CheckContext, path: Path, id: string, agent: Json): void {
  const names = listOf(agent.subAgents);
  checkRepeats(check, [...path, "subAgents"], names);
  for (const [index, name] of names.entries()) {
    const here = [...path, "subAgents", index];
    if (name === id) check.report(here, "an agent cannot be its own sub-agent");
    else checkName(check, here, "agent", name, keysOf(check.document.agents));
  }
}

// Checks MCP: what servers expose exists, and no two tools of servers or clients get the same name.

export function checkMcp(check: CheckContext): void {
  const mcp = mapOf(check.document.mcp);
  for (const [id, server] of entriesOf(mcp.servers)) {
    const path = ["mcp", "servers", id];
    if (id === "servers") check.report(path, "a server cannot have this id: /mcp/servers/ is a route of its own");
    if (isObject(server)) checkExposed(check, path, server);
  }
  for (const [id, client] of mapsOf(mcp.clients)) checkClient(check, ["mcp", "clients", id], client);
  checkClients(check, keysOf(mcp.clients));
}

function checkClient(check: CheckContext, path: Path, client: Json): void {
  checkHeaders(check, [...path, "headers"], client.headers);
  const { timeout, maxTimeout } = client;
  if (milliseconds(maxTimeout) < milliseconds(timeout))
    check.report([...path, "maxTimeout"], "must not be shorter than timeout");
  if (client.auth === undefined) return;
  const { auth } = check.document;
  if (!isObject(auth) || auth.mode === undefined || auth.mode === "none")
    check.report([...path, "auth"], "needs auth.mode: without it no request has the token of a user");
  if (client.allowInsecure === true) return;
  checkSecure(check, [...path, "url"], client.url);
  const { tokenExchange: exchange } = mapOf(client.auth);
  if (isObject(exchange)) checkSecure(check, [...path, "auth", "tokenExchange", "url"], exchange.url);
}

const IS_DURATION = new RegExp(DURATION_PATTERN);

/** Parses a duration; NaN when it is invalid. */
const milliseconds = (duration: unknown): number =>
  typeof duration === "string" && IS_DURATION.test(duration) ? parseDuration(duration) : Number.NaN;

/** Requires a safe address: tokens and the client's secret could be read on the way to any other. */
function checkSecure(check: CheckContext, path: Path, url: unknown): void {
  if (typeof url !== "string" || !URL.canParse(url)) return;
  const { protocol, hostname } = new URL(url);
  if (protocol === "https:" || isLoopback(hostname)) return;
  check.report(path, "must be https, or on this machine, since tokens of users are sent there; or set allowInsecure");
}

/** The lists of a server, and the tool names that an item of each list becomes. */
const LISTS: readonly [key: string, names: (id: string) => readonly string[]][] = [
  ["tools", (id) => [exposedName(id)]],
  ["agents", (id) => [agentToolName(id)]],
  ["workflows", (id) => [workflowToolName(id), resumeToolName(id)]],
];

function checkExposed(check: CheckContext, path: Path, server: Json): void {
  const taken = new Map<string, string>();
  for (const [key, namesOf] of LISTS) {
    const items = listOf(server[key]);
    checkRepeats(check, [...path, key], items);
    for (const [index, id] of items.entries()) {
      const here = [...path, key, index];
      if (key === "tools") checkOwnTool(check, here, id, "an MCP client");
      else checkName(check, here, key.slice(0, -1), id, keysOf(check.document[key]));
      if (typeof id !== "string" || items.indexOf(id) < index) continue;
      for (const name of namesOf(id)) {
        const other = taken.get(name);
        if (other !== undefined) check.report(here, `MCP clients would see this as "${name}", as they see ${other}`);
        taken.set(name, `${key} ${id}`);
      }
    }
  }
}

function checkClients(check: CheckContext, clients: readonly string[]): void {
  for (const client of clients) {
    const other = clientOf(client, clients);
    if (other === undefined) continue;
    const message = `names of its tools would begin with "${other}_", as those of the client "${other}" do`;
    check.report(["mcp", "clients", client], message);
  }
  for (const tool of keysOf(check.document.tools)) {
    const client = clientOf(tool, clients);
    if (client === undefined) continue;
    const message = `names that begin with "${client}_" are those of tools of the MCP client "${client}"`;
    check.report(["tools", tool], message);
  }
}
