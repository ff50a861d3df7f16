/** One connection to a foreign MCP server, over HTTP or to a child process: the only file that uses the client SDK. */
import type { Readable } from "node:stream";
import {
  type CallToolResult,
  Client,
  type ClientOptions,
  InsufficientScopeError,
  ReadBuffer,
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
import { withTexts } from "../lib/large-integers.ts";
import { withoutSecrets } from "../lib/secrets.ts";
import type { OnToolProgress } from "../lib/tool-progress.ts";
import { VERSION } from "../lib/version.ts";
import type { McpClientManifest } from "../manifest/manifest.ts";
import { outboundFetch } from "../outbound/proxy.ts";
import type { UserCredentials } from "./user-credentials.ts";

/* Limits the size of messages from foreign MCP servers, and keeps their integers. */

const MAX_MESSAGE_BYTES = 4 * 1024 * 1024;

/**
 * `fetch` that ends a body with an error once it is too large, and whose bodies have no integers that would be rounded.
 *
 * @param broken called when a body ends early, for that reason or another: the SDK would wait for the rest of a stream. `ofCall`
 * says whether the request called a tool, or read a text.
 */
export const boundedFetch =
  (broken: (error: unknown, ofCall: boolean) => void) =>
  async (url: string | URL, init?: RequestInit): Promise<Response> => {
    const response = await outboundFetch(url, init);
    const { body, headers, status } = response;
    if (body === null) return response;
    const isStream = headers.get("content-type")?.startsWith("text/event-stream") ?? false;
    const tell = (error: unknown) => {
      // The status of any other reply says enough.
      if (status === 200 && init?.signal?.aborted !== true) broken(error, isCall(init?.body));
    };
    const chunks = limited(body, isStream, tell);
    return new Response(ReadableStream.from(exact(chunks, isStream)), response);
  };

const isCall = (body: unknown): boolean =>
  typeof body === "string" && /"(?:tools\/call|resources\/read|prompts\/get)"/.test(body);

/** @param isStream the limit is for each event, because a stream may last for days */
async function* limited(
  body: ReadableStream<Uint8Array>,
  isStream: boolean,
  broken: (error: unknown) => void,
): AsyncGenerator<Uint8Array> {
  let size = 0;
  try {
    for await (const chunk of body) {
      size += chunk.length;
      if (size > MAX_MESSAGE_BYTES) throw new Error(`it sent more than ${MAX_MESSAGE_BYTES / 1024 / 1024} MiB`);
      if (isStream && endsEvent(chunk)) size = 0;
      yield chunk;
    }
  } catch (error) {
    broken(error);
    throw error;
  }
}

/** Whether an empty line is in the chunk, which ends an event. */
function endsEvent(chunk: Uint8Array): boolean {
  const text = Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength);
  return text.includes("\n\n") || text.includes("\r\n\r\n") || text.includes("\r\r");
}

/** The same messages with large integers in results of tools as strings: whole lines of a stream, or all of a body. */
async function* exact(chunks: AsyncIterable<Uint8Array>, isStream: boolean): AsyncGenerator<Uint8Array> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of chunks) {
    rest += decoder.decode(chunk, { stream: true });
    const end = isStream ? Math.max(rest.lastIndexOf("\n"), rest.lastIndexOf("\r")) + 1 : 0;
    if (end === 0) continue;
    yield Buffer.from(rest.slice(0, end).replace(/^data:.*/gm, (line) => `data:${exactMessage(line.slice(5))}`));
    rest = rest.slice(end);
  }
  yield Buffer.from(isStream ? rest : exactMessage(rest));
}

/** A message of a server; in the result of a tool, integers that a number cannot hold become strings. */
function exactMessage(text: string): string {
  const exactText = withTexts(text);
  if (exactText === text) return text;
  try {
    const { result } = JSON.parse(text) as { result?: { content?: unknown } };
    return result?.content === undefined ? text : exactText;
  } catch {
    return text;
  }
}

/** The buffer of the SDK for a child process, which is handed whole lines. */
class ExactReadBuffer extends ReadBuffer {
  #rest: Buffer[] = [];
  #size = 0;

  override append(chunk: Buffer): void {
    const end = chunk.lastIndexOf(0x0a) + 1;
    this.#rest.push(end === 0 ? chunk : chunk.subarray(0, end));
    this.#size += chunk.length;
    // A line that is too large is left to the check of the SDK.
    if (end === 0 && this.#size <= MAX_MESSAGE_BYTES) return;
    const lines = Buffer.concat(this.#rest).toString();
    this.#rest = end === 0 ? [] : [chunk.subarray(end)];
    this.#size = chunk.length - end;
    super.append(Buffer.from(lines.split("\n").map(exactMessage).join("\n")));
  }

  override clear(): void {
    this.#rest = [];
    this.#size = 0;
    super.clear();
  }
}

/* Reads lines of text from another process, which may never end a line. */

/**
 * Calls back with each line that is not empty, without its line break.
 *
 * @param longest characters of a line; the rest of a longer one is dropped and takes no memory
 */
export function readLines(stream: Readable, longest: number, tell: (line: string) => void): void {
  let line = "";
  const end = () => {
    if (line !== "") tell(line);
    line = "";
  };
  stream.setEncoding("utf8");
  stream.on("data", (text: string) => {
    const [first = "", ...more] = text.split(/\r?\n/);
    line = (line + first.slice(0, longest)).slice(0, longest);
    for (const piece of more) {
      end();
      line = piece.slice(0, longest);
    }
  });
  stream.on("end", end);
}

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
    ...(credentials !== undefined && {
      // It goes before `authorization` of the manifest's headers.
      authProvider: {
        token: credentials.token,
        ...(credentials.refused !== undefined && { onUnauthorized: credentials.refused }),
      },
    }),
  });
}

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
