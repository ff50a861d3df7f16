/** The shared parts of the OpenAPI document: error replies, headers, tags, and the schemas that it refers to. */
import { type ErrorKind, STATUS } from "../lib/errors.ts";
import type { ErrorForm } from "./encode.ts";

export type OpenapiSchema = Record<string, unknown>;

export const SCHEMA_REFERENCE = "#/components/schemas/";

/** Name, meaning and an example message of every error reply that operations refer to. */
const FAILURES = {
  invalid_input: ["InvalidInput", "The request is not valid; every problem is named.", "input is required"],
  unauthorized: [
    "Unauthorized",
    "Credentials are missing or wrong; the message says how to send them.",
    "authentication required: send a user's token in the header Authorization: Bearer TOKEN",
  ],
  not_found: ["NotFound", "What the path names does not exist.", 'no agent is called "suport"'],
  method_not_allowed: [
    "MethodNotAllowed",
    "The path has other methods: `Allow` names them.",
    "GET is not allowed here, only POST",
  ],
  not_acceptable: [
    "NotAcceptable",
    "`Accept` does not name the types that the protocol asks for.",
    "Not Acceptable: Client must accept both application/json and text/event-stream",
  ],
  conflict: [
    "Conflict",
    "The id is taken, or another request comes first: then `Retry-After` says when to try again.",
    'conversation "order-1042" exists already',
  ],
  too_large: ["TooLarge", "The body is over the limit.", "body is larger than 1048576 bytes"],
  unsupported_media_type: [
    "UnsupportedMediaType",
    "The body is not JSON.",
    "content-type must be application/json, not text/plain",
  ],
  key_reused: [
    "KeyReused",
    "The Idempotency-Key was used for another request.",
    "this Idempotency-Key was used for another request: send a new key with a new request",
  ],
  internal: ["Failed", "A tool, the model provider or the service itself failed.", "model provider failed: timed out"],
  unavailable: [
    "Unavailable",
    "The service is stopping, over its limits or without its store: try again after `Retry-After` seconds.",
    "the service is stopping",
  ],
} as const satisfies Partial<Record<ErrorKind, readonly [string, string, string]>>;

export type Failure = keyof typeof FAILURES;

/** References to the error replies, `{"404": {"$ref": "#/components/responses/NotFound"}}`, and those of a form of its own. */
export function failureReplies(kinds: readonly Failure[], schemaOf?: ErrorForm["schemaOf"]): Record<string, object> {
  return Object.fromEntries(
    kinds.map((kind) => {
      const schema = schemaOf?.(kind) ?? ENVELOPE;
      const reference = { $ref: `#/components/responses/${FAILURES[kind][0]}` };
      return [STATUS[kind], schema === ENVELOPE ? reference : failureReply(kind, schema)];
    }),
  );
}

const ENVELOPE = "ErrorEnvelope";

function failureReply(kind: Failure, schema: string): object {
  const [, description, error] = FAILURES[kind];
  return {
    description,
    headers: {
      "x-request-id": { $ref: "#/components/headers/RequestId" },
      "x-error-code": {
        description: "Machine-readable code of the error.",
        schema: { type: "string" },
        example: kind,
      },
      "x-error-source": {
        description: "Whose error it is: that of the model's provider, or of this service.",
        schema: { type: "string", enum: ["provider", "service"] },
        example: "service",
      },
      ...(kind === "unavailable" && { "retry-after": { $ref: "#/components/headers/RetryAfter" } }),
    },
    content: {
      "application/json": {
        schema: { $ref: SCHEMA_REFERENCE + schema },
        ...(schema === ENVELOPE && { example: { success: false, error } }),
      },
    },
  };
}

/** The replies that operations refer to. @param text of all operations */
export const failureComponents = (text: string): Record<string, object> =>
  Object.fromEntries(
    Object.entries(FAILURES)
      .filter(([, [name]]) => text.includes(`#/components/responses/${name}"`))
      .map(([kind, [name]]) => [name, failureReply(kind as Failure, ENVELOPE)]),
  );

export const HEADERS = {
  RequestId: {
    description: "Id of the request: the one that was sent, or a new one.",
    schema: { type: "string" },
    example: "9b1f6c3a-52d4-4e0e-9a55-6f1d2a9e7c10",
  },
  RetryAfter: { description: "Seconds to wait.", schema: { type: "integer", minimum: 0 }, example: 1 },
};

/** Tags by the first word of an operation's name. */
const TAGS: Record<string, [string, string]> = {
  agents: ["Agents", "Text, objects, streams and chats from the agents of the manifest."],
  workflows: ["Workflows", "Workflows that survive a crash: executing, suspending, resuming and replaying them."],
  memory: ["Memory", "Conversations, their messages, working memory and search by meaning."],
  a2a: ["A2A", "Agents for other agents: their cards, and their tasks over the Agent2Agent protocol."],
  tools: ["Tools", "The tools of the manifest, and running one directly."],
  observability: ["Observability", "Traces, spans and what was logged in them."],
  logs: ["Logs", "The newest lines of the log."],
  updates: ["Updates", "Newer versions of the packages that the service is made of."],
  mcp: ["MCP", "Tools, agents and workflows for clients of the Model Context Protocol."],
  custom: ["Custom routes", "Routes that plugins add."],
  platform: ["Probes", "For orchestrators and load balancers."],
  docs: ["Documentation", "This document, the explorer and the landing page."],
};

/** Tag of an operation: `agents.generateText` -> Agents. */
export function describeTag(operation: string): { name: string; description: string } {
  const word = operation.split(".", 1)[0] ?? operation;
  const [name, description] = (Object.hasOwn(TAGS, word) ? TAGS[word] : undefined) ?? [
    word.charAt(0).toUpperCase() + word.slice(1),
    `Operations on ${word}.`,
  ];
  return { name, description };
}

/** Sorts tags: agents, tools and the like first, descriptions of the service last. */
export function orderTags<T extends { name: string }>(tags: Iterable<T>): T[] {
  const order = Object.values(TAGS).map(([name]) => name);
  const rank = ({ name }: T) => (order.includes(name) ? order.indexOf(name) : order.length);
  return [...tags].sort((a, b) => rank(a) - rank(b));
}

/** The schemas that `root` reaches through references, by name, sorted. */
export function reachable(root: unknown, all: Readonly<Record<string, OpenapiSchema>>): Record<string, OpenapiSchema> {
  const found = new Map<string, OpenapiSchema>();
  const queue: unknown[] = [root];
  for (let next = queue.pop(); next !== undefined; next = queue.pop()) {
    for (const [key, value] of Object.entries(next as object)) {
      if (typeof value === "object" && value !== null) queue.push(value);
      if (key !== "$ref" || typeof value !== "string" || !value.startsWith(SCHEMA_REFERENCE)) continue;
      const name = value.slice(SCHEMA_REFERENCE.length);
      const schema = Object.hasOwn(all, name) ? all[name] : undefined;
      if (schema === undefined) throw new Error(`no schema is called ${name}`);
      if (!found.has(name)) queue.push(schema);
      found.set(name, schema);
    }
  }
  return Object.fromEntries([...found].sort(([a], [b]) => (a < b ? -1 : 1)));
}
