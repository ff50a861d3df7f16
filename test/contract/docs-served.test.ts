/** Contract, "Documentation": `/`, `/doc` and `/ui` as a running service serves them. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { validators } from "../../generated/all-validators.js";
import { type FetchedPage, fetchPage, shellWords } from "../support/pages.ts";
import { manifestWith, parseEvents, startService } from "../support/service.ts";

test("GET / is an HTML page that names the service and its agents, and HEAD gives its head", async (t) => {
  const service = await startService(t, manifestWith({ description: "Helps <everyone>" }, { name: "Desk & Co" }));
  const page = await fetchPage(service.url);
  assert.equal(page.status, 200);
  assert.match(page.type, /^text\/html; charset=utf-8$/);
  assert.match(page.text, /<h1>Desk &amp; Co<\/h1>/);
  assert.match(page.text, /Helps &lt;everyone&gt;/);
  assert.match(page.header("content-security-policy"), /default-src 'none'/);
  const head = await fetch(service.url, { method: "HEAD" });
  assert.equal(head.headers.get("content-length"), String(Buffer.byteLength(page.text)));
});

test("GET /: every link of the page and of the explorer leads to a reply", async (t) => {
  const service = await startService(t, manifestWith());
  const pages: FetchedPage[] = [await fetchPage(`${service.url}/`), await fetchPage(`${service.url}/ui`)];
  for (const page of pages) {
    assert.ok(page.links.length > 2);
    for (const link of page.links) {
      const reply = await fetch(link);
      assert.equal(reply.status, 200, link);
      await reply.arrayBuffer();
    }
  }
});

test("GET /: the try-it commands work as they are shown", async (t) => {
  const service = await startService(t, manifestWith());
  const { text } = await fetchPage(service.url);
  const [ask, watch] = shellWords(text);
  const send = (words: string[]) =>
    fetch(words[1]!, { method: "POST", headers: { "content-type": "application/json" }, body: words.at(-1) });
  const answer = (await (await send(ask!)).json()) as { success: boolean; data: { text: string } };
  assert.equal(answer.success, true);
  assert.equal(answer.data.text, "Hello!");
  const events = parseEvents(await (await send(watch!)).text());
  assert.equal(JSON.parse(events.at(-1)!.data).type, "finish");
});

test("GET /doc is an OpenAPI 3.1 document outside the envelope, with every route of the running service", async (t) => {
  const service = await startService(t, manifestWith());
  const reply = await service.get("/doc");
  assert.equal(reply.status, 200);
  assert.match(reply.headers.get("content-type") ?? "", /^application\/json/);
  const document = (await reply.json()) as { openapi: string; info: object; paths: Record<string, object> };
  assert.equal(document.openapi, "3.1.0");
  assert.equal((document.info as { title: string }).title, "Test");
  const described = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
  );
  const table = service.service.routes.map(({ method, path }) => `${method} ${path.replace(/:(\w+)/g, "{$1}")}`);
  assert.deepEqual(described.sort(), table.sort());
});

test("GET /ui/:asset serves the script with its type, and an unknown asset is 404 in the envelope", async (t) => {
  const service = await startService(t, manifestWith());
  const script = await service.get("/ui/swagger-ui-bundle.js");
  assert.match(script.headers.get("content-type") ?? "", /^text\/javascript/);
  assert.ok((await script.arrayBuffer()).byteLength > 1_000_000);
  const missing = await service.get("/ui/nothing.js");
  assert.equal(missing.status, 404);
  assert.deepEqual(Object.keys((await missing.json()) as object), ["success", "error"]);
});

test("GET /doc: what the service answers fits the schemas that the document promises", async (t) => {
  const service = await startService(t, manifestWith());
  const data = async (reply: Response) => ((await reply.json()) as { data: unknown }).data;
  const fits = (validate: { (value: unknown): boolean; errors?: unknown }, value: unknown) =>
    assert.ok(validate(value), JSON.stringify({ errors: validate.errors, value }));
  fits(validators.AgentList, await data(await service.get("/agents")));
  fits(validators.AgentDetail, await data(await service.get("/agents/assistant")));
  fits(validators.ToolList, await data(await service.get("/tools")));
  fits(validators.TextResult, await data(await service.post("/agents/assistant/text", { input: "Hello" })));
  fits(validators.HistoryPage, await data(await service.get("/agents/assistant/history")));
  fits(validators.Liveness, await (await service.get("/healthz")).json());
  fits(validators.Readiness, await (await service.get("/readyz")).json());
  fits(validators.ErrorEnvelope, await (await service.get("/agents/nobody")).json());
  const raw = parseEvents(await (await service.post("/agents/assistant/stream", { input: "Hello" })).text());
  assert.ok(raw.length > 3);
  for (const { data } of raw) fits(validators.RawStreamPart, JSON.parse(data));
  const chat = parseEvents(await (await service.post("/agents/assistant/chat", { input: "Hello" })).text());
  assert.equal(chat.at(-1)?.data, "[DONE]");
  for (const { data } of chat.slice(0, -1)) fits(validators.UIMessageChunk, JSON.parse(data));
});
