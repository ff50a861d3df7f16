/** The OpenAPI 3.1 document, made from the routes table and `schemas/` at boot. */
import { readDefinitions } from "../manifest/definitions.ts";
import {
  describeTag,
  failureComponents,
  failureReplies,
  HEADERS,
  type OpenapiSchema,
  orderTags,
  reachable,
  SCHEMA_REFERENCE,
} from "./openapi-components.ts";
import { describeOperation, openapiPath, possibleFailures } from "./openapi-operation.ts";
import type { Route } from "./route.ts";
import type { SocketRoute } from "./socket.ts";

/** The kinds of credentials that the service accepts, and which of them a route needs: `[]` for a public one. */
export interface DocumentSecurity {
  schemes: Record<string, object>;
  of(route: Route<never>): readonly Record<string, readonly string[]>[];
}

export interface DocumentInfo {
  /** Name and version of the service, from the manifest. */
  title: string;
  version: string;
  /** Where clients reach the service, base path included; undefined when the manifest does not say. */
  publicUrl?: string | undefined;
  /** Values of path parameters that exist in this service, for trial calls: `{"agents/id": "support"}`. */
  samples?: Readonly<Record<string, string | undefined>> | undefined;
  /** Undefined while authentication is off. */
  security?: DocumentSecurity | undefined;
  sockets?: Parameters<typeof describeSockets>[0];
}

const DESCRIPTION = `Agents, tools and more, served from one manifest by Penstock.

* A JSON reply is \`{"success": true, "data": ...}\`, or \`{"success": false, "error": "..."}\` with a message to act on,
  its code in \`x-error-code\`, whose error it is in \`x-error-source\`, and the request's id in \`x-request-id\`.
* A stream is server-sent events. What fails after its first byte is an \`error\` event, and the stream ends.
* A path that exists answers another method with 405 and \`Allow\`. HEAD mirrors GET.
* WebSockets are listed under \`x-websockets\`; credentials go into their query, as \`key\` or \`token\`.`;

/** Properties whose schemas are left open, because handlers validate them with shorter messages; only the document describes them. */
const AGENT_INPUT = { $ref: `${SCHEMA_REFERENCE}AgentInput` };
const CHAT_MESSAGES = {
  type: "array",
  description: "The chat so far.",
  items: { $ref: `${SCHEMA_REFERENCE}UIMessage` },
};
const DOCUMENTED_PROPERTIES: Record<string, OpenapiSchema> = {
  GenerateRequest: { input: AGENT_INPUT },
  ObjectRequest: { input: AGENT_INPUT },
  ChatRequest: { input: AGENT_INPUT, messages: CHAT_MESSAGES },
};

/** Schemas with `if` are documented as plain forms, which readers and client generators understand. */
const DOCUMENTED_SCHEMAS: Record<string, (schemas: Readonly<Record<string, OpenapiSchema>>) => OpenapiSchema> = {
  MessageInput: ({ MessageInput: { if: _if, else: _else, ...rest } = {} }) => rest,
  SaveMessageEntry: ({ SaveMessageEntry: entry = {}, MessageInput: message = {} }) => {
    const wrapped = { message: { $ref: `${SCHEMA_REFERENCE}MessageInput` }, ...(entry.properties as object) };
    const bare = { ...(message.properties as object), ...(entry.properties as object) };
    return {
      description: entry.description,
      anyOf: [
        { type: "object", properties: wrapped, required: ["message"] },
        { type: "object", properties: bare, required: ["role"] },
      ],
      examples: entry.examples,
    };
  },
};

export function openapiDocument<S>(routes: readonly Route<S>[], info: DocumentInfo): Record<string, unknown> {
  const schemas = documentedSchemas(readDefinitions(["api", "events"], SCHEMA_REFERENCE));
  const paths: Record<string, Record<string, unknown>> = Object.create(null);
  const tags = new Map<string, { name: string; description: string }>();
  const schemes = new Set<string>();
  for (const row of routes) {
    const route = row as Route<never>;
    const operation = describeOperation(route, schemas, info.samples ?? {});
    const security = info.security?.of(route) ?? [];
    const failures = possibleFailures(route);
    if (security.length > 0) failures.push("unauthorized");
    for (const name of security.flatMap(Object.keys)) schemes.add(name);
    Object.assign(operation.responses as object, failureReplies(failures, route.errors?.schemaOf));
    if (info.security !== undefined) operation.security = security;
    const tag = describeTag(route.operation);
    tags.set(tag.name, tag);
    const path = openapiPath(route.path);
    paths[path] ??= {};
    paths[path][route.method.toLowerCase()] = operation;
  }
  const responses = failureComponents(JSON.stringify(paths));
  return {
    openapi: "3.1.0",
    info: { title: info.title, version: info.version, description: DESCRIPTION },
    servers: describeServers(info.publicUrl),
    ...(info.security === undefined && { security: [] }),
    tags: orderTags(tags.values()),
    paths,
    components: {
      schemas: reachable({ paths, responses }, schemas),
      responses,
      headers: usedHeaders({ paths, responses }),
      ...(info.security !== undefined && { securitySchemes: pick(info.security.schemes, schemes) }),
    },
    "x-websockets": describeSockets(info.sockets ?? []),
  };
}

const pick = (all: Record<string, object>, names: ReadonlySet<string>): Record<string, object> =>
  Object.fromEntries(Object.entries(all).filter(([name]) => names.has(name)));

/** The relative server is resolved against the address of the document, so that it is right behind any proxy. */
function describeServers(publicUrl: string | undefined): object[] {
  const relative = { url: ".", description: "Where this document comes from." };
  if (publicUrl === undefined) return [relative];
  return [{ url: publicUrl.replace(/(?<!\/)\/+$/, ""), description: "The public address." }, relative];
}

function documentedSchemas(schemas: Readonly<Record<string, OpenapiSchema>>): Record<string, OpenapiSchema> {
  const copy = { ...schemas };
  for (const [name, form] of Object.entries(DOCUMENTED_SCHEMAS)) copy[name] = form(schemas);
  for (const [name, properties] of Object.entries(DOCUMENTED_PROPERTIES)) {
    const schema = copy[name];
    if (schema === undefined) continue;
    copy[name] = { ...schema, properties: { ...(schema.properties as object), ...properties } };
  }
  return copy;
}

function usedHeaders(root: object): Record<string, object> {
  const text = JSON.stringify(root);
  return Object.fromEntries(Object.entries(HEADERS).filter(([name]) => text.includes(`#/components/headers/${name}"`)));
}

type DocumentedSocket = Pick<SocketRoute<never>, "operation" | "path" | "summary" | "query">;

/** WebSockets as an extension (`x-websockets`), since OpenAPI cannot describe them. */
function describeSockets(sockets: readonly DocumentedSocket[]): object[] {
  return sockets.map(({ operation, path, summary, query = {} }) => ({
    operationId: operation,
    path: path.replace(/:([^/]+)/g, "{$1}"),
    summary,
    parameters: [
      ...[...path.matchAll(/:([^/]+)/g)].map(([, name]) => ({ name, in: "path", required: true })),
      ...Object.entries(query).map(([name, description]) => ({ name, in: "query", description })),
    ],
  }));
}
