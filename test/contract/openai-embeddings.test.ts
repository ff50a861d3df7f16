/** `POST /v1/embeddings`: the embeddings of memories for OpenAI's client. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import OpenAI from "openai";
import { AUTH, as } from "../support/approvals.ts";
import { type Loose, serveUpstream } from "../support/served-upstream.ts";
import { startService } from "../support/service.ts";

const memory = { default: { semantic: { embedding: "local/hash" } }, plain: {} };
const norm = (one: number[], other: number[]) => one.reduce((sum, value, index) => sum + value * other[index]!, 0);

test("openai 7: POST /v1/embeddings gives one vector for each text, as base64 and as numbers, of the embedding that a memory has", async (t) => {
  const { service } = await serveUpstream(t, {}, { memory });
  const client: Loose = new OpenAI({ apiKey: "key", baseURL: `${service.url}/v1` });
  const input = ["an invoice for anchors", "invoices of an anchor", "good weather"];
  // The client asks for base64 unless it is told otherwise.
  const { data, model, object } = await client.embeddings.create({ model: "local/hash", input });
  assert.deepEqual([object, model, data.length], ["list", "local/hash", 3]);
  assert.deepEqual(
    data.map(({ index, object: kind }: Loose) => [index, kind]),
    [0, 1, 2].map((index) => [index, "embedding"]),
  );
  const [one, other, far] = data.map(({ embedding }: Loose) => embedding);
  assert.equal(one.length, 512);
  assert.ok(norm(one, other) > norm(one, far), "texts of one meaning are nearer");
  const single = await client.embeddings.create({ model: "local/hash", input: input[0], encoding_format: "float" });
  assert.deepEqual(single.data[0].embedding, one);
});

test("POST /v1/embeddings refuses in OpenAI's words: other models, an agent, no text, tokens, other dimensions, and nobody's token", async (t) => {
  const { service } = await serveUpstream(t, {}, { memory, auth: AUTH });
  const ask = async (body: object, headers = as("ada")) => {
    const reply = await service.post("/v1/embeddings", { model: "local/hash", input: "x", ...body }, headers);
    const { error } = (await reply.json()) as Loose;
    return [reply.status, error?.param, error?.code];
  };
  assert.deepEqual(await ask({ model: "local/use" }), [404, "model", "model_not_found"]);
  assert.deepEqual(await ask({ model: "assistant" }), [404, "model", "model_not_found"]);
  assert.deepEqual(await ask({ input: "" }), [400, "input", "invalid_value"]);
  assert.deepEqual(await ask({ input: [] }), [400, "input", "invalid_value"]);
  assert.deepEqual(await ask({ input: [1, 2] }), [400, "input[0]", "invalid_value"]);
  assert.deepEqual(await ask({ input: Array(2049).fill("x") }), [400, "input", "invalid_value"]);
  assert.deepEqual(await ask({ dimensions: 3 }), [400, "dimensions", "unsupported_parameter"]);
  assert.deepEqual(await ask({ encoding_format: "hex" }), [400, "encoding_format", "invalid_value"]);
  assert.deepEqual(await ask({}, {} as never), [401, "", "invalid_api_key"]);
  assert.deepEqual(await ask({ dimensions: 512 }), [200, undefined, undefined]);
});

test("POST /v1/embeddings over a provider: dimensions are refused before it is asked, and its 429 and 503 are passed on with Retry-After", async (t) => {
  let asked = 0;
  let answer: [number, Record<string, string>] = [500, {}];
  const provider = createServer((request, response) => {
    asked++;
    request.resume().on("end", () => response.writeHead(...answer).end('{"error":{"message":"not now"}}'));
  }).listen(0, "127.0.0.1");
  await once(provider, "listening");
  t.after(() => provider.close());
  const baseURL = `http://127.0.0.1:${(provider.address() as AddressInfo).port}/v1`;
  const up = { use: "openai-compatible", baseURL, apiKey: "key" };
  const service = await startService(t, {
    providers: { up },
    memory: { default: { semantic: { embedding: "up/vectors" } } },
  });
  const ask = async (body: object) => {
    const reply = await service.post("/v1/embeddings", { model: "up/vectors", input: "x", ...body });
    const { error } = (await reply.json()) as Loose;
    return [reply.status, error.param, error.code, reply.headers.get("retry-after")];
  };
  assert.deepEqual(await ask({ dimensions: 256 }), [400, "dimensions", "unsupported_parameter", null]);
  assert.equal(asked, 0);
  for (const [status, code] of [
    [429, "rate_limit_exceeded"],
    [503, "server_error"],
  ] as const) {
    answer = [status, { "retry-after": "17" }];
    assert.deepEqual(await ask({ dimensions: null }), [status, "", code, "17"]);
  }
  answer = [400, {}];
  assert.deepEqual((await ask({}))[0], 400);
});
