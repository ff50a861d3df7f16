/** Answers behind something that compresses them, of providers, of HTTP tools and of servers of files: they are read as plain ones are. */
import assert from "node:assert/strict";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { type TestContext, test } from "node:test";
import * as zlib from "node:zlib";
import { dataOf, errorOf, type Loose, serveUpstream } from "../support/served-upstream.ts";
import { manifestWith, startService } from "../support/service.ts";

const PNG = Buffer.from(
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
  "base64",
);

type Encoder = ReturnType<typeof zlib.createGzip>;
const ENCODERS: Record<string, () => Encoder> = {
  gzip: zlib.createGzip,
  deflate: zlib.createDeflate,
  br: zlib.createBrotliCompress as () => Encoder,
};
const { createZstdCompress } = zlib as { createZstdCompress?: () => Encoder };
if (createZstdCompress !== undefined) ENCODERS.zstd = createZstdCompress;

const event = (delta: object, finish: string | null = null) =>
  `data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`;
const END = `${event({}, "stop")}data: [DONE]\n\n`;

/** @param play gets a stream that compresses what is written into it */
async function serve(
  t: TestContext,
  encoding: string,
  play: (out: Encoder, reply: ServerResponse, body: Loose) => void,
  status = 200,
) {
  const asked: unknown[] = [];
  const server = createServer(async (request, reply) => {
    const pieces: Buffer[] = [];
    for await (const piece of request) pieces.push(piece as Buffer);
    asked.push(request.headers["accept-encoding"]);
    reply.writeHead(status, { "content-type": "text/event-stream", "content-encoding": encoding });
    const out = (ENCODERS[encoding.toLowerCase()] ?? ENCODERS.gzip!)();
    out.pipe(reply);
    play(out, reply, JSON.parse(Buffer.concat(pieces).toString()));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const baseURL = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
  const providers = { up: { use: "openai-compatible", baseURL, apiKey: "x", retries: 0 } };
  const service = await startService(t, manifestWith({ model: "up/m", memory: false }, { providers }));
  return { service, asked };
}

for (const encoding of Object.keys(ENCODERS))
  test(`POST /agents/:id/stream reads a stream with content-encoding ${encoding} as it comes, from a provider that was asked for a plain one`, async (t) => {
    let goOn: () => void = () => undefined;
    const { service, asked } = await serve(t, encoding, (out) => {
      out.write(event({ content: "First" }));
      // The rest is sent only when the client has the first word.
      out.flush(() => undefined);
      goOn = () => out.end(event({ content: ", then the rest." }) + END);
    });
    const reply = await service.post("/agents/assistant/stream", { input: "x" });
    let text = "";
    for await (const piece of reply.body!) {
      text += Buffer.from(piece).toString();
      if (!text.includes('"First"')) continue;
      goOn();
      goOn = () => undefined;
    }
    assert.match(text, /then the rest.*"finishReason":"stop"/s);
    assert.deepEqual(asked, ["identity"]);
  });

test("POST /agents/:id/text reads a whole completion with content-encoding GZIP, and 3 MB of deltas", async (t) => {
  let large = false;
  const { service } = await serve(t, "GZIP", (out) => {
    if (large) out.end(event({ content: "x".repeat(1000) }).repeat(3000) + END);
    else out.end(JSON.stringify({ choices: [{ index: 0, message: { content: "Whole." }, finish_reason: "stop" }] }));
  });
  assert.equal((await dataOf(service.post("/agents/assistant/text", { input: "x" }))).text, "Whole.");
  large = true;
  assert.equal((await dataOf(service.post("/agents/assistant/text", { input: "x" }))).text.length, 3_000_000);
});

test("POST /agents/:id/text reads why a provider refused a request from a compressed reply", async (t) => {
  const message = "This model's maximum context length is 10 tokens";
  const { service } = await serve(t, "br", (out) => out.end(JSON.stringify({ error: { message } })), 400);
  const reply = await service.post("/agents/assistant/text", { input: "x" });
  assert.equal(reply.headers.get("x-error-code"), "context_length");
});

test("POST /agents/:id/text: a compressed answer that breaks off, or has an encoding that nobody knows, is unavailable", async (t) => {
  const half = zlib.gzipSync(event({ content: "Half" })).subarray(0, -8);
  for (const encoding of ["gzip", "odd"]) {
    const { service } = await serve(t, encoding, (_, reply) => reply.end(half));
    const { status, error } = await errorOf(service.post("/agents/assistant/text", { input: "x" }));
    assert.deepEqual([status, error], [500, "model provider failed: unavailable"]);
  }
});

test("POST /agents/:id/text: a compressed answer that grows beyond 128 MiB is ended", async (t) => {
  const spaces = zlib.gzipSync(Buffer.alloc(8 * 1024 * 1024, " "));
  const { service } = await serve(t, "gzip", (_, reply) => reply.end(Buffer.concat(Array(17).fill(spaces))));
  const { status, error } = await errorOf(service.post("/agents/assistant/text", { input: "x" }));
  assert.deepEqual([status, error], [500, "model provider failed: unavailable"]);
});

/** A server whose paths say how the answer is encoded, and what it is. */
async function startPlain(t: TestContext) {
  const compress = zlib as unknown as Record<string, (data: Buffer) => Buffer>;
  const syncs: Loose = { gzip: "gzipSync", deflate: "deflateSync", br: "brotliCompressSync", zstd: "zstdCompressSync" };
  const server = createServer((request, reply) => {
    const [, encoding = "", what] = request.url!.split("/");
    const [status, type, body] = (
      {
        json: [200, "application/json", Buffer.from(`{"read":"${encoding}"}`)],
        why: [422, "text/plain", Buffer.from("no such city")],
        large: [200, "text/plain", Buffer.alloc(2 * 1024 * 1024, "x")],
        picture: [200, "image/png", PNG],
        nothing: [204, "text/plain", Buffer.alloc(0)],
      } as Record<string, [number, string, Buffer]>
    )[what!]!;
    reply.writeHead(status, { "content-type": type, "content-encoding": encoding });
    if (request.method === "HEAD" || status === 204) reply.end();
    else reply.end(encoding in syncs ? compress[syncs[encoding]]!(body) : body);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

test("POST /tools/:name/execute reads an answer with a content-encoding, and what a 4xx says in one", async (t) => {
  const url = await startPlain(t);
  const answer = (method: string) => ({
    description: "Reads",
    parameters: { type: "object", properties: { encoding: { type: "string" }, what: { type: "string" } } },
    http: { url: `${url}/{{ input.encoding }}/{{ input.what }}`, method, retries: 0 },
    output: "{{ {'status': status, 'body': body} }}",
  });
  const tools = { far: answer("GET"), head: answer("HEAD") };
  const service = await startService(t, manifestWith({ model: "demo/echo", memory: false }, { tools }));
  const ask = (name: string, path: string) => {
    const [encoding, what] = path.split("/");
    return service.post(`/tools/${name}/execute`, { input: { encoding, what } });
  };
  for (const encoding of [...Object.keys(ENCODERS), "identity"]) {
    const { result } = await dataOf(ask("far", `${encoding}/json`));
    assert.deepEqual(result, { status: 200, body: { read: encoding } });
    assert.equal((await errorOf(ask("far", `${encoding}/why`))).error, "far answered 422: no such city");
    assert.equal((await errorOf(ask("far", `${encoding}/large`))).error, "far answered more than 1 MiB");
    assert.equal((await dataOf(ask("head", `${encoding}/json`))).result.status, 200);
    assert.deepEqual((await dataOf(ask("far", `${encoding}/nothing`))).result, { status: 204, body: "" });
  }
  assert.match(
    (await errorOf(ask("far", "odd/json"))).error,
    /^far answered, but its content-encoding odd cannot be read/,
  );
  assert.equal((await errorOf(ask("far", "odd/why"))).error, "far answered 422");
});

test("POST /agents/:id/text: a file that is downloaded with a content-encoding reaches the model as it is", async (t) => {
  const url = await startPlain(t);
  const downloads = { allowPrivate: ["127.0.0.1"] };
  const { service, upstream } = await serveUpstream(t, { memory: false }, { server: { downloads } });
  const ask = (encoding: string) => {
    const content = [{ type: "file", mediaType: "application/pdf", data: `${url}/${encoding}/picture` }];
    return service.post("/agents/assistant/text", { input: [{ role: "user", content }] });
  };
  for (const encoding of Object.keys(ENCODERS)) {
    await dataOf(ask(encoding));
    assert.ok(JSON.stringify(upstream.requests.at(-1)!.body).includes(`;base64,${PNG.toString("base64")}`), encoding);
  }
  const { status, error } = await errorOf(ask("odd"));
  assert.equal(status, 400);
  assert.match(error, /content-encoding odd cannot be read/);
});
