/** The OpenAPI 3.1 document, made from the routes table and `schemas/` at boot. */
import { readDefinitions } from "../manifest/definitions.ts";
import {
  describeTag,
  type Failure,
  failureComponents,
  failureReplies,
  HEADERS,
  type OpenapiSchema,
  orderTags,
  reachable,
  SCHEMA_REFERENCE,
} from "./openapi-components.ts";
import type { Route, RouteOutput, SocketRoute } from "./route.ts";

// One row of the routes table as an OpenAPI operation.

type Schemas = Readonly<Record<string, OpenapiSchema>>;

const PATH_PARAMETERS: Record<string, string> = {
  "agents/id": "Id of the agent.",
  "agents/conversationId": "Id of the conversation.",
  "observability/conversationId": "Id of the conversation.",
  "observability/spanId": "Id of the span: 16 hexadecimal digits.",
  "observability/traceId": "Id of the trace: 32 hexadecimal digits.",
  "api/conversationId": "Id of the conversation.",
  "mcp/serverId": "Id of the MCP server.",
  "mcp/toolName": "Name of the tool, as the server lists it.",
  "tools/name": "Name of the tool.",
  "updates/packageName": "Name of the package; one with a scope is one segment, `@scope%2Fname`.",
  "ui/asset": "File name of the asset.",
  "workflows/id": "Id of the workflow.",
  "workflows/executionId": "Id of the execution.",
};

const KEY_PARAMETER = {
  name: "Idempotency-Key",
  in: "header",
  required: false,
  description:
    "A repeated request with the same key and body is not carried out again: for 24 hours it gets the first reply.",
  schema: { type: "string", pattern: "^[!-~]{1,255}$" },
};

const APPROVAL_PARAMETER = {
  name: "x-approval-id",
  in: "header",
  required: false,
  description: "The approval that the same call was told to wait for, once a person has said yes.",
  schema: { type: "string" },
};

/** The header with which clients continue a resumable stream. */
const LAST_EVENT_PARAMETER = {
  name: "Last-Event-ID",
  in: "header",
  required: false,
  description: "Number of the last event that is known: those after it follow.",
  schema: { type: "integer", minimum: 0 },
};

/** The kinds of failure that a route may answer with, beside those of authorization. */
function possibleFailures(route: Route<never>): Failure[] {
  const kinds: Failure[] = [];
  const body = route.body !== undefined || route.schemas?.body !== undefined;
  const parameters = route.path.includes("/:");
  if (body || parameters || route.query !== undefined || route.schemas?.query !== undefined)
    kinds.push("invalid_input");
  if (parameters) kinds.push("not_found");
  if (route.idempotent !== undefined) kinds.push("key_reused");
  for (const kind of route.failures ?? []) if (!kinds.includes(kind)) kinds.push(kind);
  if (body) kinds.push("too_large", "unsupported_media_type");
  // Pages and probes cannot fail in these ways: they neither run nor wait for anything.
  if (!("page" in route.output || "bare" in route.output)) kinds.push("internal", "unavailable");
  return kinds;
}

/** @param samples values of path parameters by first segment and name: `{"agents/id": "support"}` */
function describeOperation(
  route: Route<never>,
  schemas: Schemas,
  samples: Readonly<Record<string, string | undefined>>,
): Record<string, unknown> {
  const parameters = [
    ...pathParameters(route.path, samples),
    ...queryParameters(route.query === undefined ? embed(route.schemas?.query) : schemas[route.query]),
    ...(route.idempotent !== undefined ? [KEY_PARAMETER] : []),
    ...headerParameters(route),
  ];
  const body = route.body === undefined ? embed(route.schemas?.body) : { $ref: SCHEMA_REFERENCE + route.body };
  return {
    operationId: route.operation,
    tags: [describeTag(route.operation).name],
    summary: route.summary,
    ...(route.description !== undefined && { description: route.description }),
    ...(parameters.length > 0 && { parameters }),
    ...(body !== undefined && { requestBody: requestBody(route, body, schemas) }),
    responses: replies(route, schemas),
  };
}

function pathParameters(path: string, samples: Readonly<Record<string, string | undefined>>): object[] {
  const segments = path.slice(1).split("/");
  const parameters = segments.filter((segment) => segment.startsWith(":")).map((segment) => segment.slice(1));
  return parameters.map((name) => {
    const known = `${segments[0]}/${name}`;
    const description = Object.hasOwn(PATH_PARAMETERS, known) ? PATH_PARAMETERS[known] : `The \`${name}\` in the path.`;
    const example = samples[known];
    const sample = example === undefined ? {} : { example };
    return { name, in: "path", required: true, description, schema: { type: "string" }, ...sample };
  });
}

function headerParameters({ method, output, readsHeaders }: Route<never>): object[] {
  const known =
    Array.isArray(readsHeaders) && readsHeaders.includes(APPROVAL_PARAMETER.name) ? [APPROVAL_PARAMETER] : [];
  return method === "GET" && "resumable" in output ? [...known, LAST_EVENT_PARAMETER] : known;
}

function queryParameters(query: OpenapiSchema | undefined): object[] {
  const properties = Object.entries((query?.properties ?? {}) as Record<string, OpenapiSchema>);
  const required = (query?.required ?? []) as string[];
  return properties.map(([name, { description, ...schema }]) => ({
    name,
    in: "query",
    required: required.includes(name),
    ...(description !== undefined && { description }),
    schema,
  }));
}

