/** Files that clients name by URL, and models that do not take URLs. */
import assert from "node:assert/strict";
import { EventEmitter, once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { type TestContext, test } from "node:test";
import { AllowedAddresses } from "../../core/outbound/allowed-addresses.ts";
import { calls, type OpenAIUpstream, startOpenAIUpstream } from "../support/openai-upstream.ts";
import { manifestWith, startService } from "../support/service.ts";

const PIXEL = Buffer.from("iVBORw0KGgo=", "base64");

/** A server of files: /a.png, /big, /missing, /to?TARGET, and one that never answers. */
async function fileServer(test: TestContext) {
  const paths: string[] = [];
  const left = new EventEmitter();
  const server = createServer(({ url = "" }, response) => {
    paths.push(url);
    response.once("close", () => left.emit(url));
    if (url.startsWith("/to?")) response.writeHead(302, { location: decodeURIComponent(url.slice(4)) }).end();
    else if (url === "/big") response.writeHead(200, { "content-type": "image/png" }).end(Buffer.alloc(70_000));
    else if (url === "/missing") response.writeHead(404).end();
    else if (url !== "/silent") response.writeHead(200, { "content-type": "image/png" }).end(PIXEL);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  test.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { port, paths, url: `http://127.0.0.1:${port}`, closed: (path: string) => once(left, path) };
}

/** The package `@ai-sdk/openai-compatible` takes no URLs of images unless it is told so. */
async function setUp(test: TestContext, server: object = {}, agent: object = {}, rest: object = {}) {
  const files = await fileServer(test);
  const upstream = await startOpenAIUpstream();
  test.after(() => upstream.close());
  const options = { name: "up", baseURL: upstream.baseURL, apiKey: "x" };
  const providers = { up: { use: "@ai-sdk/openai-compatible", options, retries: 0 } };
  const manifest = manifestWith({ model: "up/m", ...agent }, { providers, ...rest });
  const service = await startService(test, { ...manifest, server: { ...(manifest.server as object), ...server } });
  return { files, upstream, service };
}

const ask = (...urls: string[]) => ({
  input: [
    {
      role: "user",
      content: [
        { type: "text", text: "look" },
        ...urls.map((image) => ({ type: "image", image, mediaType: "image/*" })),
      ],
    },
  ],
});

const images = (upstream: OpenAIUpstream, request = 0): string[] =>
  upstream.requests[request]?.body.messages
    .flatMap(({ content }: { content: unknown }) => (Array.isArray(content) ? content : []))
    .flatMap((part: { image_url?: { url: string } }) => (part.image_url === undefined ? [] : [part.image_url.url]));

const ALLOWED = { downloads: { allowPrivate: ["127.0.0.1"], max: "64KiB", timeout: "2s" } };
const DATA_URL = `data:image/png;base64,${PIXEL.toString("base64")}`;

test("POST /agents/:id/text downloads images for a model that takes no URLs, and a redirect with them", async (context) => {
  const { files, upstream, service } = await setUp(context, ALLOWED);
  const reply = await service.post("/agents/assistant/text", ask(`${files.url}/a.png`, `${files.url}/to?/b.png`));
  assert.equal(reply.status, 200, await reply.text());
  assert.deepEqual(images(upstream), [DATA_URL, DATA_URL]);
  assert.deepEqual([...files.paths].sort(), ["/a.png", "/b.png", "/to?/b.png"]);
});

test("POST /agents/:id/text hands the URL of an image on to the provider openai-compatible, which takes URLs", async (context) => {
  const upstream = await startOpenAIUpstream();
  context.after(() => upstream.close());
  const providers = { up: { use: "openai-compatible", baseURL: upstream.baseURL } };
  const service = await startService(context, manifestWith({ model: "up/m" }, { providers }));
  const url = "http://files.test/a.png";
  assert.equal((await service.post("/agents/assistant/text", ask(url))).status, 200);
  assert.deepEqual(images(upstream), [url]);
});

test("POST /agents/:id/text hands no URL at a private address on to a provider that takes URLs, unless server.downloads.allowPrivate lists it", async (context) => {
  const upstream = await startOpenAIUpstream();
  context.after(() => upstream.close());
  const providers = { up: { use: "openai-compatible", baseURL: upstream.baseURL } };
  const service = await startService(context, manifestWith({ model: "up/m" }, { providers }));
  for (const host of [
    "169.254.169.254",
    "127.1",
    "[::1]",
    "localhost",
    "localhost.",
    "[::ffff:10.0.0.1]",
    "192.168.1.9",
  ]) {
    const reply = await service.post("/agents/assistant/text", ask(`http://${host}/latest/meta-data.png`));
    assert.equal(reply.status, 400, host);
    assert.match(((await reply.json()) as { error: string }).error, /part 2 of the last message: .* private address/);
  }
  const v1 = [{ role: "user", content: [{ type: "image_url", image_url: { url: "http://10.1.2.3/a.png" } }] }];
  const reply = await service.post("/v1/chat/completions", { model: "assistant", messages: v1 });
  assert.equal(reply.status, 400, await reply.text());
  assert.equal(upstream.requests.length, 0);
  const earlier = [...ask("http://127.0.0.1/a.png").input, { role: "assistant", content: "ok" }, ...ask().input];
  assert.equal((await service.post("/agents/assistant/text", { input: earlier })).status, 200);
  assert.match(JSON.stringify(upstream.requests[0]?.body.messages), /A file was here: .*127\.0\.0\.1 is at a private/);
  const open = await startService(context, {
    ...manifestWith({ model: "up/m" }, { providers }),
    server: { downloads: { allowPrivate: ["10.0.0.0/8", "localhost"] } },
  });
  for (const url of ["http://10.1.2.3/a.png", "http://localhost/a.png"])
    assert.equal((await open.post("/agents/assistant/text", ask(url))).status, 200, url);
  assert.deepEqual([images(upstream, 1), images(upstream, 2)], [["http://10.1.2.3/a.png"], ["http://localhost/a.png"]]);
});

for (const [title, server, path, message] of [
  [
    "a private address",
    {},
    (url: string) => `${url}/a.png`,
    /part 2 of the last message: .*127\.0\.0\.1 is a private address/,
  ],
  [
    "a name of a private address",
    {},
    (url: string) => `${url.replace("127.0.0.1", "localhost")}/a.png`,
    /localhost is at a private address/,
  ],
  [
    "a redirect to a private address",
    ALLOWED,
    (url: string) => `${url}/to?${encodeURIComponent(url.replace("127.0.0.1", "127.0.0.2"))}/a.png`,
    /127\.0\.0\.2 is a private address/,
  ],
  [
    "a redirect to a file of this machine",
    ALLOWED,
    (url: string) => `${url}/to?file:///etc/passwd`,
    /only http and https/,
  ],
  ["an image that is too large", ALLOWED, (url: string) => `${url}/big`, /larger than server\.downloads\.max/],
  ["an image that is not there", ALLOWED, (url: string) => `${url}/missing`, /the server answers 404/],
  [
    "a server that does not answer",
    ALLOWED,
    (url: string) => `${url}/silent`,
    /longer than server\.downloads\.timeout/,
  ],
] as const) {
  test(`POST /agents/:id/text answers 400 with the part of the message for ${title}, and calls no model`, async (context) => {
    const { files, upstream, service } = await setUp(context, server);
    const reply = await service.post("/agents/assistant/text", ask(path(files.url)));
    assert.equal(reply.status, 400);
    assert.match(((await reply.json()) as { error: string }).error, message);
    assert.equal(upstream.requests.length, 0);
    if (server === ALLOWED) assert.equal(files.paths.length, 1);
    else assert.equal(files.paths.length, 0);
  });
}

test("POST /agents/:id/text goes on with a note where an earlier image of the conversation cannot be downloaded any more", async (context) => {
  const { files, upstream, service } = await setUp(context, ALLOWED);
  const input = [...ask(`${files.url}/missing`).input, { role: "assistant", content: "ok" }, ...ask().input];
  assert.equal((await service.post("/agents/assistant/text", { input })).status, 200);
  assert.match(JSON.stringify(upstream.requests[0]?.body.messages), /A file was here: .*the server answers 404/);
});

test("POST /agents/:id/text asks once for an earlier image that cannot be downloaded, however many steps the run has", async (context) => {
  const { files, upstream, service } = await setUp(context, ALLOWED);
  upstream.replies(calls([{ name: "nothing", input: {} }]), calls([{ name: "nothing", input: {} }]));
  const input = [...ask(`${files.url}/missing`).input, { role: "assistant", content: "ok" }, ...ask().input];
  const reply = await service.post("/agents/assistant/text", { input, options: { maxSteps: 3 } });
  assert.equal(reply.status, 200, await reply.text());
  assert.equal(upstream.requests.length, 3);
  assert.deepEqual(files.paths, ["/missing"]);
});

test("POST /agents/:id/text leaves the other downloads as soon as one of the last message has failed", async (context) => {
  const { files, service } = await setUp(context, { downloads: { allowPrivate: ["127.0.0.1"], timeout: "10m" } });
  const closed = files.closed("/silent");
  const reply = await service.post("/agents/assistant/text", ask(`${files.url}/silent`, `${files.url}/missing`));
  assert.equal(reply.status, 400);
  await closed;
});

for (const [address, allowed] of [
  ["8.8.8.8", true],
  ["2606:4700::1111", true],
  ["10.1.2.3", false],
  ["169.254.169.254", false],
  ["100.64.0.1", false],
  ["0.0.0.0", false],
  ["::1", false],
  ["fd00::1", false],
  ["fe80::1", false],
  ["::ffff:127.0.0.1", false],
  ["::ffff:7f00:1", false],
  ["64:ff9b::7f00:1", false],
  ["fec0::1", false],
  ["::ffff:0:7f00:1", false],
  ["::127.0.0.1", false],
  ["2002:7f00:1::", false],
  ["5f00::1", false],
  ["3fff::1", false],
  ["2130706433", false],
  ["0177.0.0.1", false],
  ["0x7f.1", false],
  ["192.168.7.7", true],
  ["192.168.8.1", false],
] as const) {
  test(`files at ${address} are ${allowed ? "" : "not "}downloaded where 192.168.7.0/24 is allowed`, () => {
    const host = new URL(`http://${address.includes(":") ? `[${address}]` : address}/`).hostname;
    assert.equal(new AllowedAddresses(["192.168.7.0/24"]).allowsHost(host), allowed);
  });
}
