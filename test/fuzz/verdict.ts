/** Whether what came back is what the service promises to say, whatever it was asked. Each check gives a problem, or null. */
import { STATUS } from "../../core/lib/errors.ts";
import type { RawReply } from "../support/raw-http.ts";

/** Statuses with which the parsers of the two transports refuse what never becomes a request. */
const REFUSED_BY_PARSER = new Set([400, 408, 413, 414, 417, 431, 505]);

/** The addon has a page of its own. */
const UWS_REFUSAL = /^<h1>[A-Za-z ]+<\/h1>(<p>.*<\/p>)?<hr><i>uWebSockets\/\d+ Server<\/i>$/;

/** Failures of what the service runs, as documented: tools, steps and models may fail. */
const RUN_FAILED = new Set(["tool_failed", "step_failed", "provider_failed"]);

export function judgeReply(reply: RawReply, head: boolean): string | null {
  const { status, headers, body } = reply;
  if (headers["x-request-id"] === undefined) return judgeRefusal(reply);
  if (!(status >= 200 && status < 600)) return `status ${status}`;
  if (status >= 500) {
    const problem = judgeFailure(status, headers);
    if (problem !== null) return problem;
  }
  if (head || status === 204 || status === 304) return body === "" ? null : "a body where there must be none";
  const type = headers["content-type"] ?? "";
  const text = Buffer.from(body, "latin1").toString();
  if (type.startsWith("text/event-stream")) return judgeEvents(text);
  // Browsers are shown a page to sign in.
  const isSignIn = status === 401 && type.startsWith("text/html") && headers["www-authenticate"] !== undefined;
  if (/^(text\/|image\/|font\/|application\/javascript)/.test(type))
    return status < 400 || isSignIn ? null : `an error as ${type}`;
  if (!type.startsWith("application/json")) return text === "" ? null : `a body of type "${type}"`;
  return judgeJson(reply, text);
}

/** Before there is a route: nothing, or the envelope. */
function judgeRefusal({ status, body }: RawReply): string | null {
  if (!REFUSED_BY_PARSER.has(status)) return `status ${status} without x-request-id`;
  if (body === "" || UWS_REFUSAL.test(body)) return null;
  return isEnvelope(parse(body)) ? null : `a refusal that is neither empty nor the envelope: ${body.slice(0, 200)}`;
}

function judgeFailure(status: number, headers: RawReply["headers"]): string | null {
  const code = headers["x-error-code"] ?? "";
  if (status === 503) return headers["retry-after"] === undefined ? "503 without Retry-After" : null;
  return status === 500 && RUN_FAILED.has(code) ? null : `status ${status} ${code}`;
}

const isRpcError = (value: unknown): boolean =>
  typeof (value as { error?: { code?: unknown } } | null)?.error?.code === "number" &&
  (value as { jsonrpc?: unknown }).jsonrpc === "2.0";

function judgeJson({ status, headers }: RawReply, text: string): string | null {
  const value = parse(text);
  if (value === undefined) return `no JSON: ${text.slice(0, 200)}`;
  const code = headers["x-error-code"];
  if (isFailureOfV1(value)) {
    return status >= 400 && STATUS[code as keyof typeof STATUS] === status
      ? null
      : `status ${status} with code ${code}`;
  }
  if (code !== undefined || isEnvelope(value)) {
    // Below /a2a and from MCP servers a body of another type is an error of JSON-RPC.
    if (status === 415 && code === "unsupported_media_type" && isRpcError(value)) return null;
    if (!isEnvelope(value)) return `an error that is not the envelope: ${text.slice(0, 200)}`;
    if (value.success === status >= 400) return `success ${value.success} with status ${status}`;
    if (value.success) return null;
    if (code === undefined || STATUS[code as keyof typeof STATUS] !== status)
      return `status ${status} with code ${code}`;
    return Object.keys(value).join() === "success,error"
      ? null
      : `an error with more than its two keys: ${text.slice(0, 200)}`;
  }
  return isDocumented(value) ? null : `neither the envelope nor a documented form: ${text.slice(0, 200)}`;
}

type Loose = Record<string, unknown>;

