/** Classifies failures of model calls: what clients may learn about them, and whether to retry. */

import type { LanguageModelV3CallOptions, LanguageModelV3FunctionTool } from "@ai-sdk/provider";
import { type ErrorKind, ServiceError } from "../lib/errors.ts";
import { isObject } from "../lib/is-object.ts";
import { amountOf, retryAfter } from "../lib/retry.ts";
import { ModelRefusal, ProviderQueueFull } from "../plugin/plugin.ts";
import { AnswerNotRecorded } from "./cassettes/cassette.ts";
import { causesText } from "./causes-text.ts";

/*
 * Recognises the errors by which providers say that a prompt is too long for the model. They have no common code: most providers say it
 * only in the message.
 */

/** Codes, types or messages of such errors, from OpenAI, Anthropic, Gemini, Mistral, Cohere, xAI, Bedrock, vLLM, llama.cpp and others. */
const WORDS: readonly RegExp[] = [
  /context[_ -]?length[_ -]?exceeded|exceed(?:s|ed)?[_ -](?:the[_ -])?context[_ -]?(?:size|limit)|tokens[_ -]limit[_ -]reached/i,
  /(?:maximum|available|model'?s) context (?:length|size|window)/i,
  /exceeds? (?:the )?(?:\w+ ){0,2}(?:context (?:length|window|size|limit)|maximum number of (?:input )?tokens)/i,
  /(?:prompt|input|request) (?:is|are) too (?:long|large)\b/i,
  /longer than the (?:maximum )?(?:model|context) length/i,
  /(?:maximum|max) (?:prompt|input) length/i,
  /too large for model with \d+ maximum context/i,
  /reduce the length of the (?:messages|prompt|input)/i,
  /too many tokens: total number of tokens in the prompt/i,
];

/** The fields of errors in which providers and the AI SDK describe them. */
const FIELDS = ["code", "type", "status", "message", "responseBody"] as const;
const NESTED = ["error", "data"] as const;
const MAX_TEXT = 16 * 1024;
const MAX_DEPTH = 4;

/** @param error of a provider, or an error event within its stream; its causes are ignored */
function saysContextLength(error: Record<string, unknown>, depth = 0): boolean {
  for (const field of FIELDS) {
    const text = error[field];
    if (typeof text !== "string") continue;
    const beginning = text.slice(0, MAX_TEXT);
    if (WORDS.some((pattern) => pattern.test(beginning))) return true;
  }
  if (depth === MAX_DEPTH) return false;
  return NESTED.some((field) => {
    const inner = error[field];
    return (
      typeof inner === "object" && inner !== null && saysContextLength(inner as Record<string, unknown>, depth + 1)
    );
  });
}

type FailureReason =
  | "rate limited"
  | "overloaded"
  | "queue full"
  | "timed out"
  | "unavailable"
  | "context_length"
  | "refused the request"
  | "refused to answer"
  | "not recorded";

export interface ModelFailure {
  reason: FailureReason;
  /** Whether the same call may succeed later: the model is at fault, not the request. */
  retry: boolean;
  /** Whether another model may accept the same request. */
  fallback: boolean;
  /** The pause that the provider asked for, in milliseconds; null when it named none. */
  retryAfter: number | null;
  /** What the failure shows about the model itself, independent of the request: that it is unavailable, that it answers, or nothing. */
  shows: "absent" | "present" | "nothing";
}

/** Failures of the model. All others are answers to a request that the model refuses: they show that it is available. */
const OF_THE_MODEL: ReadonlySet<FailureReason> = new Set(["timed out", "unavailable", "overloaded", "rate limited"]);

/** Reasons that are due to the request: the same call would fail again. */
const OF_THE_REQUEST: ReadonlySet<FailureReason> = new Set([
  "context_length",
  "refused the request",
  "refused to answer",
  "not recorded",
]);

/** Failures that clients can do something about: wait, or shorten the conversation. All others are `provider_failed`. */
const KINDS: Partial<Record<FailureReason, ErrorKind>> = {
  "rate limited": "rate_limited",
  "queue full": "rate_limited",
  overloaded: "unavailable",
  context_length: "context_length",
};
const QUEUE_FULL = "too many requests wait for the model already: try again later";
/** How long clients are asked to wait when the provider named no time. */
const RETRY_AFTER_MS = 5_000;

/** Codes of Node and undici errors that mean a timeout. */
const TIMEOUT_CODES: ReadonlySet<unknown> = new Set([
  "ETIMEDOUT",
  "UND_ERR_CONNECT_TIMEOUT",
  "UND_ERR_HEADERS_TIMEOUT",
  "UND_ERR_BODY_TIMEOUT",
]);

/** Codes of Node, OpenSSL and undici errors that mean a connection that was not established, or broke. */
const CONNECTION_CODES =
  /^(?:ECONN|EPIPE|EPROTO|EHOST|ENET|EADDRNOTAVAIL|ENOTFOUND|EAI_|UND_ERR_SOCKET|ERR_TLS|ERR_SSL|UNABLE_TO)|CERT/;

/** Names of AI SDK errors about the request or the configuration. */
const REFUSALS: ReadonlySet<unknown> = new Set([
  "AI_InvalidArgumentError",
  "AI_InvalidPromptError",
  "AI_LoadAPIKeyError",
  "AI_LoadSettingError",
  "AI_NoSuchModelError",
  "AI_TooManyEmbeddingValuesForCallError",
  "AI_UnsupportedFunctionalityError",
]);

/** Statuses of 4xx that are worth another try, but are answers to this request. */
const REPEATABLE: ReadonlySet<unknown> = new Set([409, 425]);
/** What a provider says with a 429 of one request that alone exceeds the tokens of a minute. */
const LARGER_THAN_RATE = /request too large/i;

/** HTTP statuses with a reason of their own. Any other 4xx is a refusal, everything else is unavailable. */
const STATUSES: ReadonlyMap<number, FailureReason> = new Map([
  [408, "timed out"],
  [409, "unavailable"],
  [425, "unavailable"],
  [429, "rate limited"],
  [503, "overloaded"],
  [504, "timed out"],
  [522, "timed out"],
  [524, "timed out"],
  [529, "overloaded"],
]);

/** Maps the `code`, `type` or `status` of an `error` event in the middle of a stream to a reason. */
const EVENT_WORDS: readonly [RegExp, FailureReason][] = [
  [/rate.?limit|too.?many|resource.?exhausted|quota/i, "rate limited"],
  [/overloaded/i, "overloaded"],
  [/timed?.?out|deadline/i, "timed out"],
  [/invalid|not.?found|permission|authentication|content.?policy/i, "refused the request"],
  [/server.?error|api_error|internal|unavailable/i, "unavailable"],
];

const NO_MONEY = "insufficient_quota";
const MAX_CAUSE_DEPTH = 8;
/** Bound of the pause that a provider asks for. */
const MAX_RETRY_AFTER_MS = 24 * 60 * 60 * 1000;

/** Classifies anything that a provider threw, or sent as an error in its stream. */
export function classifyFailure(thrown: unknown, now = Date.now()): ModelFailure {
  let current = thrown;
  let reason: FailureReason | null = null;
  let asked: number | null = null;
  let answered = false;
  for (let depth = 0; depth < MAX_CAUSE_DEPTH; depth++) {
    if (typeof current === "string") current = { message: current };
    if (typeof current !== "object" || current === null) break;
    const error = current as Record<string, unknown>;
    reason ??= errorReason(error);
    answered ||= isDueToRequest(error);
    asked ??= readRetryAfter(error.responseHeaders, now);
    current = error.cause;
  }
  // An answer that cannot be read may be due to what was asked: whoever can provoke it must not open the circuit for others.
  const showsNothing = reason === null || reason === "queue full";
  reason ??= "unavailable";
  return {
    reason,
    // Other calls already wait for a connection: one more would wait as long.
    retry: !OF_THE_REQUEST.has(reason) && reason !== "queue full",
    fallback: reason !== "refused to answer" && reason !== "not recorded",
    retryAfter: asked === null ? null : Math.min(asked, MAX_RETRY_AFTER_MS),
    shows: showsNothing ? "nothing" : OF_THE_MODEL.has(reason) && !answered ? "absent" : "present",
  };
}

/** Whether a model call failed because its prompt is too long for the model. */
export const isContextLengthError = (thrown: unknown): boolean => classifyFailure(thrown).reason === "context_length";

/** Words of errors about reasoning and calls that are not signed by the provider's own model, or that it no longer stores. */
const OF_SIGNATURES = /thinking|thought|signature|reasoning|encrypted|item with id|item_reference/i;

/** Whether a model call failed because of reasoning in the prompt that came from another model, or is too old. */
export const isSignatureError = (thrown: unknown): boolean =>
  classifyFailure(thrown).reason === "refused the request" && OF_SIGNATURES.test(causesText(thrown));
/** The model that failed, for the log. */
interface FailedModel {
  /** `provider/model` */
  readonly id: string;
  /** Where the key for its provider is configured. */
  readonly keyPlace?: string;
}

/**
 * The error for clients. The provider's own error is its `cause`, which only the log shows; a refusal is the model's answer.
 *
 * @param part of the request that the provider refuses
 */
export function providerFailed(
  { reason, retryAfter }: Pick<ModelFailure, "reason" | "retryAfter">,
  cause: unknown,
  model?: FailedModel,
  part?: string | null,
): ServiceError {
  const said = part ? ` (${part})` : saidBy(cause);
  const kind = KINDS[reason];
  const isOwn = reason === "queue full";
  const message = isOwn ? QUEUE_FULL : `model provider failed: ${reason}${said}`;
  return new ServiceError(kind ?? "provider_failed", message, {
    cause,
    source: isOwn ? "service" : "provider",
    ...(model && { logged: { model: model.id, hint: keyHint(cause, model.keyPlace) } }),
    ...(kind === undefined || OF_THE_REQUEST.has(reason) ? {} : { facts: waitOf(retryAfter ?? RETRY_AFTER_MS) }),
  });
}

/** The part of the cause that clients may read. */
function saidBy(cause: unknown): string {
  if (cause instanceof ModelRefusal) return `: ${cause.refusal}`;
  return cause instanceof AnswerNotRecorded ? `: ${cause.message}` : "";
}

const KEY_STATUSES: ReadonlySet<unknown> = new Set([401, 403]);
/** Gemini reports an invalid key with a 400. */
const KEY_WORDS = /\b(?:api|access)[ _-]?key\b.{0,40}\b(?:not valid|invalid|incorrect|expired)/i;

/** What an operator can do about a key that the provider rejects; undefined for other failures. */
function keyHint(cause: unknown, place = "its configuration"): string | undefined {
  const { statusCode, message } = (cause ?? {}) as { statusCode?: unknown; message?: unknown };
  const isKey = KEY_STATUSES.has(statusCode) || (typeof message === "string" && KEY_WORDS.test(message));
  return isKey ? `the provider does not take its key: see ${place}` : undefined;
}

/** The error when the circuits of all models of a chain are open. @param wait milliseconds until one of them is tried again */
export const modelsUnavailable = (wait: number): ServiceError =>
  new ServiceError("unavailable", "model provider failed: unavailable, as it has been for its last calls", {
    source: "provider",
    facts: waitOf(wait),
  });

const waitOf = (milliseconds: number) => ({ retryAfter: Math.max(1, Math.ceil(milliseconds / 1000)) });

function errorReason(error: Record<string, unknown>): FailureReason | null {
  if (hasNoMoneyLeft(error)) return "refused the request";
  if (error instanceof ModelRefusal) return "refused to answer";
  if (error instanceof ProviderQueueFull) return "queue full";
  if (error instanceof AnswerNotRecorded) return "not recorded";
  if (error.name === "TimeoutError" || TIMEOUT_CODES.has(error.code)) return "timed out";
  if (REFUSALS.has(error.name)) return "refused the request";
  const reason = statedReason(error);
  // Providers report this with several statuses, but never with that of a rate limit, which a long prompt may exceed as well.
  const mayBeLength = reason === null || reason === "refused the request" || reason === "unavailable";
  return mayBeLength && saysContextLength(error) ? "context_length" : reason;
}

/** Whether the account has no credit. OpenAI reports it with a 429, but waiting does not help. */
function hasNoMoneyLeft({ code, type, data, error }: Record<string, unknown>): boolean {
  if (code === NO_MONEY || type === NO_MONEY) return true;
  const inner = isObject(data) ? data.error : error;
  return isObject(inner) && (inner.code === NO_MONEY || inner.type === NO_MONEY);
}

/** Whether the model has answered although it seems unavailable: until the limit of the whole answer, or that this request is too much. */
function isDueToRequest(error: Record<string, unknown>): boolean {
  if (error.name === "TimeoutError") return error.limit === "total";
  const status = statusOf(error);
  return REPEATABLE.has(status) || (status === 429 && LARGER_THAN_RATE.test(String(error.message)));
}

function statedReason(error: Record<string, unknown>): FailureReason | null {
  const status = statusOf(error);
  if (status !== null) return STATUSES.get(status) ?? (status < 500 ? "refused the request" : "unavailable");
  if (CONNECTION_CODES.test(String(error.code))) return "unavailable";
  if (error instanceof Error) return null;
  const words = [error.code, error.type, error.status].filter((value) => typeof value === "string").join(" ");
  return EVENT_WORDS.find(([pattern]) => pattern.test(words))?.[1] ?? null;
}

/** The HTTP status of an error; null for one below 400, which means that the answer broke off or was invalid: the cause has the reason. */
function statusOf({ statusCode, status, code }: Record<string, unknown>): number | null {
  return [statusCode, status, code].map(Number).find((number) => number >= 400 && number < 600) ?? null;
}

/** Milliseconds from `Retry-After`, in seconds or as a date, or from OpenAI's `retry-after-ms`. */
function readRetryAfter(headers: unknown, now: number): number | null {
  if (typeof headers !== "object" || headers === null) return null;
  const { "retry-after-ms": exact, "retry-after": rough } = headers as Record<string, unknown>;
  return amountOf(exact) ?? retryAfter(rough, now);
}

// What a provider says of a tool or a message that it refuses, and the plain form in which such a tool is sent instead.

/** What of a request its provider may refuse. */
export type ModelRequest = Pick<LanguageModelV3CallOptions, "prompt" | "tools">;
type Tools = NonNullable<ModelRequest["tools"]>;

interface Refusal {
  readonly error: unknown;
  readonly sent: ModelRequest;
  /** Names of tools that are sent in a plain form already. */
  readonly known: ReadonlySet<string>;
}

/** Of the error that is searched. */
const MAX_REFUSAL_DEPTH = 16;
const MAX_ASKED_FOR = 3;

/** `tools[3].function`, `tools.3.custom`, `function_declarations[3]`. The last number counts: Gemini has all functions in one tool. */
const TOOL = /\b(?:tools|function_?declarations)(?:\[|\.)(\d{1,4})\b/gi;
const MESSAGE = /\b(?:messages|contents|input)(?:\[\d{1,5}\]|\.\d{1,5})(?:[.[][\w\]]{1,24}){0,4}/;

function refusalText(error: unknown): string | null {
  if (classifyFailure(error).reason !== "refused the request") return null;
  const { responseBody } = isObject(error) ? error : {};
  const body = typeof responseBody === "string" ? responseBody : "";
  return `${causesText(error).slice(0, MAX_TEXT)}\n${body.slice(0, MAX_TEXT)}`;
}

/** The tools that the provider refuses: after some refusals, which name one each, the others are not asked for one by one. */
export function refusedTools({ error, sent: { tools = [] }, known }: Refusal): readonly string[] {
  const tool = refusedTool(error, tools);
  if (tool === null || known.has(tool)) return [];
  const asked = tools.filter(({ name }) => known.has(name)).length;
  return asked < MAX_ASKED_FOR ? [tool] : tools.map(({ name }) => name);
}

function refusedTool(error: unknown, tools: Tools): string | null {
  const text = refusalText(error);
  if (text === null || tools.length === 0) return null;
  const index = [...text.matchAll(TOOL)].at(-1)?.[1];
  const numbered = index === undefined ? undefined : tools[Number(index)];
  if (!/function|tool|schema/i.test(text)) return null;
  const words = new Set(text.split(/[^\w-]+/));
  const named = tools.find(({ name }) => words.has(name));
  return (named ?? numbered)?.name ?? null;
}

/** What the provider refuses, for the error: nothing of its own words, which may quote others. */
export function refusedPart(error: unknown, tools: Tools = []): string | null {
  const tool = refusedTool(error, tools);
  if (tool !== null) return `tool ${JSON.stringify(tool)}`;
  return MESSAGE.exec(refusalText(error) ?? "")?.[0] ?? null;
}

/** The request with the tools of these names described by schemas that say only which values there are. */
export function withPlain(request: ModelRequest, names: ReadonlySet<string>): ModelRequest {
  if (names.size === 0 || !request.tools?.some(({ name }) => names.has(name))) return request;
  const tools = request.tools.map((tool) =>
    names.has(tool.name) && tool.type === "function"
      ? { ...tool, inputSchema: { ...plain(tool.inputSchema, 0), type: "object" as const } }
      : tool,
  );
  return { ...request, tools };
}

function plain(schema: unknown, depth: number): LanguageModelV3FunctionTool["inputSchema"] {
  if (!isObject(schema) || depth > MAX_REFUSAL_DEPTH) return {};
  const { type, description, enum: values, required, properties, items } = schema;
  const only = Array.isArray(type) ? type.find((each) => each !== "null") : type;
  const kept: Record<string, unknown> = { type: only, description: description || undefined, enum: values };
  if (isObject(properties)) {
    const entries = Object.entries(properties);
    kept.properties = Object.fromEntries(entries.map(([name, child]) => [name, plain(child, depth + 1)]));
    if (Array.isArray(required)) kept.required = required.filter((name) => Object.hasOwn(properties, name));
  } else if (only === "object") kept.properties = {};
  if (isObject(items)) kept.items = plain(items, depth + 1);
  return JSON.parse(JSON.stringify(kept));
}
