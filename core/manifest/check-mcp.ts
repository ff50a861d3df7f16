/** Checks MCP: what servers expose exists, and no two tools of servers or clients get the same name. */
import { DURATION_PATTERN, parseDuration } from "../lib/duration.ts";
import { isLoopback } from "../lib/host-name.ts";
import { isObject } from "../lib/is-object.ts";
import {
  type CheckContext,
  checkName,
  checkRepeats,
  entriesOf,
  type Json,
  keysOf,
  listOf,
  mapOf,
  mapsOf,
} from "./check.ts";
import { checkOwnTool } from "./check-agents.ts";
import { checkHeaders } from "./check-headers.ts";
import type { Path } from "./manifest.ts";
import { agentToolName, clientOf, exposedName, resumeToolName, workflowToolName } from "./mcp-names.ts";

export function checkMcp(check: CheckContext): void {
  const mcp = mapOf(check.document.mcp);
  for (const [id, server] of entriesOf(mcp.servers)) {
    const path = ["mcp", "servers", id];
    if (id === "servers") check.report(path, "a server cannot have this id: /mcp/servers/ is a route of its own");
    if (isObject(server)) checkServer(check, path, server);
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

function checkServer(check: CheckContext, path: Path, server: Json): void {
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
