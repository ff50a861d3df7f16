/** One connection to a foreign MCP server, over HTTP or to a process of its own: the only file that knows the client's SDK. */
import type { Readable } from "node:stream";
import {
  type CallToolResult,
  Client,
  type ClientOptions,
  SdkError,
  SdkErrorCode,
  SdkHttpError,
  StreamableHTTPClientTransport,
} from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import type { Logger } from "pino";
import { untilAborted } from "../lib/abortable.ts";
import { VERSION } from "../lib/version.ts";
import type { McpClientManifest } from "../manifest/manifest.ts";
import { boundedFetch, MAX_MESSAGE_BYTES } from "./bounded-fetch.ts";
import { readLines } from "./lines.ts";

/** A tool as the server describes it. */
export interface ListedTool {
  readonly name: string;
  readonly description: string;
  readonly inputSchema: object;
}

export interface McpConnection {
  /** Every tool, as far as there are not too many pages of them. */
  list(): Promise<ListedTool[]>;
  /** @param timeout milliseconds */
  call(name: string, given: Record<string, unknown>, signal: AbortSignal, timeout: number): Promise<CallToolResult>;
  close(): Promise<void>;
}

export interface McpConnectionOptions {
  /** Where a command runs. */
  readonly folder: string;
  readonly logger: Logger;
  /** Gives up connecting. */
  readonly signal: AbortSignal;
  /** The server has other tools now. */
  changed(): void;
  /** It is over, and nobody here ended it. */
  closed(reason: string): void;
}

type Broken = Parameters<typeof boundedFetch>[0];

/** Milliseconds for a server to answer the first messages. */
const RESPONSE_TIMEOUT_MS = 10_000;
/** Milliseconds for a server to hear that its session is over. */
const TERMINATE_TIMEOUT_MS = 1_000;
/** Characters of a line of the log. */
const MAX_LINE_CHARACTERS = 1_000;

/** Results are not checked against schemas of the server: it would be its own word against itself, at our cost. */
const TRUSTING: ClientOptions["jsonSchemaValidator"] = {
  getValidator: () => (input) => ({ valid: true, data: input as never, errorMessage: undefined }),
};

/** @throws what the SDK throws: see `reasonOf` */
export async function openMcpConnection(
  settings: McpClientManifest,
  options: McpConnectionOptions,
): Promise<McpConnection> {
  let reason = "it closed the connection";
  const broken: Broken = (error, ofCall) => {
    // Of another stream it is asked what is left of the server, so that calls that go well are left alone.
    if (!ofCall) return options.changed();
    reason = reasonOf(error);
    client.close().catch(() => {});
  };
  const transport = settings.url === undefined ? processOf(settings, options) : httpOf(settings.url, settings, broken);
  const client = new Client(
    { name: "penstock", version: VERSION },
    {
      jsonSchemaValidator: TRUSTING,
      listChanged: { tools: { autoRefresh: false, onChanged: () => options.changed() } },
      // To ask a process for its revision would take another process: all of today's speak the one before.
      versionNegotiation: {
        mode: settings.url === undefined ? "legacy" : "auto",
        probe: { timeoutMs: RESPONSE_TIMEOUT_MS },
      },
    },
  );
  client.onerror = (error) => options.logger.debug({ err: error }, "MCP connection");
  let over = false;
  client.onclose = () => {
    if (!over) options.closed(reason);
    over = true;
  };
  const close = async () => {
    over = true;
    if (transport instanceof StreamableHTTPClientTransport) await farewell(transport);
    await client.close();
  };
  try {
    await untilAborted(client.connect(transport, { timeout: RESPONSE_TIMEOUT_MS }), options.signal);
  } catch (error) {
    // A client that is not connected yet does not know its transport.
    await Promise.allSettled([close(), transport.close()]);
    throw error;
  }
  return {
    async list() {
      const { tools } = await client.listTools(undefined, { timeout: RESPONSE_TIMEOUT_MS, cacheMode: "refresh" });
      return tools.map(({ name, description = "", inputSchema }) => ({ name, description, inputSchema }));
    },
    call: (name, given, signal, timeout) =>
      client.callTool({ name, arguments: given }, { signal, timeout, maxTotalTimeout: timeout }),
    close,
  };
}

function httpOf(url: string, { headers = {} }: McpClientManifest, broken: Broken): StreamableHTTPClientTransport {
  return new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers }, fetch: boundedFetch(broken) });
}

/** The process gets the few variables that any needs (PATH, HOME, ...) and its own, nothing else of ours. */
function processOf(
  { command, args = [], env }: McpClientManifest,
  { folder, logger }: McpConnectionOptions,
): StdioClientTransport {
  const transport = new StdioClientTransport({
    command: command!,
    args: [...args],
    cwd: folder,
    stderr: "pipe",
    maxBufferSize: MAX_MESSAGE_BYTES,
    ...(env !== undefined && { env: { ...env } }),
  });
  readLines(transport.stderr as Readable, MAX_LINE_CHARACTERS, (line) => logger.info({ stderr: line }, "MCP server"));
  return transport;
}

/** Servers that keep sessions may forget this one. */
async function farewell(transport: StreamableHTTPClientTransport): Promise<void> {
  if (transport.sessionId === undefined) return;
  let timer: NodeJS.Timeout | undefined;
  await Promise.race([
    transport.terminateSession().catch(() => {}),
    new Promise((resolve) => {
      timer = setTimeout(resolve, TERMINATE_TIMEOUT_MS);
    }),
  ]);
  clearTimeout(timer);
}

const CONNECTION_LOST_CODES: readonly unknown[] = [
  SdkErrorCode.NotConnected,
  SdkErrorCode.ConnectionClosed,
  SdkErrorCode.SendFailed,
];
/** Failures of the system before anything was sent. */
const NOT_SENT_CODES: readonly unknown[] = ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH"];

/** Whether the server is out of reach, and not the one call wrong. */
export const isMcpConnectionLost = (error: unknown): boolean =>
  error instanceof SdkHttpError ||
  (error instanceof SdkError && CONNECTION_LOST_CODES.includes(error.code)) ||
  systemFailure(error) !== null;

/** Whether the server cannot have begun with what it was sent: a session that it does not know (404) is none that it served. */
export const isUnsent = (error: unknown): boolean =>
  (error instanceof SdkHttpError && error.status === 404) ||
  (error instanceof SdkError && error.code === SdkErrorCode.NotConnected) ||
  NOT_SENT_CODES.includes(systemFailure(error)?.code);

/** The failure of the system below another one: `ECONNREFUSED`, `ENOENT` of `spawn node`. */
function systemFailure(error: unknown): { code: string; syscall?: string } | null {
  for (let at = error, depth = 0; at instanceof Error && depth < 5; at = at.cause, depth++) {
    const { code, syscall } = at as { code?: unknown; syscall?: string };
    if (typeof code === "string" && !(at instanceof SdkError) && /^(?:E[A-Z_]+|UND_ERR_\w+)$/.test(code))
      return syscall === undefined ? { code } : { code, syscall };
  }
  return null;
}

/** Why a server cannot be reached, in a line. */
export function reasonOf(error: unknown): string {
  const { code, syscall } = systemFailure(error) ?? {};
  if (code !== undefined) return syscall?.startsWith("spawn ") ? `cannot run ${syscall.slice(6)}: ${code}` : code;
  if (error instanceof SdkHttpError) return `it answered ${error.status}`;
  return error instanceof Error ? error.message.replace(/\s+/g, " ").slice(0, 200) : "it failed";
}
