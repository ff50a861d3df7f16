/** Sends the requests of HTTP tools: limited in time and size, retried only when that is safe, redirected only within one origin. */

import type { Readable } from "node:stream";
import { TextDecoder } from "node:util";
import type { Dispatcher } from "undici";
import { pause } from "../lib/abortable.ts";
import { formatDuration } from "../lib/duration.ts";
import { messageOf } from "../lib/errors.ts";
import { parseExactly } from "../lib/large-integers.ts";
import { backOff, retryAfter } from "../lib/retry.ts";
import { withoutSecrets } from "../lib/secrets.ts";
import { decoded, readBytes } from "../outbound/body.ts";
import { askAgain } from "../outbound/closed.ts";
import { createOutboundAgent, type OutboundAgent } from "../outbound/proxy.ts";
import type { Host } from "../plugin/plugin.ts";

// Reads the body of a response to an HTTP tool: at most 1 MiB, parsed if it is JSON (its large integers become strings), else text; of an error only the beginning.

/** A JSON value, or text; null for an empty JSON body. */
type AnswerBody = unknown;

const MAX_BODY_BYTES = 1_048_576;
const MAX_EXCERPT_BYTES = 16_384;
const MAX_EXCERPT_CHARACTERS = 4096;
const TEXT_TYPE = /^(?:text\/|application\/(?:[\w.!#$&^-]+\+)?(?:json|xml)$)/i;
const JSON_TYPE = /^application\/(?:[\w.!#$&^-]+\+)?json$/i;

/** The response cannot be used. The message is for the caller of the tool. */
class AnswerError extends Error {}

/**
 * @param body read to the end, or left
 * @param headers names in lower case
 * @throws AnswerError when it is too large, compressed in a way that Node cannot read, or declared as JSON and invalid
 */
async function readBody(body: Readable, headers: Record<string, string>, name: string): Promise<AnswerBody> {
  const bytes = await readBytes(
    plain(body, headers, name),
    { bytes: MAX_BODY_BYTES },
    () => new AnswerError(`${name} answered more than ${MAX_BODY_BYTES / 1_048_576} MiB`),
  );
  const { type, parameters } = contentType(headers);
  const text = decoder(parameters).decode(bytes);
  if (!JSON_TYPE.test(type)) return text;
  if (text === "") return null;
  try {
    return parseExactly(text);
  } catch (error) {
    throw new AnswerError(`${name} answered with broken JSON`, { cause: error });
  }
}

function plain(body: Readable, { "content-encoding": encoding }: Record<string, string>, name: string): Readable {
  try {
    return decoded(body, encoding);
  } catch (error) {
    throw new AnswerError(`${name} answered, but ${messageOf(error)}`);
  }
}

/** The beginning of an error's body, if it is text that can be read; else an empty string. The rest is not received. */
async function readExcerpt(body: Readable, headers: Record<string, string>): Promise<string> {
  const parts: Uint8Array[] = [];
  let size = 0;
  try {
    for await (const chunk of decoded(body, headers["content-encoding"])) {
      parts.push(chunk);
      size += chunk.length;
      if (size > MAX_EXCERPT_BYTES) break;
    }
  } catch {
    return "";
  }
  const { type, parameters } = contentType(headers);
  if (!TEXT_TYPE.test(type)) return "";
  // Before it is cut: a part of a secret would not be found any more.
  const text = withoutSecrets(decoder(parameters).decode(Buffer.concat(parts)).trim());
  return text.length > MAX_EXCERPT_CHARACTERS ? `${text.slice(0, MAX_EXCERPT_CHARACTERS)}… (cut)` : text;
}

function contentType(headers: Record<string, string>) {
  const [type = "", ...parameters] = (headers["content-type"] ?? "").split(";").map((part) => part.trim());
  return { type, parameters };
}

/** A decoder for UTF-8, unless the content type names another charset that Node knows. */
function decoder(parameters: readonly string[]): TextDecoder {
  const charset = parameters
    .find((parameter) => /^charset=/i.test(parameter))
    ?.slice("charset=".length)
    .replaceAll('"', "");
  try {
    return new TextDecoder(charset);
  } catch {
    return new TextDecoder();
  }
}

export interface HttpRequest {
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE" | "HEAD";
  url: URL;
  /** Names in lower case. */
  headers: Record<string, string>;
  body: string | undefined;
}

interface HttpAnswer {
  status: number;
  /** Names in lower case; repeated ones joined by `, `. */
  headers: Record<string, string>;
  body: AnswerBody;
}

interface SendOptions {
  /** The name of the tool, for messages. */
  name: string;
  /** Time limit of a single try, redirects included; milliseconds. */
  timeout: number;
  /** Number of tries after the first. */
  retries: number;
  signal: AbortSignal;
}

export interface HttpClient {
  /** @throws Error with a message for the caller of the tool; the signal's reason once it aborts */
  send(request: HttpRequest, options: SendOptions): Promise<HttpAnswer>;
}

/** Methods whose requests may be sent twice. */
const IDEMPOTENT_METHODS: readonly string[] = ["GET", "HEAD", "PUT", "DELETE"];
/** Statuses of failures that may be temporary. */
const TRANSIENT_STATUSES: readonly number[] = [408, 429, 502, 503, 504];
/** Codes of failures before anything was sent: a request with any method may be sent again. */
const NOT_SENT_CODES = [
  "ECONNREFUSED",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "UND_ERR_CONNECT_TIMEOUT",
];
const REDIRECT_STATUSES: readonly number[] = [301, 302, 303, 307, 308];
const MAX_REDIRECTS = 5;
/** Pauses between tries. When a server asks for a longer one, there is no further try. */
const FIRST_PAUSE_MS = 100;
const MAX_PAUSE_MS = 5_000;
const MAX_CONNECTIONS = 64;

/** Its default: a bundle gives a CommonJS package that is imported late no other names. */
type Undici = typeof import("undici")["default"];

/** A try that failed. Another may follow after `wait` milliseconds; null when none may. */
class TryError extends Error {
  readonly wait: number | null;
  constructor(message: string, wait: number | null, cause?: unknown) {
    super(message, { cause });
    this.wait = wait;
  }
}

/** Creates the client of a service. The first request loads undici and opens connections, which many services do not need. */
export function createHttpClient(host: Host): HttpClient {
  let opening: Promise<{ undici: Undici; agent: OutboundAgent }> | undefined;
  async function open() {
    const { default: undici } = await import("undici");
    // `withLimit` limits each try with one timer, in place of undici's two.
    const agent = createOutboundAgent(undici, { connections: MAX_CONNECTIONS, headersTimeout: 0, bodyTimeout: 0 });
    host.onClose(() => agent.destroy());
    return { undici, agent };
  }

  return {
    async send(request, options) {
      opening ??= open();
      const { undici, agent } = await opening;
      for (let attempt = 0; ; attempt++) {
        options.signal.throwIfAborted();
        try {
          return await withLimit(options, (signal) => follow(undici, agent, request, options.name, signal));
        } catch (error) {
          options.signal.throwIfAborted();
          const { wait, message, cause } = toTryError(error, request, options);
          if (wait === null || attempt >= options.retries || wait > MAX_PAUSE_MS) throw new Error(message, { cause });
          await pause(Math.max(wait, backOff(attempt, FIRST_PAUSE_MS, MAX_PAUSE_MS)), options.signal);
        }
      }
    },
  };
}

class TimeLimitReached extends Error {}

/** Runs a try with its own signal, which the caller's signal and the time limit abort. Timer and listener are removed after it. */
async function withLimit<T>(options: SendOptions, run: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const controller = new AbortController();
  const left = () => controller.abort(options.signal.reason);
  const timer = setTimeout(() => controller.abort(new TimeLimitReached()), options.timeout);
  options.signal.addEventListener("abort", left);
  try {
    return await run(controller.signal);
  } finally {
    clearTimeout(timer);
    options.signal.removeEventListener("abort", left);
  }
}

/** One try: the request, and redirects within the same origin. Headers may contain secrets, so no other origin gets them. */
async function follow(undici: Undici, agent: OutboundAgent, first: HttpRequest, name: string, signal: AbortSignal) {
  let request = first;
  for (let redirects = 0; ; redirects++) {
    const { url, method, headers, body } = request;
    const response = await askAgain(
      () => undici.request(url, { method, headers, body, signal, dispatcher: agent }),
      () => IDEMPOTENT_METHODS.includes(method),
    );
    const { statusCode: status } = response;
    if (status >= 200 && status < 300) {
      const answered = joinHeaders(response.headers);
      const isEmpty = method === "HEAD" || status === 204;
      const plain = isEmpty ? { ...answered, "content-encoding": "" } : answered;
      return { status, headers: answered, body: await readBody(response.body, plain, name) };
    }
    const said = await errorText(response, signal);
    const location = REDIRECT_STATUSES.includes(status) ? String(response.headers.location ?? "") : "";
    if (location === "")
      throw new TryError(`${name} answered ${status}${said}`, pauseFor(status, response, first.method));
    if (redirects === MAX_REDIRECTS) throw new TryError(`${name} redirects more than ${MAX_REDIRECTS} times`, null);
    request = redirected(request, status, location, name);
  }
}

/** The text of a 4xx, which tells the caller how to do better. Other bodies are withheld: those of a 5xx may expose server internals. */
async function errorText({ statusCode, headers, body }: Dispatcher.ResponseData, signal: AbortSignal): Promise<string> {
  if (statusCode < 400 || statusCode >= 500) {
    await body.dump({ limit: 16_384, signal });
    return "";
  }
  const text = await readExcerpt(body, joinHeaders(headers));
  return text === "" ? "" : `: ${text}`;
}

function redirected(request: HttpRequest, status: number, location: string, name: string): HttpRequest {
  const url = URL.canParse(location, request.url.href) ? new URL(location, request.url) : null;
  if (url === null) throw new TryError(`${name} redirects to an address that cannot be read`, null);
  if (url.origin !== request.url.origin) {
    throw new TryError(`${name} redirects to ${url.origin}, another server, which is not followed`, null);
  }
  // Like browsers: a 303, and a redirected POST, are followed by a GET.
  const fetches = status === 303 ? request.method !== "HEAD" : status < 303 && request.method === "POST";
  if (!fetches) return { ...request, url };
  const { "content-type": _, ...headers } = request.headers;
  return { method: "GET", url, headers, body: undefined };
}

function pauseFor(status: number, response: Dispatcher.ResponseData, method: string): number | null {
  if (!IDEMPOTENT_METHODS.includes(method) || !TRANSIENT_STATUSES.includes(status)) return null;
  return retryAfter(response.headers["retry-after"]) ?? 0;
}

function toTryError(error: unknown, request: HttpRequest, { name, timeout }: SendOptions): TryError {
  if (error instanceof TryError) return error;
  if (error instanceof AnswerError) return new TryError(error.message, null, error.cause);
  const repeatable = IDEMPOTENT_METHODS.includes(request.method);
  const { code = "", message = "" } = error as NodeJS.ErrnoException;
  if (error instanceof TimeLimitReached)
    return new TryError(`${name} did not answer within ${formatDuration(timeout)}`, repeatable ? 0 : null);
  const wait = repeatable || NOT_SENT_CODES.includes(code) ? 0 : null;
  // The message contains only the code of the system or undici: their own messages may quote addresses and headers.
  return new TryError(
    `${name} could not be reached${code === "" ? "" : `: ${code}`}`,
    wait,
    message === "" ? undefined : error,
  );
}

function joinHeaders(raw: Dispatcher.ResponseData["headers"]): Record<string, string> {
  const headers: Record<string, string> = Object.create(null);
  for (const [name, value] of Object.entries(raw))
    if (value !== undefined) headers[name] = Array.isArray(value) ? value.join(", ") : value;
  return headers;
}
