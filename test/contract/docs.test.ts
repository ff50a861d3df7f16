/** Contract, "Documentation" and "Versioning": the OpenAPI document as a function of the routes table. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Ajv2020 } from "ajv/dist/2020.js";
import formats from "ajv-formats";
import { ROUTES } from "../../core/api/routes/index.ts";
import { SOCKETS } from "../../core/api/sockets/index.ts";
import { compileAccess } from "../../core/auth/classes.ts";
import { documentSecurity } from "../../core/auth/document.ts";
import { type DocumentInfo, openapiDocument } from "../../core/http/openapi.ts";
import type { Route } from "../../core/http/route.ts";
import { validators } from "../../generated/validators.js";
import { schemas } from "../support/schemas.ts";

type Tree = Record<string, unknown>;

const HERE = fileURLToPath(new URL(".", import.meta.url));
const REDOCLY = fileURLToPath(new URL("../../node_modules/@redocly/cli/bin/cli.js", import.meta.url));
const INFO: DocumentInfo = { title: "Support desk", version: "1.2.3" };

/** A row as a route plugin gives it. */
const CUSTOM = {
  operation: "custom.hello",
  method: "POST",
  path: "/hello/:who",
  group: "custom",
  summary: "Says hello",
  schemas: {
    query: {
      type: "object",
      properties: { loud: { type: "boolean", description: "In capitals." } },
      required: ["loud"],
    },
    body: { type: "object", properties: { next: { $ref: "#" } } },
    response: { type: "object", properties: { hello: { type: "string" } } },
  },
  output: { json: "CustomResult" },
  handle: () => null,
} as unknown as Route<never>;

const rows = [...(ROUTES as unknown as readonly Route<never>[]), CUSTOM];
/** Those that ever succeed: an MCP server refuses GET and DELETE, which the linter takes for operations without an answer. */
const answering = rows.filter(({ operation }) => !["mcp.listen", "mcp.endSession"].includes(operation));

const SECURITY: DocumentInfo["security"] = {
  schemes: { token: { type: "http", scheme: "bearer", description: "A token of the identity provider." } },
  of: (route) => (route.group === "execution" ? [{ token: [] }] : []),
};

/** That of a service with access: routes of every class, and one that hangs on a parameter. */
const ACCESS = documentSecurity(
  compileAccess(
    {
      mode: "legacy",
      publicRoutes: ["POST /agents/free/text"],
      consoleRoutes: ["$defaults"],
      protectedRoutes: [],
      defaultPrivate: true,
      isolation: "none",
    },
    rows,
  ),
);

/** The findings of the linter about each document, as `severity rule: message`. One run has them all: its start is most of its work. */
function lint(documents: readonly object[]): string[][] {
  const folder = mkdtempSync(join(tmpdir(), "penstock-doc-"));
  try {
    const files = documents.map((document, index) => {
      writeFileSync(join(folder, `${index}.json`), JSON.stringify(document));
      return join(folder, `${index}.json`);
    });
    const options = ["--config", join(HERE, "redocly.yaml"), "--lint-config", "error", "--format", "json"];
    // Neither telemetry nor a look for updates: the test needs no network.
    const env = { ...process.env, REDOCLY_TELEMETRY: "off", REDOCLY_SUPPRESS_UPDATE_NOTICE: "true" };
    const run = spawnSync(process.execPath, [REDOCLY, "lint", ...files, ...options, "--max-problems", "1000"], {
      encoding: "utf8",
      env,
      timeout: 120_000,
      maxBuffer: 64 * 1024 * 1024,
    });
    // One text of JSON for each file, in the order of the files.
    const replies = run.stdout
      .split(/(?<=^\})\s*(?=\{)/m)
      .map((text) => JSON.parse(text) as { problems: { severity: string; ruleId: string; message: string }[] });
    assert.equal(replies.length, files.length, run.stderr);
    return replies.map(({ problems }) =>
      problems.map(({ severity, ruleId, message }) => `${severity} ${ruleId}: ${message}`),
    );
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

test("GET /doc: the document is valid OpenAPI 3.1, also with a public address, credentials and sockets, without errors and without warnings; the linter finds an operation without an answer and a dangling reference", () => {
  const broken = openapiDocument(
    answering.filter(({ path }) => path === "/agents" || path === "/tools"),
    INFO,
  );
  const paths = broken.paths as Record<string, { get: { responses: object } }>;
  paths["/agents"]!.get.responses = {};
  paths["/tools"]!.get.responses = { 200: { $ref: "#/components/responses/Nothing" } };
  const [plain, secured, found] = lint([
    openapiDocument(answering, INFO),
    openapiDocument(answering, {
      ...INFO,
      publicUrl: "http://localhost:3141/desk/",
      security: ACCESS,
      sockets: SOCKETS,
    }),
    broken,
  ]);
  assert.deepEqual([plain, secured], [[], []]);
  assert.match(found!.join("\n"), /operation-2xx-response/);
  assert.match(found!.join("\n"), /error no-unresolved-refs/);
});

test("GET /doc: every row of the routes table is described, and nothing else", () => {
  const { paths } = openapiDocument(rows, INFO) as { paths: Record<string, Record<string, Tree>> };
  const described = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, { operationId }]) => `${method.toUpperCase()} ${path} ${operationId}`),
  );
  const table = rows.map(({ method, path, operation }) => `${method} ${path.replace(/:(\w+)/g, "{$1}")} ${operation}`);
  assert.deepEqual(described.sort(), table.sort());
});

