/** One connection to a foreign MCP server, over HTTP or to a child process: the only file that uses the client SDK. */

import type { Readable } from "node:stream";
import {
  type AuthProvider,
  type CallToolResult,
  Client,
  type ClientOptions,
  InsufficientScopeError,
  SdkError,
  SdkErrorCode,
  SdkHttpError,
  StreamableHTTPClientTransport,
  UnauthorizedError,
} from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import type { Logger } from "pino";
import type { SourceRequest } from "../agents/run/sources.ts";
import { untilAborted, within } from "../lib/abortable.ts";
import { type Fields, isObject } from "../lib/is-object.ts";
import { withoutSecrets } from "../lib/secrets.ts";
import type { OnToolProgress } from "../lib/tool-progress.ts";
import { VERSION } from "../lib/version.ts";
import type { McpClientManifest } from "../manifest/manifest.ts";
import { boundedFetch, ExactReadBuffer, MAX_MESSAGE_BYTES } from "./bounded-fetch.ts";
import { readLines } from "./lines.ts";
import type { UserCredentials } from "./user-credentials.ts";

/** A tool as the server describes it. */
export interface ListedTool {
  readonly name: string;
  readonly description: string;
  readonly inputSchema: object;
  /** What our own MCP clients are told of it as it came: title, annotations, outputSchema and _meta. */
  readonly shown: object;
}

/** As it came: a malformed tool lacks what a tool has, or has it in another type. */
export type GivenTool = { readonly [K in keyof ListedTool]?: unknown };

interface CallOptions {
  readonly signal: AbortSignal;
  /** Milliseconds. */
  readonly timeout: number;
  /** Milliseconds, where each report of progress gives the call its `timeout` again. */
  readonly maxTimeout?: number | undefined;
  readonly progress?: OnToolProgress | undefined;
}

export interface McpConnection {
  /** All tools, whatever the server says of each; the number of pages is limited. */
  list(): Promise<GivenTool[]>;
  call(name: string, given: Record<string, unknown>, options: CallOptions): Promise<CallToolResult>;
  /** The text of a resource or a prompt. @throws Error where it is not text */
  read(request: SourceRequest, options: Pick<CallOptions, "signal" | "timeout">): Promise<string>;
  close(): Promise<void>;
}

interface McpConnectionOptions {
  /** Where a command runs. */
  readonly folder: string;
  readonly logger: Logger;
  /** Aborts an attempt to connect. */
  readonly signal: AbortSignal;
  /** Of the user whose connection it is; left out: it is that of the service. */
  readonly credentials?: UserCredentials;
  /** Called when the tools of the server have changed. */
  changed(): void;
  /** Called when the connection has ended without `close`. */
  closed(reason: string): void;
}

type Broken = Parameters<typeof boundedFetch>[0];

/** For a server to answer the messages that open a connection, and to list its tools. */
const RESPONSE_TIMEOUT_MS = 10_000;
/** For a server to answer that its session has ended. */
const TERMINATE_TIMEOUT_MS = 1_000;
/** Of a list of tools; as many as the SDK reads. */
const MAX_PAGES = 64;
/** Lets a result through whatever it is: it is looked at here. */
const ANY_RESULT = {
  "~standard": { version: 1, vendor: "penstock", validate: (value: unknown) => ({ value }) },
} as const;
/** Of a line that a server writes to standard error. */
const MAX_LINE_CHARACTERS = 1_000;

/** Results are not checked against the output schemas of the server: both come from the server, so that it proves nothing. */
const NO_VALIDATION: ClientOptions["jsonSchemaValidator"] = {
  getValidator: () => (input) => ({ valid: true, data: input as never, errorMessage: undefined }),
};

