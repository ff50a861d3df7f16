/** Requests to a foreign MCP server on behalf of users: with the token and the connection of the user who asks, or not at all. */
import type { User } from "../identity/principal.ts";
import { untilAborted } from "../lib/abortable.ts";
import { messageOf } from "../lib/errors.ts";
import type { McpClientManifest } from "../manifest/manifest.ts";
import { ToolUnavailable } from "../tools/tool.ts";
import type { McpConnection } from "./connection.ts";
import { type OpenConnection, UserConnections } from "./user-connections.ts";
import { type CredentialsOf, compileUserCredentials, type UserCredentials } from "./user-credentials.ts";
import { ConnectionLost, withConnection } from "./with-connection.ts";

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
