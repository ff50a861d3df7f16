/** Providers that answer 200 with something that is not an answer, through the packages of the AI SDK and without. */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { after, test } from "node:test";
import { says, startOpenAIUpstream } from "../support/openai-upstream.ts";
import { dataOf, errorOf } from "../support/served-upstream.ts";
import { manifestWith, parseEvents, startService, type TestService } from "../support/service.ts";
import { PROJECT } from "../support/strict-providers.ts";

const PROVIDERS: Readonly<Record<string, string>> = {
  "openai-compatible": "test-model",
  "@ai-sdk/openai": "gpt-5-mini",
  "@ai-sdk/openai-compatible": "test-model",
  "@ai-sdk/open-responses": "test-model",
  "@ai-sdk/anthropic": "claude-sonnet-4-5",
  "@ai-sdk/google": "gemini-2.5-flash",
  "ai-sdk-openai-2": "gpt-5-mini",
  "ai-sdk-openai-4": "gpt-5-mini",
  "ai-sdk-anthropic-4": "claude-sonnet-4-5",
};
const BODIES: Readonly<Record<string, [type: string, body: string]>> = {
  "the page of a proxy": ["text/html", "<html><body>Please sign in</body></html>"],
  "JSON of something else": ["application/json", '{"status":"ok"}'],
  "no body": ["text/event-stream", ""],
  "events of something else": ["text/event-stream", 'data: {"hello":"world"}\n\n'],
  "events that are not JSON": ["text/event-stream", "data: hello\n\n"],
};

let body: [type: string, body: string] = ["", ""];
const idOf = (name: string) => name.replace(/[^a-z0-9]+/g, "-").replace(/^-/, "");

const malformed = createServer((_, response) => {
  response.writeHead(200, { "content-type": body[0] }).end(body[1]);
});
await new Promise<void>((resolve) => malformed.listen(0, "127.0.0.1", resolve));
const good = await startOpenAIUpstream();
good.fallback(says("Of the other model."));
after(async () => {
  malformed.closeAllConnections();
  malformed.close();
  await good.close();
});

const baseURL = `http://127.0.0.1:${(malformed.address() as AddressInfo).port}`;
const connection = { baseURL, apiKey: "test" };
const OPTIONS: Readonly<Record<string, object>> = {
  "@ai-sdk/open-responses": { url: `${baseURL}/responses`, name: "up", apiKey: "test" },
  "@ai-sdk/openai-compatible": { ...connection, name: "up" },
};
const GOOD = "good/test-model";
const providers: Record<string, object> = {
  good: { use: "openai-compatible", baseURL: good.baseURL, apiKey: "test", retries: 0 },
};
const agents: Record<string, object> = {};
for (const [use, id] of Object.entries(PROVIDERS)) {
  const name = idOf(use);
  const settings = use === "openai-compatible" ? connection : { options: OPTIONS[use] ?? connection };
  providers[name] = { use, retries: 0, ...settings };
  agents[name] = { instructions: "Help.", model: `${name}/${id}` };
  agents[`${name}-first`] = { instructions: "Help.", model: [`${name}/${id}`, GOOD] };
}
const manifest = { ...manifestWith({ model: GOOD }, { providers }), agents };
const service: TestService = await startService({ after }, manifest, { project: PROJECT });

for (const use of Object.keys(PROVIDERS))
  for (const [what, given] of Object.entries(BODIES))
    test(`POST /agents/:id/text takes ${what} with status 200 for a failure of ${use}, and asks the next model of the chain`, async () => {
      body = given;
      const failed = await errorOf(service.post(`/agents/${idOf(use)}/text`, { input: "hello" }));
      assert.deepEqual(failed, { status: 500, error: "model provider failed: unavailable" });
      const { text } = await dataOf(service.post(`/agents/${idOf(use)}-first/text`, { input: "hello" }));
      assert.equal(text, "Of the other model.");
    });

test("POST /agents/:id/stream and /chat take a page with status 200 for a failure of a provider with a package, too", async () => {
  body = BODIES["the page of a proxy"]!;
  for (const [door, request] of [
    ["stream", { input: "hello" }],
    ["chat", { input: "hello" }],
  ] as const) {
    const failed = await service.post(`/agents/ai-sdk-openai/${door}`, request);
    assert.match(await failed.text(), /model provider failed: unavailable/, door);
    const answered = await service.post(`/agents/ai-sdk-openai-first/${door}`, request);
    assert.equal(answered.status, 200);
    assert.match(JSON.stringify(parseEvents(await answered.text())), /Of the other model/, door);
  }
});
