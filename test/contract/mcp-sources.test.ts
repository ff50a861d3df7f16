/** Resources and prompts of foreign MCP servers in the instructions of agents (`agents.X.resources`, `agents.X.prompt`). */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { eventually } from "../support/event-reader.ts";
import { startForeignServer } from "../support/mcp-server.ts";
import { dataOf, errorOf, type Loose, serveUpstream } from "../support/served-upstream.ts";
import type { TestService } from "../support/service.ts";
import { SECRET, token } from "../support/tokens.ts";

const ready = (service: TestService, headers: Record<string, string> = {}) =>
  eventually(async () => {
    const tools = await dataOf(service.get("/tools", headers));
    return tools.some(({ name, status }: Loose) => name === "docs_search" && status === "ready");
  }, "the server");

async function writer(t: TestContext, agent: object, more: object = {}, options: object = {}) {
  const server = await startForeignServer(t, "current");
  const mcp = { clients: { docs: { url: server.url, timeout: "20s", ...more } } };
  const { service, upstream } = await serveUpstream(
    t,
    { instructions: "Write well.", ...agent },
    { mcp, ...options },
    {
      env: { SERVICE_CONSOLE_ACCESS_KEY: "the-key" },
    },
  );
  await ready(service, { "x-console-access-key": "the-key" });
  const ask = (body: object = {}, headers: Record<string, string> = {}) =>
    service.post("/agents/assistant/text", { input: "x", ...body }, headers);
  const told = (): string => upstream.requests.at(-1)!.body.messages[0].content;
  return { server, service, upstream, ask, told };
}

const resource = (uri: string, more: object = {}) => ({ client: "docs", uri, ...more });

test("agents.X.resources and prompt: their texts follow the instructions, and a conversation has them once", async (t) => {
  const language = "{{ context.language }}";
  const { ask, told, upstream } = await writer(
    t,
    {
      memory: "default",
      prompt: { client: "docs", name: "house-style", arguments: { language } },
      resources: [resource("manual://style"), resource("manual://pages/{{ context.page }}")],
    },
    {},
    { memory: { default: {} } },
  );
  const options = { context: { language: "English", page: "a/../b c" }, conversationId: "c" };
  await dataOf(ask({ options }));
  const expected = [
    "Write well.",
    "Follow house-style in English.",
    '<resource uri="manual://style">\nFirst edition of manual://style\n</resource>',
    '<resource uri="manual://pages/a%2F..%2Fb%20c">\nFirst edition of manual://pages/a%2F..%2Fb%20c\n</resource>',
  ].join("\n\n");
  assert.equal(told(), expected);
  await dataOf(ask({ options }));
  assert.equal(told(), expected);
  assert.deepEqual(
    upstream.requests.at(-1)!.body.messages.map(({ role }: Loose) => role),
    ["system", "user", "assistant", "user"],
  );
});

test("agents.X.resources: a value that would lead elsewhere, or is none, is a 400 that names the place", async (t) => {
  const { ask } = await writer(t, { resources: [resource("manual://pages/{{ context.page }}")] });
  for (const [page, problem] of [
    ["..", 'it must not be ".."'],
    ["", 'it must not be ""'],
    [["a"], "it must be text, a number or a boolean, not a list"],
  ]) {
    const { status, error } = await errorOf(ask({ options: { context: { page } } }));
    assert.deepEqual([status, error], [400, `agents.assistant.resources[0].uri: ${problem}`]);
  }
});

test("agents.X.resources: a text is bounded by maxBytes, and read once for the runs of a minute", async (t) => {
  const { ask, told, server } = await writer(t, { resources: [resource("manual://long", { maxBytes: "1KiB" })] });
  await Promise.all([ask(), ask(), ask()].map(dataOf));
  await dataOf(ask());
  assert.ok(Buffer.byteLength(told()) < 1300, `${Buffer.byteLength(told())}`);
  assert.match(told(), /^Write well\.\n\n<resource uri="manual:\/\/long">\nlong long /);
  assert.equal((server.state as Loose).reads, 1);
});

test("agents.X.resources: a server without tools gives texts, and nothing is printed beside the log", async (t) => {
  const printed = t.mock.method(console, "debug", () => {});
  const server = await startForeignServer(t, "current");
  server.state.textsOnly = true;
  const mcp = { clients: { docs: { url: server.url } } };
  const { service, upstream } = await serveUpstream(t, { resources: [resource("manual://style")] }, { mcp });
  await dataOf(service.post("/agents/assistant/text", { input: "x" }));
  assert.match(upstream.requests.at(-1)!.body.messages[0].content, /First edition of manual:\/\/style/);
  assert.equal(printed.mock.callCount(), 0);
});

test("agents.X.resources: what is not text is a clear failure, and a server that is away a 503", async (t) => {
  const { ask, server } = await writer(t, { resources: [resource("manual://picture")] });
  assert.deepEqual(await errorOf(ask()), {
    status: 500,
    error: 'resource "manual://picture" of MCP server "docs" cannot be read: MCP server "docs": it is not text',
  });
  await server.stop();
  // The first request after its end may meet the connection that was lost, the next one finds no server.
  await eventually(async () => {
    const { status, error } = await errorOf(ask());
    assert.match(error, /^resource "manual:\/\/picture" of MCP server "docs" cannot be read: /);
    return status === 503;
  }, "503");
});

test("agents.X.resources: with auth, the text is that which the user may read, and nobody is told that of another", async (t) => {
  const auth = { mode: "authNext", provider: { use: "jwt", secret: SECRET } };
  const { ask, told } = await writer(
    t,
    { resources: [resource("manual://style")] },
    { auth: "forward" },
    {
      auth,
    },
  );
  for (const sub of ["ada", "bob", "ada"]) {
    await dataOf(ask({}, { authorization: `Bearer ${token({ sub, exp: 4_000_000_000 })}` }));
    assert.match(told(), new RegExp(`First edition of manual://style for ${sub}\n`));
  }
});