test("GET /doc: every operation has a summary, a tag that is described, and descriptions of its parameters", () => {
  const document = openapiDocument(rows, INFO) as {
    paths: Record<string, Record<string, Tree>>;
    tags: { name: string }[];
  };
  const tags = document.tags.map(({ name }) => name);
  for (const operation of Object.values(document.paths).flatMap((methods) => Object.values(methods))) {
    assert.ok(operation.summary, `${operation.operationId} has no summary`);
    for (const tag of operation.tags as string[]) assert.ok(tags.includes(tag), `${tag} is not described`);
    for (const { name, description } of (operation.parameters ?? []) as { name: string; description?: string }[])
      assert.ok(description, `${operation.operationId}: ${name} has no description`);
  }
});

/** Limits and page sizes of the contract, by component or operation. */
const DEFAULTS: Record<string, Record<string, unknown>> = {
  GenerateOptions: {
    maxSteps: 5,
    temperature: 0.7,
    maxOutputTokens: 4000,
    topP: 1,
    frequencyPenalty: 0,
    presencePenalty: 0,
    background: false,
    resumableStream: false,
  },
  MemoryRuntimeOptions: { contextLimit: 10, readOnly: false },
  SemanticMemoryOptions: { semanticLimit: 5, semanticThreshold: 0.7, mergeStrategy: "append" },
  ConversationPersistenceOptions: { mode: "step", debounceMs: 200, flushOnToolResult: true },
  CloneConversationRequest: { includeMessages: true },
  UpdateWorkingMemoryRequest: { mode: "replace" },
  "agents.history": { page: 0, limit: 10 },
  "memory.listConversations": { limit: 50, offset: 0, orderBy: "updated_at", orderDirection: "DESC" },
  "memory.listMessages": { limit: 100 },
  "memory.search": { limit: 10, threshold: 0.7 },
  "workflows.listExecutions": { limit: 50, offset: 0 },
  "logs.list": { limit: 100 },
  "observability.listTraces": { limit: 50, offset: 0, spans: true },
};

test("GET /doc: options and page sizes are described with their defaults", () => {
  const { paths, components } = openapiDocument(rows, INFO) as {
    paths: Record<string, Record<string, { operationId: string; parameters?: { name: string; schema: Tree }[] }>>;
    components: { schemas: Record<string, { properties: Record<string, Tree> }> };
  };
  const operations = Object.values(paths).flatMap((methods) => Object.values(methods));
  const propertiesOf = (name: string): [string, Tree][] => {
    const parameters = operations.find(({ operationId }) => operationId === name)?.parameters ?? [];
    const properties = components.schemas[name]?.properties;
    return properties === undefined ? parameters.map((one) => [one.name, one.schema]) : Object.entries(properties);
  };
  const found = Object.keys(DEFAULTS).map((name) => {
    const shown = propertiesOf(name).filter(([, schema]) => "default" in schema);
    return [name, Object.fromEntries(shown.map(([key, schema]) => [key, schema.default]))];
  });
  assert.deepEqual(Object.fromEntries(found), DEFAULTS);
});

test("GET /doc: every default is a value that the request may have", () => {
  const ajv = new Ajv2020({ strict: false });
  formats.default(ajv);
  const { components } = openapiDocument(rows, INFO) as { components: Tree };
  ajv.addSchema({ $id: "doc", components });
  let count = 0;
  const visit = (node: unknown) => {
    if (typeof node !== "object" || node === null) return;
    const { default: value, examples: _, ...schema } = node as Tree;
    if (value !== undefined) {
      assert.ok(ajv.validate(schema, value), `${JSON.stringify(value)} for ${JSON.stringify(schema)}`);
      count++;
    }
    for (const child of Object.values(schema)) visit(child);
  };
  visit(components);
  assert.ok(count >= 14, `${count} defaults`);
});

test("a request is checked without the defaults that GET /doc shows, which would hide what its agent says", () => {
  const body = { input: "x", options: { memory: { options: { semanticMemory: {} } } } };
  const query = {};
  assert.ok(validators.GenerateRequest(body) && validators.ConversationsQuery(query));
  assert.deepEqual([body, query], [{ input: "x", options: { memory: { options: { semanticMemory: {} } } } }, {}]);
});

