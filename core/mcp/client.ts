/** The client of one foreign MCP server: knows its tools, and connects again when the connection is lost. */
import type { CallToolResult } from "@modelcontextprotocol/client";
import type { Logger } from "pino";
import { fromMcp } from "../agents/prompt/results.ts";
import type { SourceReader, SourceRequest } from "../agents/run/sources.ts";
import { foreignSchema, type PrepareSchema } from "../client-schema/schemas.ts";
import type { User } from "../identity/principal.ts";
import { untilAborted } from "../lib/abortable.ts";
import { messageOf, ServiceError, unavailable } from "../lib/errors.ts";
import { isObject } from "../lib/is-object.ts";
import type { JsonSchema } from "../lib/json-schema.ts";
import { RecentMap } from "../lib/recent-map.ts";
import { backOff } from "../lib/retry.ts";
import type { ToolProgress } from "../lib/tool-progress.ts";
import type { McpClientManifest } from "../manifest/manifest.ts";
import { exposedName } from "../manifest/mcp-names.ts";
import { type ConfiguredCall, ToolUnavailable } from "../tools/tool.ts";
import type { GivenTool, ListedTool, McpConnection } from "./connection.ts";
import { UserCalls, type UserRequest } from "./user-calls.ts";
import type { UserCredentials } from "./user-credentials.ts";
import { ConnectionLost, withConnection } from "./with-connection.ts";

/* Resources and prompts of a foreign MCP server, as text for the instructions of agents. They are kept for a while. */

/** For so long a text is used without asking for it again: not every server tells when one changes. */
const FRESH_MS = 60_000;
/** For so long it is used when the server cannot be reached. */
const STALE_MS = 3_600_000;
/** Of all texts of a server, with what they were asked by: at least so many are kept, and at most twice as many. */
const MAX_CHARACTERS = 4 * 1024 * 1024;

interface KeptText {
  readonly text: string;
  /** Characters of the text, and of what was asked for. */
  readonly size: number;
  /** By `performance.now()`. */
  readonly at: number;
}

interface Sender {
  readonly name: string;
  /** Milliseconds. */
  readonly timeout: number;
  readonly logger: Logger;
  /** Tells users apart whose texts may differ. @throws Error for a user without a token */
  userKey(user: User | null): string;
  send<T>(user: User | null, signal: AbortSignal, request: (connection: McpConnection) => Promise<T>): Promise<T>;
}

export class ContextTexts {
  readonly #sender: Sender;
  readonly #fresh: number;
  readonly #texts = new RecentMap<KeptText>(MAX_CHARACTERS, ({ size }) => size);
  readonly #running = new Map<string, Promise<string>>();

  /** @param fresh milliseconds for which a text is not asked for again */
  constructor(sender: Sender, fresh = FRESH_MS) {
    this.#sender = sender;
    this.#fresh = fresh;
  }