/** @throws what the SDK throws: see `failureReason` */
export async function openMcpConnection(
  settings: McpClientManifest,
  options: McpConnectionOptions,
): Promise<McpConnection> {
  let reason = "it closed the connection";
  const broken: Broken = (error, ofCall) => {
    // Another stream than that of a call: list the tools, which shows whether the server is there, and let running calls go on.
    if (!ofCall) return options.changed();
    reason = failureReason(error);
    client.close().catch(() => {});
  };
  const transport =
    settings.url === undefined
      ? stdioTransport(settings, options)
      : httpTransport(settings.url, settings, broken, options.credentials);
  const client = new Client(
    { name: "penstock", version: VERSION },
    {
      jsonSchemaValidator: NO_VALIDATION,
      ...(options.credentials === undefined && {
        listChanged: { tools: { autoRefresh: false, onChanged: () => options.changed() } },
      }),
      // To probe a child process would take a second one. All of today's speak the older revision.
      versionNegotiation: {
        mode: settings.url === undefined ? "legacy" : "auto",
        probe: { timeoutMs: RESPONSE_TIMEOUT_MS },
      },
    },
  );
  // A tool is answered with it, and so the model that has called the tool.
  client.fallbackRequestHandler = async ({ method }) => {
    throw new Error(`${method}: the server asks for a person or a model, and here is none that could answer it`);
  };
  client.onerror = (error) => {
    // What a server says of a token may repeat it.
    if (options.credentials === undefined) options.logger.debug({ err: error }, "MCP connection");
    else options.logger.debug(`MCP connection of a user: ${failureReason(error, options.credentials.hide)}`);
  };
  let over = false;
  client.onclose = () => {
    if (!over) options.closed(reason);
    over = true;
  };
  const close = async () => {
    over = true;
    if (transport instanceof StreamableHTTPClientTransport) await terminateSession(transport);
    await client.close();
  };
  try {
    await untilAborted(client.connect(transport, { timeout: RESPONSE_TIMEOUT_MS }), options.signal);
  } catch (error) {
    // Before it is connected, closing the client does not close its transport.
    await Promise.allSettled([close(), transport.close()]);
    throw error;
  }
  return {
    async list() {
      // The SDK would print that there are none.
      if (client.getServerCapabilities()?.tools === undefined) return [];
      const tools = await listTools(client);
      return tools.map(({ name, description = "", inputSchema, title, annotations, outputSchema, _meta }) => ({
        name,
        description,
        inputSchema,
        shown: { title, annotations, outputSchema, _meta },
      }));
    },
    call: (name, given, { signal, timeout, maxTimeout, progress }) =>
      client.callTool(
        { name, arguments: given },
        {
          signal,
          timeout,
          maxTotalTimeout: maxTimeout ?? timeout,
          resetTimeoutOnProgress: maxTimeout !== undefined,
          // A server reports only to those who ask for it.
          ...((progress ?? maxTimeout) !== undefined && { onprogress: (report) => progress?.(report) }),
        },
      ),
    async read(request, { signal, timeout }) {
      if (request.kind === "resource") {
        const { contents } = await client.readResource({ uri: request.uri }, { signal, timeout, cacheMode: "bypass" });
        return contents.map((content) => ("text" in content ? content.text : notText())).join("\n");
      }
      const { name, arguments: given } = request;
      const { messages } = await client.getPrompt({ name, arguments: { ...given } }, { signal, timeout });
      return messages.map(({ content }) => (content.type === "text" ? content.text : notText())).join("\n\n");
    },
    close,
  };
}

function notText(): never {
  throw new Error("it is not text");
}

/**
 * The SDK refuses the whole list where one tool of it is malformed, and a server would be lost with that one: then the tools are read one by
 * one.
 */
async function listTools(client: Client): Promise<readonly Fields[]> {
  try {
    return (await client.listTools(undefined, { timeout: RESPONSE_TIMEOUT_MS, cacheMode: "refresh" })).tools;
  } catch (error) {
    if (isMcpConnectionLost(error) || !(error instanceof SdkError) || error.code !== SdkErrorCode.InvalidResult)
      throw error;
  }
  const tools: unknown[] = [];
  for (let cursor: string | undefined, pages = 0; pages < MAX_PAGES; pages++) {
    const params = cursor === undefined ? {} : { cursor };
    const page = await client.request({ method: "tools/list", params }, ANY_RESULT, { timeout: RESPONSE_TIMEOUT_MS });
    if (!isObject(page) || !Array.isArray(page.tools)) throw new Error("its list of tools is not a list");
    tools.push(...page.tools);
    if (typeof page.nextCursor !== "string" || page.nextCursor === cursor) break;
    cursor = page.nextCursor;
  }
  return tools.map((tool) => (isObject(tool) ? tool : {}));
}

