/** The client of one foreign MCP server: knows its tools, and connects again when the connection is lost. */
import type { Logger } from "pino";
import type { PrepareSchema } from "../client-schema/schemas.ts";
import type { User } from "../identity/user.ts";
import { untilAborted } from "../lib/abortable.ts";
import { messageOf } from "../lib/errors.ts";
import { isObject } from "../lib/is-object.ts";
import type { JsonSchema } from "../lib/json-schema.ts";
import type { McpClientManifest } from "../manifest/manifest.ts";
import { exposedName } from "../manifest/mcp-names.ts";
import { ToolUnavailable } from "../tools/tool.ts";
import { callOutput } from "./call-output.ts";
import type { GivenTool, ListedTool, McpConnection } from "./connection.ts";
import { UserCalls } from "./user-calls.ts";
import type { UserCredentials } from "./user-credentials.ts";
import { withConnection } from "./with-connection.ts";

/** The delay between two attempts to connect doubles from the first value to the second. */
const MIN_RECONNECT_DELAY_MS = 1_000;
const MAX_RECONNECT_DELAY_MS = 60_000;
/** The list of tools is read again this often: not every server tells when its tools change. */
const REFRESH_INTERVAL_MS = 60_000;
/** Compiling the schemas of many tools is interrupted after this time, so that requests are served in between. */
const SCHEMA_SLICE_MS = 8;
/** Of one server; the rest is left out. */
const MAX_TOOLS = 500;

/** A tool of the server, as models and the API see it. */
interface ForeignTool {
  /** The name that the server uses. */
  readonly name: string;
  readonly description: string;
  readonly parameters: JsonSchema;
  /** Every problem of an input joined by `; `, or null when it fits. */
  validate(input: unknown): string | null;
}

interface ClientParts {
  readonly folder: string;
  readonly logger: Logger;
  readonly prepare: PrepareSchema;
  /** Called when tools have come, changed or gone. */
  changed(): void;
}

export class McpClient {
  readonly name: string;
  readonly #settings: McpClientManifest;
  readonly #parts: ClientParts;
  readonly #logger: Logger;
  /** By their names in this service, without the prefix of the client. */
  #tools: ReadonlyMap<string, ForeignTool> = new Map();
  #connection: McpConnection | null = null;
  #connecting: Promise<void> | null = null;
  /** When the last attempt to connect failed, by `performance.now()`. */
  #failed = Number.NEGATIVE_INFINITY;
  #pause = MIN_RECONNECT_DELAY_MS;
  /** Until the next attempt to connect, or until the list of tools is read again. */
  #timer: NodeJS.Timeout | null = null;
  #reason = "it has not answered yet";
  #wasKnown = false;
  /** Tools that were left out, with their place in the list. */
  readonly #reported = new Set<string>();
  readonly #end = new AbortController();
  /** Where the server is called on behalf of users. */
  readonly #users: UserCalls | null;

  constructor(name: string, settings: McpClientManifest, parts: ClientParts) {
    this.name = name;
    this.#settings = settings;
    this.#parts = parts;
    this.#logger = parts.logger.child({ mcpClient: name });
    const { auth } = settings;
    this.#users = auth === undefined ? null : new UserCalls(name, auth, (...of) => this.#openForUser(...of));
  }

  /** For one call, in milliseconds. */
  get timeout(): number {
    return this.#settings.timeout;
  }

  /** Whether the server has ever listed its tools. */
  get wasKnown(): boolean {
    return this.#wasKnown;
  }

  get connected(): boolean {
    return this.#connection !== null;
  }