function requestBody(route: Route<never>, schema: OpenapiSchema, schemas: Schemas): object {
  const samples = (route.body === undefined ? [] : (schemas[route.body]?.examples ?? [])) as unknown[];
  const examples = Object.fromEntries(samples.map((value, index) => [`example${index + 1}`, { value }]));
  return {
    required: route.bodyOptional !== true,
    content: { "application/json": { schema, ...(samples.length > 0 && { examples }) } },
  };
}

function replies(route: Route<never>, schemas: Schemas): Record<string, object> {
  const { output, operation } = route;
  if ("raw" in output && output.raw.length === 0) return {};
  const reply = describeReply(route, schemas);
  return {
    ["json" in output ? (output.status ?? 200) : 200]: reply,
    ...acceptedReply(output, schemas),
    ...("events" in output && output.mayBeEmpty === true ? { 204: { description: "There is nothing to read." } } : {}),
    ...(operation === "platform.readiness" && { 503: { ...reply, description: "Not ready." } }),
  };
}

function acceptedReply(output: RouteOutput, schemas: Schemas): Record<string, object> {
  if (!("json" in output) || output.accepted === undefined) return {};
  const value = findExample(output.accepted, schemas);
  const example = value === undefined ? undefined : { success: true, data: value };
  const reply = jsonReply(enveloped({ $ref: SCHEMA_REFERENCE + output.accepted }), example);
  return { 202: { ...reply, description: "It has begun, and goes on in the background." } };
}

function describeReply(route: Route<never>, schemas: Schemas): object {
  const { output } = route;
  if ("events" in output) return eventReply(output, schemas);
  if ("page" in output)
    return { description: "The page.", content: { [mediaType(output.page)]: { schema: { type: "string" } } } };
  if ("raw" in output) {
    const content = Object.fromEntries(output.raw.map((type) => [mediaType(type), {}]));
    return { description: "As the protocol says.", content };
  }
  if ("bare" in output) {
    const schema = output.bare === null ? { type: "object" } : { $ref: SCHEMA_REFERENCE + output.bare };
    return { description: "Success.", content: { [mediaType(output.type)]: { schema } } };
  }
  if ("envelope" in output) {
    const example = findExample(output.envelope, schemas);
    return jsonReply({ $ref: SCHEMA_REFERENCE + output.envelope }, example);
  }
  const data = embed(route.schemas?.response) ?? { $ref: SCHEMA_REFERENCE + output.json };
  const sample = route.schemas?.response === undefined ? findExample(output.json, schemas) : undefined;
  const example = sample === undefined ? undefined : { success: true, data: sample };
  return jsonReply(enveloped(data), example);
}

function jsonReply(schema: OpenapiSchema, example: unknown): object {
  return {
    description: "Success.",
    headers: { "x-request-id": { $ref: "#/components/headers/RequestId" } },
    content: { "application/json": { schema, ...(example !== undefined && { example }) } },
  };
}

const mediaType = (type: string) => type.split(";", 1)[0]!.trim();

function enveloped(data: OpenapiSchema): OpenapiSchema {
  const success = { const: true, description: "Always true." };
  return { type: "object", required: ["success", "data"], properties: { success, data } };
}

/** The schema's own example; for a list, one of its items. */
function findExample(name: string, schemas: Schemas): unknown {
  const schema = schemas[name];
  const own = (schema?.examples as unknown[] | undefined)?.[0];
  if (own !== undefined || schema?.type !== "array") return own;
  const item = (schema.items as OpenapiSchema).$ref;
  const sample = typeof item === "string" ? findExample(item.slice(SCHEMA_REFERENCE.length), schemas) : undefined;
  return sample === undefined ? undefined : [sample];
}

/** OpenAPI 3.1 cannot describe the items of a stream, so it is a string whose `contentSchema` is that of one event. */
function eventReply(output: Extract<RouteOutput, { events: unknown }>, schemas: Schemas): object {
  const events = (schemas[output.events]?.examples ?? []) as unknown[];
  const lines = events.map((event, index) => `id: ${index + 1}\ndata: ${JSON.stringify(event)}\n\n`);
  if (output.last !== undefined) lines.push(`data: ${output.last}\n\n`);
  const forms = [output, ...Object.values(output.others ?? {})];
  const names = forms.map((form) => `\`${form.events}\``).join(" or ");
  const description = `Server-sent events. The \`data\` of each one is JSON: ${names}.`;
  const one = forms.map((form) => ({ $ref: SCHEMA_REFERENCE + form.events }));
  const contentSchema = one.length === 1 ? one[0] : { anyOf: one };
  const extra = (output.headers ?? []).flatMap((name, index, list) =>
    index % 2 === 0 ? [[name, { description: "Always this value.", schema: { const: list[index + 1] } }]] : [],
  );
  return {
    description,
    headers: { "x-request-id": { $ref: "#/components/headers/RequestId" }, ...Object.fromEntries(extra) },
    content: {
      "text/event-stream": {
        schema: { type: "string", description, contentSchema },
        ...(lines.length > 0 && { example: lines.join("") }),
      },
    },
  };
}

/** A plugin's schema for use inside the document. One with references is left out: they would point into the wrong document. */
function embed(schema: object | undefined): OpenapiSchema | undefined {
  if (schema === undefined) return undefined;
  if (!/"\$(?:ref|dynamicRef|id|anchor)":/.test(JSON.stringify(schema))) return schema as OpenapiSchema;
  return { description: "Checked against the schema of the plugin." };
}

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
    const path = route.path.replace(/\/:([^/]+)/g, "/{$1}");
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
      ...(info.security !== undefined && {
        securitySchemes: Object.fromEntries(
          Object.entries(info.security.schemes).filter(([name]) => schemes.has(name)),
        ),
      }),
    },
    "x-websockets": describeSockets(info.sockets ?? []),
  };
}

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
