/** Readers of streams whose messages are larger than `server.limits.streamBuffer`: they are not slow, and get everything. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { EventReader } from "../support/event-reader.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { manifestWith, startService } from "../support/service.ts";
import { TRANSPORTS } from "../support/transports.ts";

/** More than the kernel takes for a connection at once. */
const LARGE = "x".repeat(6 * 1024 * 1024);
const TOOL = `export default { kind: "tool", name: "large", description: "Repeats.",
  parameters: { type: "object", properties: { text: { type: "string" } } }, execute: ({ text }) => ({ text }) };`;
const MANIFEST = manifestWith(
  { tools: ["large"] },
  {
    providers: { demo: { use: "scripted", replies: [{ call: { tool: "large", input: { text: "{{ input }}" } } }] } },
    tools: { large: { use: "large" } },
    workflows: { keep: { steps: [{ id: "first", andThen: { set: { text: "{{ input.text }}" } } }] } },
  },
);

const said = { messageId: "m", role: "ROLE_USER", parts: [{ text: LARGE }] };
/** Bodies that are posted. */
const STREAMS: Record<string, [path: string, body: object]> = {
  "POST /workflows/:id/stream": ["/workflows/keep/stream", { input: { text: LARGE } }],
  "POST /agents/:id/stream": ["/agents/assistant/stream", { input: LARGE }],
  "POST /agents/:id/chat": ["/agents/assistant/chat", { input: LARGE }],
  "POST /agents/:id/ag-ui": [
    "/agents/assistant/ag-ui",
    { threadId: "t", runId: "r", protocolVersion: "1.0", messages: [{ id: "u", role: "user", content: LARGE }] },
  ],
  "POST /a2a/:id with SendStreamingMessage": [
    "/a2a/assistant",
    { jsonrpc: "2.0", id: 1, method: "SendStreamingMessage", params: { message: said } },
  ],
  "POST /v1/chat/completions": [
    "/v1/chat/completions",
    { model: "assistant", stream: true, messages: [{ role: "user", content: LARGE }] },
  ],
  "POST /v1/responses": ["/v1/responses", { model: "assistant", stream: true, input: LARGE }],
};

const plugins = [pluginFolder({ after }, { "tools/large.mjs": TOOL })];
const services = await Promise.all(
  TRANSPORTS.map(async (transport) => {
    const server = { transport, limits: { streamBuffer: "64KiB", body: "16MiB" } };
    return { transport, service: await startService({ after }, { ...MANIFEST, server }, { plugins }) };
  }),
);

/** Reads a stream to its end. */
async function readAll(url: string, body?: object): Promise<void> {
  const reader = new EventReader(url, body);
  reader.forgetful = true;
  await reader.until(() => reader.ended || reader.closed);
  assert.equal(reader.status, 200, reader.text);
  assert.ok(reader.ended, `cut after ${reader.bytes} bytes`);
  assert.doesNotMatch(reader.text, /"type":"(?:error|RUN_ERROR)"/);
}

for (const { transport, service } of services) {
  for (const [title, [path, body]] of Object.entries(STREAMS))
    test(`${title}, over ${transport}: a reader of messages that are each larger than server.limits.streamBuffer gets all of them`, () =>
      readAll(service.url + path, body));

  test(`GET /workflows/:id/executions/:executionId/stream, over ${transport}: a reader of messages that are each larger than server.limits.streamBuffer gets all of them`, async () => {
    const body = { input: { text: LARGE }, options: { executionId: "kept" } };
    assert.equal((await service.post("/workflows/keep/execute", body)).status, 200);
    await readAll(`${service.url}/workflows/keep/executions/kept/stream`);
  });
}
