/** Tells clients that listen to an MCP server when what it lists has changed: by a reload, or because a foreign server lists other tools. */
import type { McpHttpHandler } from "@modelcontextprotocol/server";
import type { RawReply } from "../http/route.ts";
import { type User, userIdOf } from "../identity/principal.ts";
import { rateLimited, unavailable } from "../lib/errors.ts";
import { KeyCounts } from "../lib/key-counts.ts";
import type { Exposed } from "./exposed.ts";

type Servers = ReadonlyMap<string, { readonly tools: ReadonlyMap<string, Exposed> }>;

/** In one process, to all servers. The SDK bounds those to one server, of all users. */
const MOST_OF_USER = 100;

interface Listened {
  readonly handler: McpHttpHandler;
  /** What those who listen know. */
  list: string;
}

/** Lives as long as the process, so that a reload ends no subscription. */
export class ListChanges {
  /** By the ids of servers that somebody has listened to; null: the service is stopping. */
  #listened: Map<string, Listened> | null = new Map();
  #servers: Servers = new Map();
  /** Streams that are open or begin, by user. */
  readonly #ofUsers = new KeyCounts();

  /** @param servers of the manifest that is in force */
  use(servers: Servers): void {
    this.#servers = servers;
    this.check();
  }

  /** What answers those who listen to a server. @param make called once for each server */
  handlerOf(id: string, make: () => McpHttpHandler): McpHttpHandler {
    if (this.#listened === null) throw unavailable("the service is stopping");
    const known = this.#listened.get(id) ?? { handler: make(), list: this.#listOf(id) };
    this.#listened.set(id, known);
    return known.handler;
  }

  /** Begins to listen. @throws ServiceError `rate_limited` when the user listens too often already */
  async bounded(user: User | null, begin: () => Promise<RawReply>): Promise<RawReply> {
    const id = userIdOf(user);
    if (id === null) return begin();
    const leave = () => void this.#ofUsers.add(id, -1);
    let streams = false;
    try {
      if (this.#ofUsers.add(id, 1) > MOST_OF_USER)
        throw rateLimited(`${MOST_OF_USER} subscriptions of this user are open: try again when some have ended`);
      const reply = await begin();
      if ("body" in reply) return reply;
      streams = true;
      return { ...reply, stream: (sink) => reply.stream(sink).finally(leave) };
    } finally {
      if (!streams) leave();
    }
  }

  /** Tells those whose list has changed. */
  check(): void {
    for (const [id, known] of this.#listened ?? []) {
      const list = this.#listOf(id);
      if (list !== known.list) known.handler.notify.toolsChanged();
      known.list = list;
    }
  }

  /** Ends the streams of those who listen. */
  close(): void {
    for (const { handler } of this.#listened?.values() ?? []) void handler.close();
    this.#listened = null;
  }

  #listOf(id: string): string {
    return JSON.stringify([...(this.#servers.get(id)?.tools.values() ?? [])].map((tool) => tool.definition()));
  }
}