/** The SDK follows redirects within the origin of the server alone, so that no other gets the headers. */
function httpTransport(
  url: string,
  { headers = {} }: McpClientManifest,
  broken: Broken,
  credentials: UserCredentials | undefined,
): StreamableHTTPClientTransport {
  return new StreamableHTTPClientTransport(new URL(url), {
    requestInit: { headers },
    fetch: boundedFetch(broken),
    ...(credentials !== undefined && { authProvider: authProvider(credentials) }),
  });
}

/** It goes before `authorization` of the manifest's headers. */
const authProvider = ({ token, refused }: UserCredentials): AuthProvider => ({
  token,
  ...(refused !== undefined && { onUnauthorized: refused }),
});

/** The process gets the few variables that every process needs (PATH, HOME, ...) and those of the manifest, no others. */
function stdioTransport(
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
  // The SDK parses the lines itself, and has no place for what should come before.
  Object.assign(transport, { _readBuffer: new ExactReadBuffer({ maxBufferSize: MAX_MESSAGE_BYTES }) });
  readLines(transport.stderr as Readable, MAX_LINE_CHARACTERS, (line) => logger.info({ stderr: line }, "MCP server"));
  return transport;
}

/** Tells a server that keeps sessions that this one has ended. */
async function terminateSession(transport: StreamableHTTPClientTransport): Promise<void> {
  if (transport.sessionId === undefined) return;
  await within(
    TERMINATE_TIMEOUT_MS,
    transport.terminateSession().catch(() => {}),
  );
}

const CONNECTION_LOST_CODES: readonly unknown[] = [
  SdkErrorCode.NotConnected,
  SdkErrorCode.ConnectionClosed,
  SdkErrorCode.SendFailed,
];
/** System errors that come before anything was sent. */
const NOT_SENT_CODES: readonly unknown[] = ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH"];

/** Whether the server does not take the credentials, or not for this. */
export const refusesCredentials = (error: unknown): boolean =>
  error instanceof UnauthorizedError ||
  error instanceof InsufficientScopeError ||
  (error instanceof SdkHttpError && [401, 403].includes(error.status ?? 0));

/** Whether the connection failed, and not only this call: what one call may not do is nothing to the others. */
export const isMcpConnectionLost = (error: unknown): boolean =>
  (error instanceof SdkHttpError && !refusesCredentials(error)) ||
  (error instanceof SdkError && CONNECTION_LOST_CODES.includes(error.code)) ||
  systemFailure(error) !== null;

/** Whether the server cannot have started the call, so that it may be sent again. 404 means that it does not know the session. */
export const isUnsent = (error: unknown): boolean =>
  (error instanceof SdkHttpError && error.status === 404) ||
  (error instanceof SdkError && error.code === SdkErrorCode.NotConnected) ||
  NOT_SENT_CODES.includes(systemFailure(error)?.code);

/** The system error among the causes of an error: `ECONNREFUSED`, `ENOENT` of `spawn node`. */
function systemFailure(error: unknown): { code: string; syscall?: string } | null {
  for (let at = error, depth = 0; at instanceof Error && depth < 5; at = at.cause, depth++) {
    const { code, syscall } = at as { code?: unknown; syscall?: string };
    if (typeof code === "string" && !(at instanceof SdkError) && /^(?:E[A-Z_]+|UND_ERR_\w+)$/.test(code))
      return syscall === undefined ? { code } : { code, syscall };
  }
  return null;
}

/** Why a server cannot be reached, in one line. @param hide removes tokens before the text is cut: a part would not be found */
export function failureReason(error: unknown, hide: (text: string) => string = (text) => text): string {
  const { code, syscall } = systemFailure(error) ?? {};
  if (code !== undefined) return syscall?.startsWith("spawn ") ? `cannot run ${syscall.slice(6)}: ${code}` : code;
  if (error instanceof SdkHttpError) return `it answered ${error.status}`;
  if (error instanceof SdkError && error.code === SdkErrorCode.RequestTimeout) return "it did not answer in time";
  if (error instanceof UnauthorizedError) return "it answered 401";
  return error instanceof Error ? withoutSecrets(hide(error.message)).replace(/\s+/g, " ").slice(0, 200) : "it failed";
}
