/** Pictures and files in results of tools: from plugins and MCP servers to models, MCP clients, chats and the history. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { eventually } from "../support/event-reader.ts";
import { CLIENTS, connect } from "../support/mcp-clients.ts";
import { type ForeignServer, startForeignServer } from "../support/mcp-server.ts";
import { calls, says } from "../support/openai-upstream.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { dataOf, errorOf, type Loose, serveUpstream } from "../support/served-upstream.ts";
import { parseEvents, type TestService } from "../support/service.ts";
import { serveStrict } from "../support/strict-providers.ts";

/** A picture of one pixel. */
const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
const base64 = (text: string) => Buffer.from(text).toString("base64");
const PICTURE = { type: "image-data", data: PNG, mediaType: "image/png" };
const NOTE = { type: "file-data", data: base64("Read me."), mediaType: "text/plain", filename: "notes://1" };
const SOUND = { type: "file-data", data: base64("a sound"), mediaType: "audio/wav" };
const VALUE = [{ type: "text", text: "The house:" }, PICTURE, NOTE, SOUND, { type: "file-url", url: "notes://2" }];
const RESULT = { type: "content", value: VALUE };

const tool = (name: string, result: string) => ({
  [`tools/${name}.ts`]: `import { content, defineTool } from "#plugin";
export default defineTool({ name: "${name}", description: "Gives ${name}", execute: () => (${result}) });`,
});
const plugins = [
  pluginFolder(
    { after },
    {
      "package.json": JSON.stringify({ type: "module" }),
      ...tool("house", `content(${JSON.stringify(VALUE)})`),
      ...tool("odd", JSON.stringify({ type: "content", value: [{ type: "image-data", data: 7 }] })),
      ...tool("heavy", `content([{ type: "image-data", mediaType: "image/png", data: "A".repeat(7_000_000) }])`),
    },
  ),
];
const TOOLS = { house: { use: "house" }, odd: { use: "odd" }, heavy: { use: "heavy" } };

