/** The media type of files: whatever it is called, and through whichever door the file comes, the model gets the name that providers take. */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { before, test } from "node:test";
import { A2aCaller, said } from "../support/a2a.ts";
import type { OpenAIUpstream } from "../support/openai-upstream.ts";
import { dataOf, errorOf, type Loose, serveUpstream } from "../support/served-upstream.ts";
import type { TestService } from "../support/service.ts";

const JPEG = Buffer.from("ffd8ffe000104a4649460001", "hex").toString("base64");
const PNG = Buffer.from("89504e470d0a1a0a0000000d", "hex").toString("base64");
const WANTED = `data:image/jpeg;base64,${JPEG}`;
const over: (() => unknown)[] = [];
let service: TestService;
let upstream: OpenAIUpstream;
before(async () => {
  ({ service, upstream } = await serveUpstream(
    { after: (end) => void over.push(end as () => unknown) },
    { memory: "default" },
    { memory: { default: {} }, server: { downloads: { allowPrivate: ["127.0.0.1"] } } },
  ));
});
/** A server of files, whose paths say what they are called. */
const files = createServer((request, reply) => {
  reply.writeHead(200, { "content-type": decodeURIComponent(request.url!.slice(1)) });
  reply.end(Buffer.from(JPEG, "base64"));
});
before(() => void files.listen(0, "127.0.0.1"));
test.after(() => void files.close());
test.after(async () => {
  for (const end of over) await end();
});

/** Address of the picture in the last request. */
const sent = (): string => {
  const { messages } = upstream.requests.at(-1)!.body;
  return messages.flatMap(({ content }: Loose) => content ?? []).find(({ type }: Loose) => type === "image_url")
    .image_url.url;
};

const DOORS: Record<string, (type: string, bytes: string) => Promise<unknown>> = {
  "POST /agents/:id/text with UI messages": (mediaType, bytes) => {
    const parts = [{ type: "file", mediaType, url: `data:${mediaType};base64,${bytes}` }];
    return dataOf(service.post("/agents/assistant/text", { input: [{ id: "m", role: "user", parts }] }));
  },
  "POST /agents/:id/text with model messages": (mediaType, data) => {
    const content = [{ type: "file", mediaType, data }];
    return dataOf(service.post("/agents/assistant/text", { input: [{ role: "user", content }] }));
  },
  "POST /agents/:id/text with the result of a tool": (mediaType, data) => {
    const named = { toolCallId: "c1", toolName: "look" };
    const output = { type: "content", value: [{ type: "image-data", mediaType, data }] };
    return dataOf(
      service.post("/agents/assistant/text", {
        input: [
          { role: "user", content: "Look" },
          { role: "assistant", content: [{ type: "tool-call", ...named, input: {} }] },
          { role: "tool", content: [{ type: "tool-result", ...named, output }] },
        ],
      }),
    );
  },
  "POST /v1/chat/completions": async (type, bytes) => {
    const content = [{ type: "image_url", image_url: { url: `data:${type};base64,${bytes}` } }];
    const body = { model: "assistant", messages: [{ role: "user", content }] };
    assert.equal((await service.post("/v1/chat/completions", body)).status, 200);
  },
  "POST /v1/responses": async (type, bytes) => {
    const content = [{ type: "input_image", image_url: `data:${type};base64,${bytes}`, detail: "auto" }];
    const body = { model: "assistant", input: [{ role: "user", content }] };
    assert.equal((await service.post("/v1/responses", body)).status, 200);
  },
  "POST /agents/:id/ag-ui": async (mimeType, value) => {
    const content = [{ type: "image", source: { type: "data", value, mimeType } }];
    const rest = { threadId: `t-${mimeType}`, runId: "r", state: {}, tools: [], context: [], forwardedProps: {} };
    const reply = await service.post("/agents/assistant/ag-ui", {
      ...rest,
      messages: [{ id: "m", role: "user", content }],
    });
    assert.match(await reply.text(), /RUN_FINISHED/);
  },
  "POST /a2a/:id": (mediaType, raw) =>
    new A2aCaller(service).send("assistant", said("x", { parts: [{ raw, mediaType }] })),
};

for (const [door, post] of Object.entries(DOORS))
  test(`${door}: image/jpg, IMAGE/JPEG and a JPEG that is called a PNG reach the model as image/jpeg`, async () => {
    for (const type of ["image/jpg", "IMAGE/JPEG", "image/png", "application/octet-stream"]) {
      await post(type, JPEG);
      assert.equal(sent(), WANTED, type);
    }
    await post("image/jpeg", PNG);
    assert.equal(sent(), `data:image/png;base64,${PNG}`);
  });

test("POST /agents/:id/text: a result whose content is no list of objects is 400 and names the field", async () => {
  const named = { toolCallId: "c1", toolName: "look" };
  for (const [value, problem] of [
    [[null], "input[2].content[0].output.value[0] must be object"],
    ["x", "input[2].content[0].output.value must be array"],
  ]) {
    const result = { type: "tool-result", ...named, output: { type: "content", value } };
    const input = [
      { role: "user", content: "Look" },
      { role: "assistant", content: [{ type: "tool-call", ...named, input: {} }] },
      { role: "tool", content: [result] },
    ];
    const { status, error } = await errorOf(service.post("/agents/assistant/text", { input }));
    assert.deepEqual([status, error], [400, problem]);
  }
});

test("POST /agents/:id/text: a file that is downloaded has the type of its bytes, whatever client and server call it", async () => {
  const { port } = files.address() as AddressInfo;
  for (const [mediaType, served] of [
    ["application/pdf", "text/html"],
    ["application/octet-stream", "IMAGE/JPG"],
    ["application/*", "image/png"],
  ]) {
    const data = `http://127.0.0.1:${port}/${encodeURIComponent(served!)}`;
    const input = [{ role: "user", content: [{ type: "file", mediaType, data }] }];
    await dataOf(service.post("/agents/assistant/text", { input }));
    assert.equal(sent(), WANTED, `${mediaType} ${served}`);
  }
});

test("POST /agents/:id/text: a picture of the stored conversation has the right type too", async () => {
  const parts = [{ type: "file", mediaType: "image/jpg", url: `data:image/jpg;base64,${JPEG}` }];
  const options = { conversationId: "c1", userId: "u1" };
  const messages = [{ id: "m1", role: "user", parts, conversationId: "c1", userId: "u1" }];
  await service.post("/api/memory/conversations", { conversationId: "c1", userId: "u1" });
  await dataOf(service.post("/api/memory/save-messages", { messages }));
  await dataOf(service.post("/agents/assistant/text", { input: "What was it?", options }));
  assert.equal(sent(), WANTED);
});
