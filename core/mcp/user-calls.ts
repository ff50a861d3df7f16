/** Requests to a foreign MCP server on behalf of users: with the token and the connection of the user who asks, or not at all. */
import type { User } from "../identity/principal.ts";
import { untilAborted } from "../lib/abortable.ts";
import { messageOf } from "../lib/errors.ts";
import type { McpClientManifest } from "../manifest/manifest.ts";
import { ToolUnavailable } from "../tools/tool.ts";
import type { McpConnection } from "./connection.ts";
import { type CredentialsOf, compileUserCredentials, type UserCredentials } from "./user-credentials.ts";
import { ConnectionLost, type ConnectionSource, withConnection } from "./with-connection.ts";

/* Connections to a foreign MCP server that is called on behalf of users: one for each token, so that no user is served by another's. */

/** Of one server. */
const MAX_CONNECTIONS = 100;
const IDLE_MS = 5 * 60_000;

/** @param ended called when the connection has ended by itself */
type OpenConnection = (credentials: UserCredentials, ended: () => void) => Promise<McpConnection>;

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

/** @param hide what is told of the call while it runs is told without the tokens */
export type UserRequest<T> = (connection: McpConnection, hide: UserCredentials["hide"]) => Promise<T>;

export class UserCalls {
  readonly #server: string;
  readonly #credentialsOf: CredentialsOf;
  readonly #connections: UserConnections;

  constructor(server: string, auth: NonNullable<McpClientManifest["auth"]>, open: OpenConnection) {
    this.#server = server;
    this.#credentialsOf = compileUserCredentials(server, auth);
    this.#connections = new UserConnections((credentials, ended) =>
      open(credentials, ended).catch((error) => this.#throwUnopened(error, credentials)),
    );
  }

  /**
   * @returns what `request` gives, without the tokens
   * @throws as `McpClient.call`; no error holds a token, nor anything that the server has sent beside its message
   */
  async run<T>(user: User | null, signal: AbortSignal, request: UserRequest<T>): Promise<T> {
    const credentials = this.#credentialsOf(user);
    try {
      await this.#requireToken(credentials, signal);
      const given = await this.#connections.use(credentials, (source) =>
        withConnection(this.#server, source, signal, (connection) => request(connection, credentials.hide)),
      );
      return credentials.hide(given);
    } catch (error) {
      signal.throwIfAborted();
      throw anew(error, credentials.hide(messageOf(error)));
    }
  }

  /** Tells the tokens of users apart. @throws Error for a user without one */
  keyOf(user: User | null): string {
    return this.#credentialsOf(user).key;
  }

  close(): Promise<void> {
    return this.#connections.close();
  }

  /** Before anything is sent: the SDK would make another error of this one. */
  async #requireToken({ token }: UserCredentials, signal: AbortSignal): Promise<void> {
    try {
      await untilAborted(token(), signal);
    } catch (error) {
      throw anew(error, `MCP server "${this.#server}": ${messageOf(error)}`);
    }
  }

  async #throwUnopened(error: unknown, { hide }: UserCredentials): Promise<never> {
    const { failureReason, refusesCredentials } = await import("./connection.ts");
    const reason = failureReason(error, hide);
    if (refusesCredentials(error)) throw new Error(`MCP server "${this.#server}" refused the user's token: ${reason}`);
    throw new ToolUnavailable(`MCP server "${this.#server}" is not available: ${reason}`);
  }
}

/** An error of the same kind, without what else the first one holds. */
const anew = (error: unknown, message: string): Error =>
  new ([ToolUnavailable, ConnectionLost].find((kind) => error instanceof kind) ?? Error)(message);
