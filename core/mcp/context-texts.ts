/** Resources and prompts of a foreign MCP server, as text for the instructions of agents. They are kept for a while. */
import type { Logger } from "pino";
import type { SourceReader, SourceRequest } from "../agents/run/sources.ts";
import type { User } from "../identity/principal.ts";
import { untilAborted } from "../lib/abortable.ts";
import { messageOf, ServiceError, unavailable } from "../lib/errors.ts";
import { RecentMap } from "../lib/recent-map.ts";
import { ToolUnavailable } from "../tools/tool.ts";
import type { McpConnection } from "./connection.ts";
import { ConnectionLost } from "./with-connection.ts";

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
