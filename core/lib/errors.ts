/** The only error class of the domain. Handlers throw it; only `http/encode.ts` turns it into a reply. */
import { types } from "node:util";
import { withoutSecrets } from "./secrets.ts";

/** Machine code (`x-error-code`) and HTTP status of every kind of failure. */
export const STATUS = {
  invalid_input: 400,
  unauthorized: 401,
  forbidden: 403,
  not_found: 404,
  method_not_allowed: 405,
  not_acceptable: 406,
  conflict: 409,
  too_large: 413,
  unsupported_media_type: 415,
  key_reused: 422,
  upgrade_required: 426,
  rate_limited: 429,
  tool_failed: 500,
  step_failed: 500,
  provider_failed: 500,
  context_length: 500,
  internal: 500,
  unavailable: 503,
} as const;

export type ErrorKind = keyof typeof STATUS;

/** Whose failure it is: that of a model's provider, or of this service. */
type ErrorSource = "provider" | "service";

/** What a client is told beside a result or a message. The edge of a protocol says it in its own words: headers, or lines of text. */
export interface Facts {
  /** Seconds until it is worth to ask again. */
  readonly retryAfter?: number;
  readonly runId?: string;
  readonly executionId?: string;
  readonly approvalId?: string;
  /** The path that shows what has been begun. */
  readonly location?: string;
  /** Whether the reply is that of an earlier request with the same key. */
  readonly isReplayed?: true;
}

interface ServiceErrorOptions {
  /** Default: the provider for `provider_failed`, else the service. */
  source?: ErrorSource;
  facts?: Facts;
  /** For what has no fact: headers of the reply in addition to the standard ones, with names in lower case. */
  headers?: Record<string, string>;
  cause?: unknown;
  /** Additional fields of its log line. */
  logged?: object;
}

/** A failure whose message is safe to show to a client: that of a failure which is not the client's has no secrets. */
export class ServiceError extends Error {
  override readonly name = "ServiceError";
  readonly kind: ErrorKind;
  readonly source: ErrorSource;
  readonly facts: Facts | undefined;
  readonly headers: Record<string, string> | undefined;
  readonly logged: object | undefined;

  constructor(kind: ErrorKind, message: string, options: ServiceErrorOptions = {}) {
    super(
      STATUS[kind] < 500 ? message : withoutSecrets(message),
      options.cause === undefined ? undefined : { cause: options.cause },
    );
    this.kind = kind;
    this.source = options.source ?? (kind === "provider_failed" ? "provider" : "service");
    this.facts = options.facts;
    this.headers = options.headers;
    this.logged = options.logged;
  }
}

export const invalid = (message: string, options?: ServiceErrorOptions) =>
  new ServiceError("invalid_input", message, options);
export const notFound = (message: string) => new ServiceError("not_found", message);
export const unavailable = (message: string, retryAfter = 1, about?: Facts) =>
  new ServiceError("unavailable", message, { facts: { ...about, retryAfter } });

export const rateLimited = (message: string, retryAfter = 1) =>
  new ServiceError("rate_limited", message, { facts: { retryAfter } });

/** Resolves like `work`, or to undefined when what it is about does not exist. */
export async function unlessNotFound<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    if (error instanceof ServiceError && error.kind === "not_found") return undefined;
    throw error;
  }
}

/** An id or a name in a message: clients choose how long they are. */
export const quoted = (id: string): string => JSON.stringify(id.slice(0, 128));
/** The values that a field may have, in a message. */
export const listed = (values: readonly unknown[]): string => values.map((value) => JSON.stringify(value)).join(", ");

/** The message of anything that was thrown. Never throws itself, even if reading the value does. */
export function messageOf(thrown: unknown): string {
  if (typeof thrown === "string") return thrown;
  try {
    if (thrown instanceof Error) return String(thrown.message || thrown.name);
  } catch {
    // The error has getters of its own, or is a proxy.
  }
  return "unknown error";
}