test("GET /doc: replies are described as they are sent: envelope, events, errors", () => {
  const { paths, components } = openapiDocument(rows, INFO) as {
    paths: Record<string, Record<string, { responses: Record<string, Tree> }>>;
    components: { responses: Record<string, Tree> };
  };
  const text = paths["/agents/{id}/text"]!.post!.responses;
  assert.deepEqual(Object.keys(text).sort(), ["200", "202", "400", "404", "409", "413", "415", "422", "500", "503"]);
  const json = (text["200"]!.content as Tree)["application/json"] as { schema: Tree; example: Tree };
  assert.deepEqual(json.schema.required, ["success", "data"]);
  assert.equal(json.example.success, true);
  const chat = (paths["/agents/{id}/chat"]!.post!.responses["200"]!.content as Tree)["text/event-stream"] as Tree;
  assert.deepEqual((chat.schema as Tree).contentSchema, { $ref: "#/components/schemas/UIMessageChunk" });
  assert.match(chat.example as string, /^id: 1\ndata: \{"type":"start".*\n\n[\s\S]*\ndata: \[DONE\]\n\n$/);
  for (const [name, { content }] of Object.entries(components.responses)) {
    const { example } = (content as Record<string, { example: Tree }>)["application/json"]!;
    assert.deepEqual(Object.keys(example), ["success", "error"], name);
  }
});

test("GET /doc: the headers that a request may have are parameters: a key, an approval, the last event of a stream", () => {
  const { paths } = openapiDocument(rows, INFO) as { paths: Record<string, Record<string, Tree>> };
  const headersOf = (method: string, path: string) =>
    ((paths[path]![method]!.parameters ?? []) as { in: string; name: string }[])
      .filter((parameter) => parameter.in === "header")
      .map(({ name }) => name);
  assert.deepEqual(headersOf("post", "/tools/{name}/execute"), ["Idempotency-Key", "x-approval-id"]);
  assert.deepEqual(headersOf("get", "/workflows/{id}/executions/{executionId}/stream"), ["Last-Event-ID"]);
  assert.deepEqual(headersOf("get", "/agents/{id}/runs/{runId}/stream"), ["Last-Event-ID"]);
  assert.deepEqual(headersOf("post", "/workflows/{id}/stream"), ["Idempotency-Key"]);
  assert.deepEqual(headersOf("get", "/agents"), []);
});

test("GET /doc: a custom route carries its own schemas; one that refers to itself is not embedded", () => {
  const { paths } = openapiDocument([CUSTOM], INFO) as { paths: Record<string, { post: Tree }> };
  const { post } = paths["/hello/{who}"]!;
  const parameters = post.parameters as { name: string; in: string; required: boolean }[];
  assert.deepEqual(
    parameters.map((parameter) => `${parameter.in} ${parameter.name} ${parameter.required}`),
    ["path who true", "query loud true"],
  );
  const text = JSON.stringify(post);
  assert.match(text, /"hello":\{"type":"string"\}/);
  assert.doesNotMatch(text, /"\$ref":"#"/);
});

test("GET /doc: credentials appear only while authentication is on, at the routes that need them", () => {
  const open = openapiDocument(rows, INFO) as { components: object };
  assert.equal("securitySchemes" in open.components, false);
  assert.doesNotMatch(JSON.stringify(open), /Unauthorized/);
  const secured = openapiDocument(rows, { ...INFO, security: SECURITY }) as {
    paths: Record<string, Record<string, Tree>>;
  };
  assert.deepEqual(secured.paths["/agents/{id}/text"]!.post!.security, [{ token: [] }]);
  assert.ok("401" in (secured.paths["/agents/{id}/text"]!.post!.responses as Tree));
  assert.deepEqual(secured.paths["/doc"]!.get!.security, []);
});

test("GET /doc: servers name the public address with its base path, and the place the document came from", () => {
  const { servers } = openapiDocument(rows, { ...INFO, publicUrl: "https://desk.example/api/" }) as {
    servers: { url: string }[];
  };
  assert.deepEqual(
    servers.map(({ url }) => url),
    ["https://desk.example/api", "."],
  );
});

test("GET /doc: every example of every schema fits its schema, AgentInput's forms included", () => {
  const ajv = new Ajv2020({ allErrors: true, strict: false });
  formats.default(ajv);
  ajv.addSchema({ $id: "doc", components: { schemas } });
  let checked = 0;
  for (const [name, { examples }] of Object.entries(schemas)) {
    const validate = ajv.getSchema(`doc#/components/schemas/${name}`)!;
    for (const example of (examples ?? []) as unknown[]) {
      assert.ok(validate(example), `${name}: ${ajv.errorsText(validate.errors)}`);
      checked++;
    }
  }
  for (const request of ["GenerateRequest", "ObjectRequest", "ChatRequest"])
    for (const { input } of schemas[request]!.examples as { input?: unknown }[])
      if (input !== undefined) assert.ok(ajv.validate("doc#/components/schemas/AgentInput", input), request);
  assert.ok(checked > 20, `only ${checked} examples`);
});