  /** From its last list. */
  get tools(): ReadonlyMap<string, ForeignTool> {
    return this.#tools;
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
   * @param user who asks
   * @throws ToolUnavailable when the server cannot be reached or has no such tool; Error with the message of the tool, or where the
   * server needs a user's token and the user has none; the reason of `signal` once it aborts
   */
  async call(name: string, input: Record<string, unknown>, signal: AbortSignal, user: User | null): Promise<unknown> {
    const request = (connection: McpConnection) => {
      const tool = this.#tools.get(name);
      if (tool !== undefined) return connection.call(tool.name, input, signal, this.timeout);
      throw new ToolUnavailable(`MCP server "${this.name}" has no tool ${JSON.stringify(name)}`);
    };
    return callOutput(await this.#send(user, signal, request));
  }

  async #send<T>(
    user: User | null,
    signal: AbortSignal,
    request: (connection: McpConnection) => Promise<T>,
  ): Promise<T> {
    if (this.#users === null) {
      const source = { take: (stop: AbortSignal) => this.#open(stop), lost: this.#disconnect.bind(this) };
      return withConnection(this.name, source, signal, request);
    }
    // What there is to call is known from the connection of the service.
    if (!this.#wasKnown) await this.#open(signal);
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
      await this.#replaceTools(await connection.list());
      this.#connection = connection;
      this.#pause = MIN_RECONNECT_DELAY_MS;
      this.#logger.info({ tools: this.#tools.size }, "MCP server connected");
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
      await this.#replaceTools(listed);
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
      this.#timer = setTimeout(() => void this.connect(), this.#pause);
      this.#pause = Math.min(this.#pause * 2, MAX_RECONNECT_DELAY_MS);
    }
    this.#timer.unref();
  }

  /** Names are changed to the characters that models accept. Of two tools with the same name then, the first one is kept. */
  async #replaceTools(listed: readonly GivenTool[]): Promise<void> {
    const tools = new Map<string, ForeignTool>();
    let since = performance.now();
    for (const [index, tool] of listed.slice(0, MAX_TOOLS).entries()) {
      if (performance.now() - since > SCHEMA_SLICE_MS) {
        await new Promise(setImmediate);
        since = performance.now();
      }
      const problem = problemOf(tool, tools);
      if (problem === null) tools.set(exposedName((tool as ListedTool).name), this.#foreignTool(tool as ListedTool));
      else this.#warnOnce(`${index}: ${nameOf(tool)}`, nameOf(tool), problem);
    }
    if (listed.length > MAX_TOOLS)
      this.#logger.warn({ left: listed.length - MAX_TOOLS }, "some tools of the MCP server are left out");
    this.#tools = tools;
    this.#wasKnown = true;
  }

  /** The list is read again and again: a tool that stays malformed is reported once. */
  #warnOnce(key: string, tool: string, problem: string): void {
    if (this.#reported.has(key)) return;
    if (this.#reported.size >= MAX_TOOLS) this.#reported.clear();
    this.#reported.add(key);
    this.#logger.warn({ tool }, `a tool of the MCP server is left out: ${problem}`);
  }

  /** A tool whose schema cannot be used takes any input here: the server still checks it. */
  #foreignTool({ name, description, inputSchema }: ListedTool): ForeignTool {
    const known = this.#tools.get(exposedName(name));
    const same = known?.description === description && JSON.stringify(known.parameters) === JSON.stringify(inputSchema);
    if (same && known.name === name) return known;
    try {
      const schema = this.#parts.prepare(inputSchema, "inputSchema");
      const parameters = inputSchema as JsonSchema;
      return { name, description, parameters, validate: (input) => schema.problems(input) };
    } catch (error) {
      this.#logger.warn(
        { tool: name },
        `a tool of the MCP server has a schema that cannot be used: ${messageOf(error)}`,
      );
      return { name, description, parameters: { type: "object" }, validate: () => null };
    }
  }
}

/** Of a name in the log: servers choose how long they are. */
const MAX_NAMED = 128;

const nameOf = ({ name }: GivenTool): string => (typeof name === "string" ? name.slice(0, MAX_NAMED) : "(no name)");

/** Why a tool cannot be used, or null. */
function problemOf({ name, description, inputSchema }: GivenTool, taken: ReadonlyMap<string, unknown>): string | null {
  if (typeof name !== "string") return "its name is not text";
  const exposed = exposedName(name);
  if (exposed === "" || exposed.length > MAX_NAMED)
    return "its name cannot be used: it must have 1 to 128 letters, digits or _-";
  if (taken.has(exposed)) return `another tool is ${JSON.stringify(exposed)} already`;
  if (typeof description !== "string") return "its description is not text";
  if (!isObject(inputSchema) || inputSchema.type !== "object")
    return 'its inputSchema is not a schema of type "object"';
  return null;
}