describe("content of tools", () => {
  const over: (() => unknown)[] = [];
  const context = { after: (work: unknown) => void over.push(work as () => unknown) };
  let service: TestService;
  let foreign: ForeignServer;
  let upstream: Loose;
  before(async () => {
    foreign = await startForeignServer(context, "current");
    const mcp = {
      clients: { docs: { url: foreign.url } },
      servers: { main: { tools: ["house", "odd", "docs_gallery", "docs_picture", "docs_measured", "docs_surveyed"] } },
    };
    ({ service, upstream } = await serveUpstream(
      context,
      { tools: ["house", "docs_picture"], memory: "default" },
      { tools: TOOLS, mcp, memory: { default: {} } },
      { plugins },
    ));
    await eventually(async () => {
      const tools = await dataOf(service.get("/tools"));
      return tools.find(({ name }: Loose) => name === "docs_gallery")?.status === "ready";
    }, "the foreign server is known");
  });
  after(async () => {
    for (const work of over) await work();
  });

  test("POST /tools/:name/execute gives content as it is, JSON that only resembles it too, and a tool error for more than 5 MiB", async () => {
    const run = (name: string) => service.post(`/tools/${name}/execute`, { input: {} });
    assert.deepEqual((await dataOf(run("house"))).result, RESULT);
    assert.equal((await dataOf(run("odd"))).result.value[0].data, 7);
    const { status, error } = await errorOf(run("heavy"));
    assert.deepEqual([status, error], [500, 'tool "heavy" returned more than 5 MiB of content']);
    assert.deepEqual((await dataOf(run("docs_picture"))).result, {
      type: "content",
      value: [{ type: "image-data", data: "AAAA", mediaType: "image/png" }],
    });
  });

  test("POST /agents/:id/text on OpenAI's chat completions shows a picture of a tool in the next message, and the result, chat and history have it", async () => {
    const asks = (name: string) =>
      upstream.replies(calls([{ name, id: `c-${name}`, input: {} }]), says("A house with a red roof."));
    asks("house");
    const options = { conversationId: "c", userId: "u" };
    const { toolResults } = await dataOf(service.post("/agents/assistant/text", { input: "Show", options }));
    assert.deepEqual(toolResults[0].output, RESULT);
    const told: Loose[] = upstream.requests.at(-1).body.messages;
    const result = told.find(({ role }) => role === "tool").content;
    assert.match(result, /^The house:\n\[The file is in the next message of the user\.\]\nRead me\.\n/);
    assert.match(result, /models are not given: audio\/wav\]\n\[A file is at notes:\/\/2\]$/);
    assert.ok(!result.includes(PNG), "no base64 as text");
    assert.equal(told.at(-1).content[0].image_url.url, `data:image/png;base64,${PNG}`);

    asks("docs_picture");
    const reply = await service.post("/agents/assistant/chat", { input: "And theirs?", options });
    const events = parseEvents(await reply.text()).flatMap(({ data }) => (data === "[DONE]" ? [] : [JSON.parse(data)]));
    const { output } = events.find(({ type }) => type === "tool-output-available");
    assert.deepEqual(output.value, [{ type: "image-data", data: "AAAA", mediaType: "image/png" }]);
    const again: Loose[] = upstream.requests.at(-1).body.messages;
    assert.equal(
      JSON.stringify(again).split(PNG).length,
      2,
      "the picture of the turn before comes from the conversation, as a picture",
    );
    assert.match(JSON.stringify(again.at(-1)), /data:image\/png;base64,AAAA/);
    const { messages } = await dataOf(service.get("/api/memory/conversations/c/messages?userId=u"));
    assert.ok(JSON.stringify(messages).includes(PNG));
  });

  test("POST /v1/responses with the agent's own call of an earlier response gives its picture to the model as a picture", async () => {
    upstream.replies(calls([{ name: "house", id: "c1", input: {} }]), says("A house."), says("Red."));
    const ask = async (body: object): Promise<Loose> =>
      (await service.post("/v1/responses", { model: "assistant", ...body })).json();
    const { id } = await ask({ input: "Show" });
    await ask({ input: "Which colour?", previous_response_id: id });
    const text = JSON.stringify(upstream.requests.at(-1).body.messages);
    assert.deepEqual(text.split(PNG).length, 2);
    assert.match(text, /"image_url":\{"url":"data:image\/png;base64,iVBOR/);
  });

  for (const name of CLIENTS)
    test(`POST /mcp/:serverId/mcp: the MCP client ${name} gets content as MCP has it, of another server as it came`, async () => {
      const client = await connect(name, `${service.url}/mcp/main/mcp`);
      const house = await client.call("house", {});
      assert.deepEqual(house.content, [
        { type: "text", text: "The house:" },
        { type: "image", data: PNG, mimeType: "image/png" },
        { type: "resource", resource: { uri: "notes://1", mimeType: "text/plain", text: "Read me." } },
        { type: "audio", data: base64("a sound"), mimeType: "audio/wav" },
        { type: "resource_link", uri: "notes://2", name: "notes://2" },
      ]);
      assert.deepEqual((await client.call("docs_gallery", {})).content, foreign.state.gallery);
      assert.match((await client.call("odd", {})).content[0].text, /"data":7/);
      await client.close();
    });

  test("POST /mcp/:serverId/mcp lists a tool of another server with its title, annotations, outputSchema and _meta, and gives its structured result", async () => {
    const client = await connect(CLIENTS[0]!, `${service.url}/mcp/main/mcp`);
    const tools: Loose[] = await client.tools();
    const { name, title, annotations, outputSchema, _meta } = tools.find((each) => each.name === "docs_measured");
    assert.deepEqual(
      { name, title, annotations, outputSchema, _meta },
      { name: "docs_measured", ...foreign.state.measured },
    );
    assert.deepEqual((await client.call("docs_measured", {})).structuredContent, { metres: 3 });
    await client.close();
  });

  for (const name of CLIENTS)
    test(`POST /mcp/:serverId/mcp: the MCP client ${name} takes a picture and the structured result of a tool with an outputSchema`, async () => {
      const client = await connect(name, `${service.url}/mcp/main/mcp`);
      // Clients refuse the result of such a tool that has no structured part, once they have read the list.
      await client.tools();
      const { content, structuredContent } = await client.call("docs_surveyed", {});
      assert.deepEqual([content, structuredContent], [foreign.state.gallery?.slice(0, 2), { metres: 4 }]);
      await client.close();
      const { result } = await dataOf(service.post("/tools/docs_surveyed/execute", { input: {} }));
      assert.deepEqual([result.value.length, result.structuredContent], [2, { metres: 4 }]);
    });
});

for (const name of ["OpenAI Responses", "Anthropic", "Gemini"] as const)
  test(`POST /agents/:id/text on ${name}: a picture that a tool gives reaches the model in its own form`, async (t) => {
    const { service, upstream } = await serveStrict(
      t,
      name,
      { tools: ["house"] },
      { tools: { house: { use: "house" } } },
      plugins,
    );
    upstream.says({ calls: [{ name: "house" }] }, { text: "A house." });
    assert.equal((await dataOf(service.post("/agents/assistant/text", { input: "Show" }))).text, "A house.");
    const forms = {
      "OpenAI Responses": `{"type":"input_image","image_url":"data:image/png;base64,${PNG}"`,
      Anthropic: `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"${PNG}"}}`,
      Gemini: `"inlineData":{"mimeType":"image/png","data":"${PNG}"`,
    };
    const sent = JSON.stringify(upstream.requests.at(-1));
    assert.ok(sent.includes(forms[name]), sent);
    assert.match(sent, /Read me\./);
    assert.match(sent, /models are not given: audio\/wav/);
  });
