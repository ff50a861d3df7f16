/** The client of one foreign MCP server: knows its tools, and connects again when the connection is lost. */
import type { CallToolResult } from "@modelcontextprotocol/client";
import type { Logger } from "pino";
import type { PrepareSchema } from "../client-schema/schemas.ts";
import type { User } from "../identity/principal.ts";
import { untilAborted } from "../lib/abortable.ts";
import { backOff } from "../lib/retry.ts";
import type { ToolProgress } from "../lib/tool-progress.ts";
import type { McpClientManifest } from "../manifest/manifest.ts";
import { type ConfiguredCall, ToolUnavailable } from "../tools/tool.ts";
import { callOutput } from "./call-output.ts";
import type { McpConnection } from "./connection.ts";
import { ContextTexts } from "./context-texts.ts";
import { type ForeignTool, ForeignTools } from "./foreign-tools.ts";
import { UserCalls, type UserRequest } from "./user-calls.ts";
import type { UserCredentials } from "./user-credentials.ts";
import { withConnection } from "./with-connection.ts";

/** The delay between two attempts to connect doubles from the first value to the second. */
const MIN_RECONNECT_DELAY_MS = 1_000;
const MAX_RECONNECT_DELAY_MS = 60_000;
/** The list of tools is read again this often: not every server tells when its tools change. */
const REFRESH_INTERVAL_MS = 60_000;

/** Who calls a tool, and follows it. */
type ToolCaller = Pick<ConfiguredCall, "signal" | "user" | "progress">;

interface ClientParts {
  readonly folder: string;
  readonly logger: Logger;
  readonly prepare: PrepareSchema;
  /** Called when tools have come, changed or gone. */
  changed(): void;
}

export class McpClient {
  readonly name: string;
  /** Its resources and prompts. */
  readonly texts: ContextTexts;
  readonly #settings: McpClientManifest;
  readonly #parts: ClientParts;
  readonly #logger: Logger;
  readonly #tools: ForeignTools;
  #connection: McpConnection | null = null;
  #connecting: Promise<void> | null = null;
  /** When the last attempt to connect failed, by `performance.now()`. */
  #failed = Number.NEGATIVE_INFINITY;
  /** Since it was connected last. */
  #failures = 0;
  /** Until the next attempt to connect, or until the list of tools is read again. */
  #timer: NodeJS.Timeout | null = null;
  #reason = "it has not answered yet";
  readonly #end = new AbortController();
  /** Where the server is called on behalf of users. */
  readonly #users: UserCalls | null;

  constructor(name: string, settings: McpClientManifest, parts: ClientParts) {
    this.name = name;
    this.#settings = settings;
    this.#parts = parts;
    this.#logger = parts.logger.child({ mcpClient: name });
    this.#tools = new ForeignTools(parts.prepare, this.#logger);
    this.texts = new ContextTexts({
      name,
      timeout: settings.timeout,
      logger: this.#logger,
      userKey: (user) => this.#users?.keyOf(user) ?? "",
      send: (user, signal, request) => this.#send(user, signal, request),
    });
    const { auth } = settings;
    this.#users = auth === undefined ? null : new UserCalls(name, auth, (...of) => this.#openForUser(...of));
  }

  /** The longest that one call may take, in milliseconds. */
  get timeout(): number {
    const { timeout, maxTimeout = timeout } = this.#settings;
    return maxTimeout;
  }

  /** Whether the server has ever listed its tools. */
  get wasKnown(): boolean {
    return this.#tools.wasListed;
  }

  get connected(): boolean {
    return this.#connection !== null;
  }

  /** From its last list, by their names in this service, without the prefix of the client. */
  get tools(): ReadonlyMap<string, ForeignTool> {
    return this.#tools.byName;
  }

