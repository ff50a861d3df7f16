/** Integers beyond 2 ** 53, which JavaScript rounds: none changes on its way in, through, or out. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { resolve } from "node:path";
import { after, before, describe, test } from "node:test";
import { answerTo } from "../fixtures/mcp/exact.mjs";
import { calls, type OpenAIUpstream, type Reply, says } from "../support/openai-upstream.ts";
import { dataOf, errorOf, type Loose, serveUpstream } from "../support/served-upstream.ts";
import type { TestService } from "../support/service.ts";
import { openSocket } from "../support/sockets.ts";

const LARGE = "9007199254740993";
const MCP_PROCESS = resolve("test/fixtures/mcp/exact.mjs");

/** The call of a tool whose arguments are given as text. */
function callsWith(text: string): Reply {
  const reply = calls([{ name: "note", input: {} }]);
  const steps = reply.steps!.map((step) =>
    "call" in step && step.call.arguments !== "" && step.call.name === undefined ? null : step,
  );
  const given = { call: { index: 0, arguments: text } };
  const [first, ...rest] = steps.filter((step) => step !== null);
  return { ...reply, steps: [first!, given, ...rest] };
}

describe("integers that a number cannot hold", () => {
  let service: TestService;
  let upstream: OpenAIUpstream;

  let servers: Server[] = [];
  const ends: (() => Promise<void>)[] = [];
  const hooks = { after: (end: () => Promise<void>) => void ends.push(end) };

  before(async () => {
    const server = createServer((_request, response) => {
      response.setHeader("content-type", "application/json");
      response.end(`{"id":${LARGE},"list":[-${LARGE},9007199254740991,1.5e300],"text":"is ${LARGE}, \\"${LARGE}"}`);
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    // The same server of MCP over HTTP: whole replies, or events.
    const mcp = createServer(async (request, response) => {
      let body = "";
      for await (const piece of request.setEncoding("utf8")) body += piece;
      const reply = answerTo(body || "{}");
      if (reply === undefined) return void response.writeHead(request.method === "POST" ? 202 : 405).end();
      const isStream = request.url === "/events";
      response.setHeader("content-type", isStream ? "text/event-stream" : "application/json");
      response.end(isStream ? `id: ${LARGE}\ndata: ${reply}\n\n` : reply);
    });
    mcp.listen(0, "127.0.0.1");
    await once(mcp, "listening");
    const address = `http://127.0.0.1:${(mcp.address() as AddressInfo).port}`;
    servers = [server, mcp];
    const parameters = { type: "object", properties: { id: { type: ["integer", "string"] } } };
    const agent = { tools: ["note"], memory: "default" };
    const served = await serveUpstream(hooks, agent, {
      memory: { default: {} },
      tools: {
        account: {
          description: "Finds an account",
          parameters: { type: "object" },
          http: { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/` },
        },
        note: { description: "Notes", parameters, http: { url: "http://127.0.0.1:9/" } },
      },
      mcp: {
        clients: {
          local: { command: process.execPath, args: [MCP_PROCESS] },
          whole: { url: `${address}/whole` },
          events: { url: `${address}/events` },
        },
      },
      workflows: {
        copy: { name: "Copy", purpose: "copies", steps: [{ id: "a", andThen: { set: { id: "{{ input.id }}" } } }] },
      },
    });
    ({ service, upstream } = served);
  });

  after(async () => {
    for (const end of ends) await end();
    for (const server of servers) server.close();
  });

  test("POST /tools/:name/execute: in the answer of an HTTP tool they are strings, and everything else is as it came", async () => {
    const { result } = await dataOf(service.post("/tools/account/execute", { input: {} }));
    const expected = { id: LARGE, list: [`-${LARGE}`, 9007199254740991, 1.5e300], text: `is ${LARGE}, "${LARGE}` };
    assert.deepEqual(result, expected);
  });

  for (const client of ["local", "whole", "events"])
    test(`POST /tools/:name/execute: in the result of an MCP server (${client}) they are strings, and schemas are as they came`, async () => {
      const { result } = await dataOf(service.post(`/tools/${client}_account/execute`, { input: {} }));
      assert.deepEqual(result, { id: LARGE, text: LARGE });
      const tools = await dataOf(service.get("/tools"));
      const tool = tools.find(({ name }: Loose) => name === `${client}_account`);
      assert.equal(typeof tool.parameters.properties.n.maximum, "number");
    });

  const bodies: [path: string, body: string, field: string][] = [
    ["/workflows/copy/execute", `{"input":{"id":${LARGE}}}`, "input.id"],
    ["/workflows/copy/execute", `{"input":{"list":[1,{"x":-${LARGE}}]}}`, "input.list[1].x"],
    ["/tools/account/execute", `{"input":{"id":12345678901234567890}}`, "input.id"],
    ["/api/memory/conversations", `{"userId":"u","metadata":{"k":"${"x".repeat(300)}","id":${LARGE}}}`, "metadata.id"],
    ["/agents/assistant/text", `{"input":"hi","options":{"context":{"id":${LARGE}}}}`, "options.context.id"],
    [
      "/v1/chat/completions",
      `{"model":"assistant","messages":[{"role":"user","content":"hi"}],"seed":${LARGE}}`,
      "seed",
    ],
    [
      "/agents/assistant/ag-ui",
      `{"threadId":"t","runId":"r","state":{"id":${LARGE}},"messages":[{"id":"m","role":"user","content":"hi"}]}`,
      "state.id",
    ],
    [
      "/agents/assistant/chat",
      `{"id":"c","messages":[{"id":"m","role":"user","metadata":{"id":${LARGE}},"parts":[{"type":"text","text":"hi"}]}]}`,
      "messages[0].metadata.id",
    ],
    [
      "/a2a/assistant",
      `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"data":{"id":${LARGE}}}]}}}`,
      "params.message.parts[0].data.id",
    ],
  ];
  for (const [path, body, field] of bodies)
    test(`POST ${path} with ${field} too large for a number is refused and names it`, async () => {
      const reply = await service.post(path, body);
      const text = await reply.text();
      assert.ok(text.includes(`${field} is too large for a number: send it as a string`), text);
      assert.equal(upstream.requests.length, 0);
    });

  test("POST /workflows/:id/execute takes large integers that a number holds, and digits in strings", async () => {
    for (const id of [
      "9007199254740992",
      "100000000000000000000",
      "-1e+21",
      `"${LARGE}"`,
      '"\\"12345678901234567890"',
    ]) {
      const reply = await service.post("/workflows/copy/execute", `{"input":{"id":${id}}}`);
      const text = await reply.text();
      assert.equal(reply.status, 200, text);
      assert.ok(text.includes(`"id":${id}`), text);
    }
  });

  test("POST /v1/chat/completions takes a tool's schema with bounds of 64 bits", async () => {
    upstream.replies(says("Yes."));
    const reply = await service.post(
      "/v1/chat/completions",
      '{"model":"assistant","messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"maximum":{"type":"integer","maximum":9223372036854775807}}}}}]}',
    );
    assert.equal(reply.status, 200, await reply.text());
  });

  test("GET /workflows/executions with metadata too large for a number is refused, and as a text it finds no other", async () => {
    const body = { input: { id: 1 }, options: { metadata: { account: 9007199254740992 } } };
    await dataOf(service.post("/workflows/copy/execute", body));
    const found = async (query: string) => {
      const { status, error } = await errorOf(service.get(`/workflows/executions?${query}`));
      return status === 200 ? (await dataOf(service.get(`/workflows/executions?${query}`))).length : error;
    };
    assert.equal(await found("metadata.account=9007199254740992"), 1);
    assert.equal(await found(`metadata.account=${LARGE}`), 0);
    assert.match(await found(`metadata=${encodeURIComponent(`{"account":${LARGE}}`)}`), /^account is too large/);
  });

  test("POST /agents/:id/text: a call of a model with one does not run, and the model is told to send a string", async () => {
    const before = upstream.requests.length;
    upstream.replies(callsWith(`{"id":${LARGE}}`), says("Done."));
    const { toolCalls, text } = await dataOf(service.post("/agents/assistant/text", { input: "note it" }));
    assert.equal(text, "Done.");
    assert.deepEqual(toolCalls[0].input, { id: LARGE });
    const { messages } = upstream.requests[before + 1]!.body;
    assert.match(messages.at(-1).content, /id is too large for a number: send it as a string/);
    assert.equal(messages.at(-2).tool_calls[0].function.arguments, `{"id":"${LARGE}"}`);
  });

  test("POST /agents/:id/object, /stream-object and options.output: in the JSON of a model they are strings", async () => {
    const schema = { type: "object" };
    const ask = (door: string, more: object) => {
      upstream.replies(says(`{"id":${LARGE}}`));
      return service.post(`/agents/assistant/${door}`, { input: "count", ...more });
    };
    assert.deepEqual(await dataOf(ask("object", { schema })), { id: LARGE });
    assert.match(await (await ask("stream-object", { schema })).text(), new RegExp(`"finalObject":{"id":"${LARGE}"}`));
    const { output } = await dataOf(ask("text", { options: { output: { type: "object", schema } } }));
    assert.deepEqual(output, { id: LARGE });
  });

  test("POST /v1/chat/completions: those in earlier calls of the caller reach the model as strings", async () => {
    const before = upstream.requests.length;
    upstream.replies(says("Yes."));
    const messages = [
      { role: "user", content: "hi" },
      {
        role: "assistant",
        content: null,
        tool_calls: [{ id: "c", type: "function", function: { name: "f", arguments: `{"id":${LARGE}}` } }],
      },
      { role: "tool", tool_call_id: "c", content: "ok" },
      { role: "user", content: "go on" },
    ];
    const tools = [{ type: "function", function: { name: "f", parameters: { type: "object" } } }];
    const reply = await service.post("/v1/chat/completions", { model: "assistant", messages, tools });
    assert.equal(reply.status, 200, await reply.text());
    const call = upstream.requests[before]!.body.messages.find(({ tool_calls }: Loose) => tool_calls);
    assert.equal(call.tool_calls[0].function.arguments, `{"id":"${LARGE}"}`);
  });

  test("WS /ws gives a message back digit by digit", async () => {
    const socket = await openSocket(`${service.url}/ws`);
    await socket.next();
    socket.send(`{"id":${LARGE}}`);
    await socket.until(() => socket.waiting.length > 0, "the echo");
    assert.ok(socket.waiting[0]!.includes(`"data":{"id":${LARGE}}`));
    socket.socket.terminate();
  });
});
