/** Contract, "Documentation" and "Versioning": the OpenAPI document, the explorer and the landing page as functions. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Ajv2020 } from "ajv/dist/2020.js";
import formats from "ajv-formats";
import { ROUTES } from "../../core/api/index.ts";
import { createDocumentation, type DocumentationSource } from "../../core/api/pages/documentation.ts";
import { type LandingView, renderLanding } from "../../core/api/pages/landing.ts";
import { type DocumentInfo, openapiDocument } from "../../core/http/openapi.ts";
import type { Page, Route } from "../../core/http/route.ts";
import { schemas } from "../../generated/schemas.ts";
import { shellWords } from "../support/pages.ts";

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

const SECURITY: DocumentInfo["security"] = {
  schemes: { token: { type: "http", scheme: "bearer", description: "A token of the identity provider." } },
  of: (route) => (route.group === "execution" ? [{ token: [] }] : []),
};

/** The findings of the linter, each as `severity rule: message`. */
function lint(document: object): string[] {
  const folder = mkdtempSync(join(tmpdir(), "penstock-doc-"));
  try {
    const file = join(folder, "openapi.json");
    writeFileSync(file, JSON.stringify(document));
    const options = ["--config", join(HERE, "redocly.yaml"), "--lint-config", "error", "--format", "json"];
    // Neither telemetry nor a look for updates: the test needs no network.
    const env = { ...process.env, REDOCLY_TELEMETRY: "off", REDOCLY_SUPPRESS_UPDATE_NOTICE: "true" };
    const run = spawnSync(process.execPath, [REDOCLY, "lint", file, ...options], {
      encoding: "utf8",
      env,
      timeout: 60_000,
    });
    const { problems } = JSON.parse(run.stdout) as {
      problems: { severity: string; ruleId: string; message: string }[];
    };
    return problems.map(({ severity, ruleId, message }) => `${severity} ${ruleId}: ${message}`);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

for (const [title, info] of [
  ["the document", INFO],
  [
    "the document with a public address and credentials",
    { ...INFO, publicUrl: "http://localhost:3141/desk/", security: SECURITY },
  ],
] as const) {
  test(`GET /doc: ${title} is valid OpenAPI 3.1, without errors and without warnings`, () => {
    assert.deepEqual(lint(openapiDocument(rows, info)), []);
  });
}

test("GET /doc: the linter is awake: an operation without an answer and a dangling reference are found", () => {
  const document = openapiDocument(rows, INFO);
  const paths = document.paths as Record<string, { get: { responses: object } }>;
  paths["/agents"]!.get.responses = {};
  paths["/tools"]!.get.responses = { 200: { $ref: "#/components/responses/Nothing" } };
  const findings = lint(document).join("\n");
  assert.match(findings, /operation-2xx-response/);
  assert.match(findings, /error no-unresolved-refs/);
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

test("GET /doc: replies are described as they are sent: envelope, events, errors", () => {
  const { paths, components } = openapiDocument(rows, INFO) as {
    paths: Record<string, Record<string, { responses: Record<string, Tree> }>>;
    components: { responses: Record<string, Tree> };
  };
  const text = paths["/agents/{id}/text"]!.post!.responses;
  assert.deepEqual(Object.keys(text).sort(), ["200", "400", "404", "413", "415", "500", "503"]);
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
  const open = JSON.stringify(openapiDocument(rows, INFO));
  assert.doesNotMatch(open, /securitySchemes|Unauthorized/);
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

const VIEW: LandingView = {
  name: "Desk <b>&'\"",
  version: "1.0.0<i>",
  baseUrl: "http://127.0.0.1:3141",
  secured: false,
  agents: [
    {
      id: "a b'<script>",
      name: "<script>alert(1)</script>",
      description: "<img src=x onerror=alert(2)>",
      model: "demo/<u>",
      tools: [{ name: "<tool>", description: "", parameters: {} }],
      subAgents: [{ id: "<sub>", name: "", description: "", status: "idle", model: "" }],
    },
  ],
  tools: [{ name: "<add>", description: "<adds>", tags: ["<tag>"] }],
  workflows: [{ id: "<flow>", name: "<flows>", purpose: "<why>" }],
  workflowsNote: "<note>",
};

test("GET /: every value of a manifest is escaped, in text and in links", () => {
  const page = renderLanding(VIEW);
  for (const raw of [
    "<script",
    "<img",
    "<u>",
    "<tool>",
    "<sub>",
    "<add>",
    "<adds>",
    "<tag>",
    "<flow",
    "<why>",
    "<note>",
    "<b>",
    "<i>",
  ])
    assert.ok(!page.includes(raw), `${raw} stands in the page unescaped`);
  assert.ok(page.includes("<title>Desk &lt;b&gt;&amp;&#39;&quot;</title>"));
  assert.ok(page.includes('href="./agents/a%20b&#39;%3Cscript%3E"'));
  assert.ok(page.includes("&lt;note&gt;"));
});

test("GET /: links are relative, so that they hold behind a base path, and name what the contract serves", () => {
  const hrefs = [...renderLanding(VIEW).matchAll(/<a [^>]*href="([^"]*)"/g)].map((match) => match[1]!);
  for (const href of hrefs) assert.match(href, /^\.\//);
  for (const link of ["./ui", "./doc", "./agents", "./tools", "./healthz"]) assert.ok(hrefs.includes(link), link);
  const resolved = new URL("./doc", "https://desk.example/base/").href;
  assert.equal(resolved, "https://desk.example/base/doc");
});

test("GET /: the try-it command survives the shell, whatever the agent is called", () => {
  const words = shellWords(renderLanding({ ...VIEW, secured: true }))[0];
  assert.deepEqual(words, [
    "-s",
    "http://127.0.0.1:3141/agents/a%20b'%3Cscript%3E/text",
    "-H",
    "content-type: application/json",
    "-H",
    "authorization: Bearer secret",
    "-d",
    '{"input": "Hello!"}',
  ]);
});

test("GET /: a service without agents still shows a command that works", () => {
  const page = renderLanding({ ...VIEW, agents: [], tools: [], workflows: [] });
  assert.deepEqual(shellWords(page)[0], ["-s", "http://127.0.0.1:3141/healthz"]);
});

function documentationOf(server: { publicUrl?: string } = {}) {
  const workflows: Record<string, { name: string; purpose: string }> = {
    refund: { name: "Refund", purpose: "Pays back" },
  };
  const manifest = { name: "Desk", version: "1.0.0", server, workflows } as DocumentationSource<never>["manifest"];
  return createDocumentation({
    manifest,
    routes: rows,
    agents: new Map(),
    tools: new Map(),
    address: () => "http://0.0.0.0:3141",
  });
}

const headerOf = (page: Page, name: string) => page.headers?.[page.headers.indexOf(name) + 1] ?? "";
const textOf = (page: Page) => Buffer.from(page.body).toString("utf8");

test("GET /: the page is made once, says where it is in fact reachable, and says that workflows do not run", () => {
  const documentation = documentationOf();
  const page = documentation.landing();
  assert.equal(documentation.landing(), page);
  assert.match(textOf(page), /curl -s http:\/\/127\.0\.0\.1:3141\/healthz/);
  assert.match(textOf(page), /does not run workflows yet/);
  assert.match(
    textOf(documentationOf({ publicUrl: "https://desk.example/base/" }).landing()),
    /https:\/\/desk\.example\/base\/healthz/,
  );
});

test("GET / and GET /ui: no page loads anything from another host, and the policy forbids it", () => {
  const documentation = documentationOf();
  for (const page of [documentation.landing(), documentation.explorer()]) {
    const policy = headerOf(page, "content-security-policy");
    assert.match(policy, /^default-src 'none'/);
    assert.doesNotMatch(policy, /unsafe|https?:/);
    const addresses = [...textOf(page).matchAll(/(?:src|href)="([^"]*)"/g)].map((match) => match[1]!);
    assert.ok(addresses.length > 1);
    for (const address of addresses) assert.doesNotMatch(address, /^(https?:)?\/\//);
    assert.doesNotMatch(textOf(page), /@import|url\(/);
  }
});

test("GET /ui/:asset: every asset that the explorer names comes from this server, typed and cacheable", async () => {
  const documentation = documentationOf();
  const names = [...textOf(documentation.explorer()).matchAll(/(?:src|href)="\.\/ui\/([^"?]+)\?v=[^"]+"/g)].map(
    (match) => match[1]!,
  );
  assert.deepEqual(names.sort(), ["explorer.css", "explorer.js", "swagger-ui-bundle.js", "swagger-ui.css"]);
  for (const name of names) {
    const asset = await documentation.asset(name);
    assert.equal(await documentation.asset(name), asset, "the second request reads no file");
    assert.match(asset.type ?? "", name.endsWith(".js") ? /^text\/javascript/ : /^text\/css/);
    assert.match(headerOf(asset, "etag"), /^"[0-9a-f]{32}"$/);
    assert.match(headerOf(asset, "cache-control"), /immutable/);
    assert.ok(asset.body.length > 50);
  }
});

for (const name of [
  "",
  "package.json",
  "..",
  "../package.json",
  "__proto__",
  "constructor",
  "index.html",
  "swagger-ui-bundle.js.map",
]) {
  test(`GET /ui/:asset: "${name}" is not an asset`, async () => {
    await assert.rejects(documentationOf().asset(name), { kind: "not_found" });
  });
}