function isEnvelope(value: unknown): value is Loose & { success: boolean } {
  if (typeof value !== "object" || value === null) return false;
  const { success, error } = value as Loose;
  return success === true ? "data" in value : success === false && typeof error === "string" && error !== "";
}

/** What OpenAI's clients read. */
function isFailureOfV1(value: unknown): boolean {
  const { error, ...others } = (value ?? {}) as Loose;
  if (typeof error !== "object" || error === null || Object.keys(others).length > 0) return false;
  return (
    Object.keys(error).sort().join() === "code,message,param,type" &&
    Object.values(error).every((text) => typeof text === "string")
  );
}

/** JSON-RPC, `/doc`, agent cards, what an agent can do over AG-UI, objects of `/v1`, and probes. */
function isDocumented(value: unknown): boolean {
  if (Array.isArray(value)) return value.length > 0 && value.every(isDocumented);
  if (typeof value !== "object" || value === null) return false;
  const { jsonrpc, openapi, supportedInterfaces, humanInTheLoop, object, status } = value as Loose;
  return (
    jsonrpc === "2.0" ||
    openapi === "3.1.0" ||
    openapi === "3.1.1" ||
    Array.isArray(supportedInterfaces) ||
    typeof humanInTheLoop === "object" ||
    typeof object === "string" ||
    typeof status === "string"
  );
}

/** Blocks of an event stream; the last one may be cut off where the client has left. */
export function judgeEvents(text: string, whole = true): string | null {
  const blocks = text.split("\n\n");
  const rest = blocks.pop()!;
  if (whole && rest !== "") return `a stream that ends in the middle of an event: ${rest.slice(-200)}`;
  for (const block of blocks) {
    const problem = judgeBlock(block);
    if (problem !== null) return problem;
  }
  return null;
}

function judgeBlock(block: string): string | null {
  for (const line of block.split("\n")) {
    if (line.startsWith(":") || /^(id|event|retry): /.test(line) || line === "" || line === "data: [DONE]") continue;
    if (!line.startsWith("data: ")) return `a line of a stream: ${line.slice(0, 200)}`;
    const event = parse(line.slice(6));
    if (typeof event !== "object" || event === null) return `an event that is no JSON object: ${line.slice(0, 200)}`;
    if (/internal error \(request id/.test(line)) return `an internal error in a stream: ${line.slice(0, 300)}`;
  }
  return null;
}

const CODES = new Set([1000, 1001, 1002, 1003, 1007, 1008, 1009, 1011]);

/** What a server sends once a socket is open: whole frames without masks, texts that are JSON, at most one close. */
export function judgeFrames(bytes: Buffer): { problem: string | null; echoes: number; closed: boolean } {
  let echoes = 0;
  let closed = false;
  const answer = (problem: string | null) => ({ problem, echoes, closed });
  for (let at = 0; at < bytes.length; ) {
    if (closed) return answer("bytes behind a close frame");
    if (bytes.length < at + 2) return answer(null);
    const operation = bytes[at]! & 15;
    if ((bytes[at]! & 0xf0) !== 0x80 || (bytes[at + 1]! & 0x80) !== 0)
      return answer(`a frame that begins ${bytes.subarray(at, at + 2).toString("hex")}`);
    const short = bytes[at + 1]! & 127;
    const start = at + 2 + (short === 126 ? 2 : short === 127 ? 8 : 0);
    if (bytes.length < start) return answer(null);
    const length =
      short === 126 ? bytes.readUInt16BE(at + 2) : short === 127 ? Number(bytes.readBigUInt64BE(at + 2)) : short;
    const data = bytes.subarray(start, start + length);
    at = start + length;
    if (data.length < length) return answer(null);
    if (operation === 1) {
      const message = parse(data.toString());
      if (message === undefined) return answer(`a message that is no JSON: ${data.subarray(0, 200)}`);
      if ((message as Loose | null)?.type === "ECHO") echoes++;
    } else if (operation === 8) {
      closed = true;
      if (data.length > 0 && !isCode(data.readUInt16BE(0))) return answer(`close code ${data.readUInt16BE(0)}`);
    } else if (operation !== 9 && operation !== 10) return answer(`operation ${operation}`);
  }
  return answer(null);
}

const isCode = (code: number) => CODES.has(code) || (code >= 3000 && code < 5000);

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
