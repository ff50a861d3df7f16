/** Connections to a foreign MCP server that is called on behalf of users: one for each token, so that no user is served by another's. */
import { untilAborted } from "../lib/abortable.ts";
import { ToolUnavailable } from "../tools/tool.ts";
import type { McpConnection } from "./connection.ts";
import type { UserCredentials } from "./user-credentials.ts";
import type { ConnectionSource } from "./with-connection.ts";

/** Of one server. */
const MAX_CONNECTIONS = 100;
const IDLE_MS = 5 * 60_000;

/** @param ended called when the connection has ended by itself */
export type OpenConnection = (credentials: UserCredentials, ended: () => void) => Promise<McpConnection>;

interface Entry {
  readonly key: string;
  readonly opening: Promise<McpConnection>;
  /** How many requests use it now. */
  uses: number;
  /** Closes it once it has been idle. */
  timer: NodeJS.Timeout | null;
}

export class UserConnections {
  readonly #open: OpenConnection;
  readonly #maxConnections: number;
  readonly #idle: number;
  /** By the key of the credentials, the one that was used last at the end. */
  readonly #entries = new Map<string, Entry>();

  /** @param idle milliseconds after which a connection that nobody uses is closed */
  constructor(open: OpenConnection, maxConnections = MAX_CONNECTIONS, idle = IDLE_MS) {
    this.#open = open;
    this.#maxConnections = maxConnections;
    this.#idle = idle;
  }

  get size(): number {
    return this.#entries.size;
  }

  /** Does some work with the connection of a user, which stays open meanwhile. */
  async use<T>(credentials: UserCredentials, work: (source: ConnectionSource) => Promise<T>): Promise<T> {
    const held: Entry[] = [];
    try {
      return await work({
        hide: credentials.hide,
        take: async (signal) => {
          const entry = this.#hold(credentials);
          held.push(entry);
          return untilAborted(entry.opening, signal);
        },
        lost: () => {
          for (const entry of held) this.#remove(entry);
        },
      });
    } finally {
      for (const entry of held) this.#release(entry);
    }
  }

  async close(): Promise<void> {
    const entries = [...this.#entries.values()];
    for (const entry of entries) this.#remove(entry);
    await Promise.allSettled(entries.map(async ({ opening }) => (await opening).close()));
  }

  #hold(credentials: UserCredentials): Entry {
    const { key } = credentials;
    const entry = this.#entries.get(key) ?? this.#add(credentials);
    this.#entries.delete(key);
    this.#entries.set(key, entry);
    entry.uses++;
    if (entry.timer !== null) clearTimeout(entry.timer);
    entry.timer = null;
    return entry;
  }

  #release(entry: Entry): void {
    entry.uses--;
    if (entry.uses > 0 || this.#entries.get(entry.key) !== entry) return;
    entry.timer = setTimeout(() => this.#remove(entry), this.#idle);
    entry.timer.unref();
  }

  #add(credentials: UserCredentials): Entry {
    const { key } = credentials;
    if (this.#entries.size >= this.#maxConnections) this.#removeIdle();
    const opening = this.#open(credentials, () => this.#remove(entry));
    const entry: Entry = { key, opening, uses: 0, timer: null };
    opening.catch(() => this.#remove(entry));
    return entry;
  }

  #removeIdle(): void {
    const idle = [...this.#entries.values()].find(({ uses }) => uses === 0);
    if (idle === undefined)
      throw new ToolUnavailable(`${this.#maxConnections} users call it at this moment, which is the limit: try again`);
    this.#remove(idle);
  }

  #remove(entry: Entry): void {
    if (entry.timer !== null) clearTimeout(entry.timer);
    if (this.#entries.get(entry.key) === entry) this.#entries.delete(entry.key);
    entry.opening.then((connection) => connection.close()).catch(() => {});
  }
}