  /** @throws as `SourceReader.read`; the reason of `caller.signal` once it aborts */
  async read(request: SourceRequest, { user, signal }: Parameters<SourceReader["read"]>[2]): Promise<string> {
    try {
      const key = JSON.stringify([this.#sender.userKey(user), request]);
      const known = this.#texts.get(key);
      if (known !== undefined && performance.now() - known.at < this.#fresh) {
        this.#texts.set(key, known);
        return known.text;
      }
      return await untilAborted(this.#shared(key, request, user, known), signal);
    } catch (error) {
      signal.throwIfAborted();
      throw failure(this.#sender.name, request, error);
    }
  }

  /** Runs that need the same text at the same time ask for it once. */
  #shared(key: string, request: SourceRequest, user: User | null, known: KeptText | undefined): Promise<string> {
    const running =
      this.#running.get(key) ?? this.#ask(key, request, user, known).finally(() => this.#running.delete(key));
    this.#running.set(key, running);
    return running;
  }

  async #ask(key: string, request: SourceRequest, user: User | null, known: KeptText | undefined): Promise<string> {
    const { timeout, logger } = this.#sender;
    const signal = AbortSignal.timeout(timeout);
    try {
      // The signal is the limit: the client's own, which makes another error, comes later.
      const options = { signal, timeout: 2 * timeout };
      const text = await this.#sender.send(user, signal, (connection) => connection.read(request, options));
      this.#texts.set(key, { text, size: key.length + text.length, at: performance.now() });
      return text;
    } catch (error) {
      // A server that refuses is obeyed; one that is away is not missed.
      const isAway = error instanceof ToolUnavailable || error instanceof ConnectionLost || signal.aborted;
      if (!isAway || known === undefined || performance.now() - known.at > STALE_MS) throw error;
      logger.warn(`${described(request)} is used as it was: ${messageOf(error)}`);
      return known.text;
    }
  }
}

const described = (request: SourceRequest): string =>
  request.kind === "resource"
    ? `resource ${JSON.stringify(request.uri.slice(0, 200))}`
    : `prompt ${JSON.stringify(request.name)}`;

function failure(server: string, request: SourceRequest, error: unknown): ServiceError {
  const message = `${described(request)} of MCP server ${JSON.stringify(server)} cannot be read: ${messageOf(error)}`;
  const isAway = error instanceof ToolUnavailable || (error as Error).name === "TimeoutError";
  return isAway ? unavailable(message) : new ServiceError("tool_failed", message, { cause: error });
}

/* The tools that a foreign MCP server lists, as models and the API see them. */

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
  readonly shown: object;
  /** Every problem of an input joined by `; `, or null when it fits. */
  validate(input: unknown): string | null;
}

class ForeignTools {
  readonly #prepare: PrepareSchema;
  readonly #logger: Logger;
  /** From the last list, by their names in this service. */
  byName: ReadonlyMap<string, ForeignTool> = new Map();
  /** Whether there has been a list. */
  wasListed = false;
  /** Tools that were left out, with their place in the list. */
  readonly #reported = new Set<string>();

  constructor(prepare: PrepareSchema, logger: Logger) {
    this.#prepare = prepare;
    this.#logger = logger;
  }

  /** Names are changed to the characters that models accept. Of two tools with the same name then, the first one is kept. */
  async replace(listed: readonly GivenTool[]): Promise<void> {
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
    this.byName = tools;
    this.wasListed = true;
  }

  /** The list is read again and again: a tool that stays malformed is reported once. */
  #warnOnce(key: string, tool: string, problem: string): void {
    if (this.#reported.has(key)) return;
    if (this.#reported.size >= MAX_TOOLS) this.#reported.clear();
    this.#reported.add(key);
    this.#logger.warn({ tool }, `a tool of the MCP server is left out: ${problem}`);
  }

  #foreignTool({ name, description, inputSchema, shown }: ListedTool): ForeignTool {
    const known = this.byName.get(exposedName(name));
    const same = known?.description === description && JSON.stringify(known.parameters) === JSON.stringify(inputSchema);
    if (same && known.name === name) return { ...known, shown };
    const schema = foreignSchema(this.#prepare, this.#logger, name, inputSchema as object, "inputSchema");
    const parameters = inputSchema as JsonSchema;
    return { name, description, parameters, shown, validate: (input) => schema.problems(input) };
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

/* Turns the result of a foreign tool into the value that agents, workflows and the API work with. */

/**
 * The content where there is more than text, with the structured object, else the structured object where there is one, else the text.
 *
 * @throws Error with the message of the tool when it failed
 */
function callOutput({ content, structuredContent, isError }: CallToolResult): unknown {
  const texts = content.flatMap((piece) => (piece.type === "text" ? [piece.text] : []));
  if (isError === true) throw new Error(texts.join("\n") || "the tool failed");
  if (texts.length < content.length)
    return { type: "content", value: content.map(fromMcp), ...(isObject(structuredContent) && { structuredContent }) };
  return structuredContent ?? texts.join("\n");
}

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
