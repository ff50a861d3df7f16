/** Contract, "Documentation": the landing page and the explorer as functions. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { gunzipSync } from "node:zlib";
import {
  createDocumentation,
  type DocumentationSource,
  type LandingView,
  renderLanding,
} from "../../core/api/pages/documentation.ts";
import { ROUTES } from "../../core/api/routes/index.ts";
import type { PageReply } from "../../core/http/route.ts";
import { DOCUMENTS } from "../support/documents.ts";
import { shellWords } from "../support/pages.ts";

const FILES = "v1";
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
};

test("GET /: every value of a manifest is escaped, in text and in links", () => {
  const page = renderLanding(VIEW, FILES);
  for (const raw of [
    "<script>",
    "<img",
    "<u>",
    "<tool>",
    "<sub>",
    "<add>",
    "<adds>",
    "<tag>",
    "<flow",
    "<why>",
    "<b>",
    "<i>",
  ])
    assert.ok(!page.includes(raw), `${raw} stands in the page unescaped`);
  assert.ok(page.includes("<title>Desk &lt;b&gt;&amp;&#39;&quot;</title>"));
  assert.ok(page.includes('href="./agents/a%20b&#39;%3Cscript%3E"'));
  assert.ok(page.includes('href="./workflows/%3Cflow%3E"'));
});

test("GET /: links are relative, so that they hold behind a base path, and name what the contract serves", () => {
  const hrefs = [...renderLanding(VIEW, FILES).matchAll(/<a [^>]*href="([^"]*)"/g)].map((match) => match[1]!);
  for (const href of hrefs) assert.match(href, /^\.\//);
  for (const link of ["./ui", "./doc", "./agents", "./workflows", "./tools", "./healthz"])
    assert.ok(hrefs.includes(link), link);
  const resolved = new URL("./doc", "https://desk.example/base/").href;
  assert.equal(resolved, "https://desk.example/base/doc");
});

test("GET /: the try-it command survives the shell, whatever the agent is called", () => {
  const words = shellWords(renderLanding({ ...VIEW, secured: true }, FILES))[0];
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
  const page = renderLanding({ ...VIEW, agents: [], tools: [], workflows: [] }, FILES);
  assert.deepEqual(shellWords(page)[0], ["-s", "http://127.0.0.1:3141/healthz"]);
  assert.match(page, /No agents, tools and workflows yet, at /);
});

test("GET /: the first line counts what is served, and leaves out what there is none of", () => {
  assert.match(renderLanding(VIEW, FILES), /1 agent, 1 tool and 1 workflow, at /);
  assert.match(renderLanding({ ...VIEW, agents: [] }, FILES), /1 tool and 1 workflow, at /);
  assert.match(renderLanding({ ...VIEW, agents: [], tools: [] }, FILES), /<p class="lead">1 workflow, at /);
});

function documentationOf(server: { publicUrl?: string } = {}) {
  const workflows: Record<string, { name: string; purpose: string }> = {
    refund: { name: "Refund", purpose: "Pays back" },
  };
  const manifest = { name: "Desk", version: "1.0.0", server, workflows } as DocumentationSource<never>["manifest"];
  return createDocumentation({
    manifest,
    routes: ROUTES,
    sockets: [],
    agents: new Map(),
    tools: new Map(),
    address: () => "http://0.0.0.0:3141",
  });
}

const headerOf = (page: PageReply, name: string) => page.headers?.[page.headers.indexOf(name) + 1] ?? "";
const textOf = (page: PageReply) => Buffer.from(page.body).toString("utf8");

test("GET /: the page is made once, says where it is in fact reachable, and lists the workflows", async () => {
  const documentation = documentationOf();
  const page = await documentation.landing();
  assert.equal(await documentation.landing(), page);
  assert.match(textOf(page), /curl -s http:\/\/127\.0\.0\.1:3141\/healthz/);
  assert.match(textOf(page), /<code>refund<\/code><\/a><p>Refund: Pays back</);
  assert.match(
    textOf(await documentationOf({ publicUrl: "https://desk.example/base/" }).landing()),
    /https:\/\/desk\.example\/base\/healthz/,
  );
});

test("GET / and GET /ui: no page loads anything from another host, and the policy forbids it", async () => {
  const documentation = documentationOf();
  for (const page of [await documentation.landing(), await documentation.explorer(), await documentation.manual()]) {
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
  const names = [...textOf(await documentation.explorer()).matchAll(/(?:src|href)="\.\/ui\/([^"?]+)\?v=[^"]+"/g)].map(
    (match) => match[1]!,
  );
  assert.deepEqual(names.sort(), ["explorer.css", "explorer.js", "swagger-ui-bundle.js", "swagger-ui.css"]);
  for (const name of names) {
    const asset = await documentation.asset("ui", name);
    assert.equal(await documentation.asset("ui", name), asset, "the second request reads no file");
    assert.match(asset.type ?? "", name.endsWith(".js") ? /^text\/javascript/ : /^text\/css/);
    assert.match(headerOf(asset, "etag"), /^"[0-9a-f]{32}"$/);
    assert.match(headerOf(asset, "cache-control"), /immutable/);
    assert.ok(asset.body.length > 50);
  }
});

test("GET /console/:asset: the page names one script and one style sheet, which come from this server, compressed where the browser takes that", async () => {
  const documentation = documentationOf();
  const page = textOf(await documentation.landing());
  const names = [...page.matchAll(/"\.\/console\/([\w.-]+)\?v=[0-9a-f]{12}"/g)].map(([, name]) => name!);
  assert.deepEqual(names, ["main.css", "main.js"]);
  for (const name of names) {
    const plain = await documentation.asset("console", name);
    assert.equal(await documentation.asset("console", name, "br, gzip;q=0"), plain, "the second request reads no file");
    const compressed = await documentation.asset("console", name, "gzip, deflate, br");
    assert.equal(headerOf(compressed, "content-encoding"), "gzip");
    assert.equal(gunzipSync(compressed.body as Uint8Array).toString("utf8"), textOf(plain));
    assert.notEqual(headerOf(compressed, "etag"), headerOf(plain, "etag"));
    for (const asset of [plain, compressed]) {
      assert.match(asset.type ?? "", name.endsWith(".js") ? /^text\/javascript/ : /^text\/css/);
      assert.match(headerOf(asset, "etag"), /^"[0-9a-f]{32}"$/);
      assert.match(headerOf(asset, "cache-control"), /immutable/);
      assert.equal(headerOf(asset, "vary"), "accept-encoding");
    }
  }
  assert.doesNotMatch(textOf(await documentation.asset("console", "main.js")), /^(?:import|export)\b/m);
});

for (const name of ["", "..", "main.ts", "../console-files.ts", "__proto__", "constructor", "tsconfig.json"]) {
  test(`GET /console/:asset: "${name}" is not an asset`, async () => {
    await assert.rejects(documentationOf().asset("console", name), { kind: "not_found" });
  });
}

test("GET /docs/:asset: every chapter as it is in docs/, but for those about decisions, and an index of all of them under 300 KB", async () => {
  const documentation = documentationOf();
  const text = textOf(await documentation.asset("docs", "index.js"));
  assert.ok(Buffer.byteLength(text) < 300_000, `${Buffer.byteLength(text)} bytes`);
  const index: [name: string, sections: [heading: string, words: string][]][] = JSON.parse(
    text.slice("export const index = ".length, -1),
  );
  const chapters = [...DOCUMENTS].filter(([path]) => /^docs\/(?!decisions)/.test(path));
  assert.equal(index.length, chapters.length);
  for (const [path, chapter] of chapters) {
    const name = path.slice("docs/".length).replace("/", ".");
    const page = await documentation.asset("docs", name);
    assert.equal(page.type, "text/markdown; charset=utf-8");
    assert.equal(textOf(page), chapter);
    const [, sections = []] = index.find(([each]) => each === name) ?? [];
    assert.equal(sections[0]?.[0], chapter.split("\n", 1)[0], name);
  }
  await assert.rejects(documentation.asset("docs", "../package.json"), { kind: "not_found" });
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
    await assert.rejects(documentationOf().asset("ui", name), { kind: "not_found" });
  });
}
