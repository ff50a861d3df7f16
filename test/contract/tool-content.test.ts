/** Pictures and files in results of tools: from plugins and MCP servers to models, MCP clients, chats and the history. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { A2aCaller, said } from "../support/a2a.ts";
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
const FAR = { type: "file-url", url: "https://files.example/house.pdf", mediaType: "application/pdf" };
const FACTS = { rooms: 5, owner: { name: "Ada" }, built: [1890, 1931] };
const json = (text: string) => ({ type: "file-data", data: base64(text), mediaType: "application/json" });
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
      ...tool(
        "facts",
        `content(${JSON.stringify([{ ...json(JSON.stringify(FACTS)), filename: "facts.json" }, json("[1]"), json("{")])})`,
      ),
      ...tool("far", `content(${JSON.stringify([FAR])})`),
      ...tool("large", `content([{ type: "image-data", mediaType: "image/png", data: "A".repeat(1_600_000) }])`),
      ...tool("heavy", `content([{ type: "image-data", mediaType: "image/png", data: "A".repeat(7_000_000) }])`),
    },
  ),
];
const TOOLS = {
  house: { use: "house" },
  far: { use: "far" },
  facts: { use: "facts" },
  large: { use: "large" },
  odd: { use: "odd" },
  heavy: { use: "heavy" },
};

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
      { tools: ["house", "far", "facts", "large", "docs_picture"], memory: "default" },
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

  test("POST /a2a/:id: pictures and files in results of tools are file parts of artifacts, whole and streamed, as bytes or as the URL where they are", async () => {
    const files = [
      { artifactId: "file-1", name: "house", parts: [{ raw: PNG, mediaType: "image/png" }] },
      {
        artifactId: "file-2",
        name: "house",
        parts: [{ raw: NOTE.data, mediaType: "text/plain", filename: "notes://1" }],
      },
      { artifactId: "file-3", name: "house", parts: [{ raw: SOUND.data, mediaType: "audio/wav" }] },
      { artifactId: "file-4", name: "far", parts: [{ url: FAR.url, mediaType: "application/pdf" }] },
    ];
    const answer = { artifactId: "answer", parts: [{ text: "A house.", mediaType: "text/plain" }] };
    const given = ["house", "far"].map((name) => ({ name, id: `a2a-${name}`, input: {} }));
    const ask = () => upstream.replies(calls([given[0]!]), calls([given[1]!]), says("A house."));
    const peer = new A2aCaller(service);
    ask();
    const task = await peer.send("assistant", said("Show"));
    assert.deepEqual(task.artifacts, [answer, ...files]);
    assert.deepEqual((await peer.get("assistant", task.id)).artifacts, [answer, ...files]);
    ask();
    const events = await peer.events("assistant", "SendStreamingMessage", said("Show"));
    const shown = events.flatMap(({ task, artifactUpdate }) => artifactUpdate?.artifact ?? task?.artifacts ?? []);
    assert.deepEqual(
      shown.filter(({ artifactId }: Loose) => artifactId !== "answer"),
      files,
    );
    assert.equal(events.at(-1)!.statusUpdate.status.state, "TASK_STATE_COMPLETED");
  });

  test("POST /a2a/:id: a file of JSON in the result of a tool is a data part if it is an object, in 1.0 and in 0.3, else a file", async () => {
    const ask = () => upstream.replies(calls([{ name: "facts", id: "f-1", input: {} }]), says("Five rooms."));
    const rest = ["[1]", "{"].map((text) => ({ raw: base64(text), mediaType: "application/json" }));
    const parts = [{ data: FACTS, filename: "facts.json", mediaType: "application/json" }, ...rest];
    const filesOf = ({ artifacts }: Loose) => artifacts.slice(1).flatMap((artifact: Loose) => artifact.parts);
    const peer = new A2aCaller(service);
    ask();
    const task = await peer.send("assistant", said("Facts"));
    assert.deepEqual(filesOf(task), parts);
    assert.deepEqual(filesOf(await peer.get("assistant", task.id)), parts);
    ask();
    const message = { kind: "message", messageId: "old-facts", role: "user", parts: [{ kind: "text", text: "Facts" }] };
    const body = { jsonrpc: "2.0", id: 1, method: "message/send", params: { message } };
    const { result } = (await (await service.post("/a2a/assistant", body)).json()) as Loose;
    assert.deepEqual(
      filesOf(result).map(({ kind, data, file }: Loose) => [kind, data ?? file.bytes]),
      [["data", FACTS], ...rest.map(({ raw }) => ["file", raw])],
    );
  });

  test("POST /a2a/:id: files of tools that are larger together than an answer may be are left out, and the task completes", async () => {
    const large = (id: string) => ({ name: "large", id, input: {} });
    upstream.replies(calls([large("l-1"), large("l-2"), large("l-3")]), says("Three."));
    const task = await new A2aCaller(service).send("assistant", said("Show three"));
    assert.equal(task.status.state, "TASK_STATE_COMPLETED", JSON.stringify(task.status));
    assert.deepEqual(
      task.artifacts.map(({ artifactId, parts }: Loose) => [artifactId, parts[0].raw?.length ?? parts[0].text]),
      [
        ["answer", "Three."],
        ["file-1", 1_600_000],
        ["file-2", 1_600_000],
      ],
    );
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