/** What the system says of a path, by its code. */
const OF_PATHS: Record<string, string> = {
  EACCES: "permission denied",
  EEXIST: "something is there already",
  EISDIR: "a file is expected, and this is a folder",
  ELOOP: "its links lead in a circle",
  ENAMETOOLONG: "the name is too long",
  ENOENT: "there is no such file or folder",
  ENOSPC: "the disk is full",
  ENOTDIR: "a folder is expected where there is a file",
  EPERM: "the system does not permit it",
  EROFS: "the disk is read-only",
};

/** A message with words of ours in the place of the system's, which name the path unless it is named before. */
export const inPlainWords = (message: string): string =>
  message.replace(
    /\b(E[A-Z]+): [^,]{1,80}, (\w+)(?: '([^']*?)(?:\.\d+\.part)?')?(?: -> '[^']*')?/,
    (said, code, call, path = "", at) => {
      const words = OF_PATHS[code === "EEXIST" && call === "mkdir" ? "ENOTDIR" : code] ?? said;
      return message.slice(0, at).includes(path) ? words : `${path}: ${words}`;
    },
  );

const MAX_CODE_LENGTH = 128;

/**
 * The machine code of an error of a step or a tool: the `code` of the error or of one of its causes, else the kind of a ServiceError;
 * null when there is none.
 *
 * @param thrown as returned by `caught`
 */
export function codeOf(thrown: unknown): string | null {
  let error = thrown as { code?: unknown; cause?: unknown } | null | undefined;
  for (let depth = 0; depth < MAX_CAUSE_DEPTH && typeof error === "object" && error !== null; depth++) {
    if (typeof error.code === "string" && error.code !== "")
      return withoutSecrets(error.code).slice(0, MAX_CODE_LENGTH);
    error = error.cause as typeof error;
  }
  return thrown instanceof ServiceError ? thrown.kind : null;
}

/** Properties of errors that our code reads. */
const INSPECTED_PROPERTIES = [
  "name",
  "message",
  "stack",
  "code",
  "kind",
  "facts",
  "headers",
  "status",
  "statusCode",
  "responseHeaders",
] as const;
const MAX_CAUSE_DEPTH = 8;

/**
 * Returns a value that a plugin threw, if it is safe to read, else a plain error with its message. Reading a proxy or a getter may
 * throw; even `instanceof` can throw for a proxy.
 */
export const caught = (thrown: unknown): unknown => (isSafe(thrown, 0) ? thrown : new Error(messageOf(thrown)));

function isSafe(thrown: unknown, depth: number): boolean {
  if ((typeof thrown !== "object" && typeof thrown !== "function") || thrown === null) return true;
  try {
    for (let at: unknown = thrown; at !== null; at = Object.getPrototypeOf(at)) if (types.isProxy(at)) return false;
    const error = thrown as Record<string, unknown>;
    for (const part of INSPECTED_PROPERTIES) void error[part];
    return depth === MAX_CAUSE_DEPTH || isSafe(error.cause, depth + 1);
  } catch {
    return false;
  }
}

/** A commit to the store was not executed, because another writer was first and an expectation failed. Nothing of it was written. */
export class CommitConflict extends Error {
  override readonly name = "CommitConflict";
  /** The keys whose expectation failed. */
  readonly keys: readonly string[];
  constructor(keys: readonly string[]) {
    super(`changed by somebody else: ${keys.join(", ")}`);
    this.keys = keys;
  }
}

// A problem at one place of the manifest, in the form in which all checks report it.

/** Keys and indexes from the root of the manifest: `["agents", "assistant", "tools", 0]`. */
export type Path = readonly (string | number)[];

/** A problem without a position in the file: `LoadedManifest.issueAt` adds that. */
export interface Problem {
  readonly path: Path;
  readonly message: string;
  /** Default: error. */
  readonly severity?: "error" | "warning";
}