  /** Connects, and keeps trying. Never throws: failures are logged, and reported to those who call a tool. */
  connect(): Promise<void> {
    this.#connecting ??= this.#attempt().finally(() => {
      this.#connecting = null;
    });
    return this.#connecting;
  }

  /**
   * Calls a tool by its name in this service, without the prefix of the client.
   *
   * @throws ToolUnavailable when the server cannot be reached or has no such tool; Error with the message of the tool, or where the
   * server needs a user's token and the user has none; the reason of `signal` once it aborts
   */
  async call(name: string, input: Record<string, unknown>, caller: ToolCaller): Promise<unknown> {
    const { signal, user, progress } = caller;
    const { timeout, maxTimeout } = this.#settings;
    const request: UserRequest<CallToolResult> = (connection, hide) => {
      const tool = this.tools.get(name);
      if (tool === undefined)
        throw new ToolUnavailable(`MCP server "${this.name}" has no tool ${JSON.stringify(name)}`);
      const told = progress && ((report: ToolProgress) => progress(hide(report)));
      return connection.call(tool.name, input, { signal, timeout, maxTimeout, progress: told });
    };
    return callOutput(await this.#send(user, signal, request));
  }

  async #send<T>(user: User | null, signal: AbortSignal, request: UserRequest<T>): Promise<T> {
    if (this.#users === null) {
      const source = { take: (stop: AbortSignal) => this.#open(stop), lost: this.#disconnect.bind(this) };
      return withConnection(this.name, source, signal, (connection) => request(connection, (value) => value));
    }
    // What there is to call is known from the connection of the service.
    if (!this.wasKnown) await this.#open(signal);
    return this.#users.run(user, signal, request);
  }

  /** Ends the process too, where the server is one. */
  async close(): Promise<void> {
    this.#end.abort(new Error("the service is stopping"));
    if (this.#timer !== null) clearTimeout(this.#timer);
    await this.#users?.close();
    await this.#connecting;
    await this.#connection?.close().catch(() => {});
    this.#connection = null;
  }

  async #open(signal: AbortSignal): Promise<McpConnection> {
    const due = performance.now() - this.#failed >= MIN_RECONNECT_DELAY_MS;
    if (this.#connection === null && !this.#end.signal.aborted && (due || this.#connecting !== null))
      await untilAborted(this.connect(), signal);
    if (this.#connection !== null) return this.#connection;
    throw new ToolUnavailable(`MCP server "${this.name}" is not available: ${this.#reason}`);
  }

  async #openForUser(credentials: UserCredentials, closed: () => void): Promise<McpConnection> {
    const { openMcpConnection } = await import("./connection.ts");
    const { folder } = this.#parts;
    return openMcpConnection(this.#settings, {
      folder,
      logger: this.#logger,
      signal: this.#end.signal,
      credentials,
      // The list of tools is that of the service.
      changed: () => {},
      closed,
    });
  }

  async #attempt(): Promise<void> {
    if (this.#end.signal.aborted || this.#connection !== null) return;
    const { openMcpConnection, failureReason } = await import("./connection.ts");
    let connection: McpConnection | null = null;
    try {
      connection = await openMcpConnection(this.#settings, {
        folder: this.#parts.folder,
        logger: this.#logger,
        signal: this.#end.signal,
        changed: () => void this.#refresh(),
        closed: (reason) => connection !== null && this.#disconnect(connection, reason),
      });
      await this.#tools.replace(await connection.list());
      this.#connection = connection;
      this.#failures = 0;
      this.#logger.info({ tools: this.tools.size }, "MCP server connected");
    } catch (error) {
      await connection?.close().catch(() => {});
      const reason = failureReason(error);
      if (reason !== this.#reason) this.#logger.warn(`MCP server cannot be reached: ${reason}`);
      this.#reason = reason;
      this.#failed = performance.now();
    }
    this.#parts.changed();
    this.#schedule();
  }

  #disconnect(connection: McpConnection, reason: string): void {
    if (this.#connection !== connection) return;
    this.#connection = null;
    this.#reason = reason;
    this.#logger.warn(`MCP server lost: ${reason}`);
    connection.close().catch(() => {});
    this.#parts.changed();
    this.#schedule();
  }

  /** Not every server tells when its tools change, and over HTTP only a request shows that a server has died. */
  async #refresh(): Promise<void> {
    const connection = this.#connection;
    if (connection === null) return;
    const { failureReason } = await import("./connection.ts");
    try {
      const listed = await connection.list();
      if (this.#connection !== connection) return;
      await this.#tools.replace(listed);
      if (this.#connection !== connection) return;
      this.#parts.changed();
      this.#schedule();
    } catch (error) {
      this.#disconnect(connection, failureReason(error));
    }
  }

  #schedule(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    if (this.#end.signal.aborted) return;
    if (this.#connection !== null) {
      this.#timer = setTimeout(() => void this.#refresh(), REFRESH_INTERVAL_MS);
    } else {
      const delay = backOff(this.#failures++, MIN_RECONNECT_DELAY_MS, MAX_RECONNECT_DELAY_MS);
      this.#timer = setTimeout(() => void this.connect(), delay);
    }
    this.#timer.unref();
  }
}
