/** `server.limits.uploads`: the bytes of bodies and messages in memory at once, as they arrive and while they are worked on. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { eventually } from "../support/event-reader.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { RawClient } from "../support/raw-http.ts";
import type { Loose } from "../support/served-upstream.ts";
import { manifestWith, startService, type TestService } from "../support/service.ts";
import { openSocket } from "../support/sockets.ts";
import { SECRET, token } from "../support/tokens.ts";
import { TRANSPORTS } from "../support/transports.ts";

const KIB = 1024;
const LIMITS = { body: "64KiB", uploads: "100KiB" };
const PATH = "/agents/assistant/text";

const head = (framing: string, more = "") =>
  `POST ${PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n${more}${framing}\r\n\r\n`;
const announced = (bytes: number) => head(`Content-Length: ${bytes}`);
const chunkOf = (bytes: number) => `${bytes.toString(16)}\r\n${" ".repeat(bytes)}\r\n`;

function crowded({ status, headers, body }: { status: number; headers: Record<string, string>; body: string }): void {
  assert.equal(status, 503, body);
  assert.deepEqual([headers["x-error-code"], headers["retry-after"]], ["unavailable", "1"]);
  assert.match(JSON.parse(body).error, /too many bytes are being uploaded at once/);
}

for (const transport of TRANSPORTS) {
  describe(`server.limits.uploads and POST bodies over ${transport}`, () => {
    const serve = (t: Parameters<typeof startService>[0]) =>
      startService(t, manifestWith({}, { server: { transport, limits: LIMITS } }));
    /** A client that has sent so much of a body, and stops there. */
    const holding = async (port: number, bytes: number) => {
      const client = await RawClient.open(port);
      await client.send(announced(64 * KIB) + " ".repeat(bytes));
      return client;
    };
    /** A whole body of some bytes: 400 when it was read, since it has no input. */
    const whole = async (port: number, bytes: number) => {
      const client = await RawClient.open(port);
      await client.send(`${announced(bytes)}{}${" ".repeat(bytes - 2)}`);
      const reply = await client.reply();
      client.close();
      return reply;
    };

    test("what is announced beyond limits.uploads is 503 with Retry-After before it is sent, and fits again once another has left", async (t) => {
      const { port } = await serve(t);
      const first = await holding(port, 60 * KIB);
      const client = await RawClient.open(port);
      await eventually(async () => (await whole(port, 50 * KIB)).status === 503, "the first body");
      await client.send(announced(50 * KIB));
      crowded(await client.reply());
      await client.closed;
      assert.equal((await whole(port, 20 * KIB)).status, 400, "a small one fits");
      first.close();
      await eventually(async () => (await whole(port, 50 * KIB)).status === 400, "room again");
    });

    test("a body without a length is 503 at the chunk that goes beyond limits.uploads, and its room is free again", async (t) => {
      const { port } = await serve(t);
      const first = await holding(port, 60 * KIB);
      await eventually(async () => (await whole(port, 50 * KIB)).status === 503, "the first body");
      const client = await RawClient.open(port);
      await client.send(head("Transfer-Encoding: chunked"), chunkOf(20 * KIB), chunkOf(15 * KIB), chunkOf(15 * KIB));
      crowded(await client.reply());
      await client.closed;
      assert.equal((await whole(port, 35 * KIB)).status, 400);
      first.close();
      await eventually(async () => (await whole(port, 60 * KIB)).status === 400, "room again");
    });

    test("announced lengths alone take up no room: bodies that never come keep nobody out", async (t) => {
      const { port } = await serve(t);
      const clients: RawClient[] = [];
      for (let count = 0; count < 20; count++) clients.push(await holding(port, 1));
      assert.equal((await whole(port, 60 * KIB)).status, 400);
      for (const client of clients) client.close();
    });

    test("nothing stays counted of bodies that were answered, refused, too large, malformed or left half-way", async (t) => {
      const plugins = pluginFolder(t, {
        "auth/late.mjs": `export default { kind: "auth", create: () => ({ type: "late",
          verifyToken: (token) => new Promise((done) => setTimeout(done, 20, token === "good" ? { id: "u" } : null)) }) };`,
      });
      const manifest = manifestWith(
        {},
        { server: { transport, limits: LIMITS }, auth: { mode: "authNext", provider: { use: "late" } } },
      );
      const { port } = await startService(t, manifest, { plugins: [plugins], env: { NODE_ENV: "production" } });
      const ask = async (token: string, framing: string, ...pieces: string[]) => {
        const client = await RawClient.open(port);
        await client.send(head(framing, `Authorization: Bearer ${token}\r\n`), ...pieces);
        if (pieces.length === 0) return client.close();
        const { status } = await client.reply();
        client.close();
        return status;
      };
      const large = `{"input":"${"x".repeat(40 * KIB)}"}`;
      const length = `Content-Length: ${large.length}`;
      for (let round = 0; round < 4; round++) {
        assert.equal(await ask("good", length, large), 200);
        assert.equal(await ask("good", length, large.slice(0, 20_000), large.slice(20_000)), 200);
        assert.equal(await ask("bad", length, large), 401);
        assert.equal(await ask("bad", length, large.slice(0, 20_000)), 401);
        assert.equal(await ask("good", "Transfer-Encoding: chunked", chunkOf(40 * KIB), chunkOf(40 * KIB)), 413);
        const left = await RawClient.open(port);
        await left.send(head(length, "Authorization: Bearer good\r\n"), large.slice(0, 30_000));
        left.close();
        const malformed = await RawClient.open(port);
        await malformed.send(
          head("Transfer-Encoding: chunked", "Authorization: Bearer good\r\n"),
          chunkOf(30 * KIB),
          "zz\r\n",
        );
        await malformed.closed;
      }
      await eventually(async () => (await ask("good", length, large)) === 200, "room");
      const two = await Promise.all([ask("good", length, large), ask("good", length, large)]);
      assert.deepEqual(two, [200, 200]);
    });
  });
}

/** Waits for its gate, whatever becomes of its caller. Of this process, so that tests open it. */
const gate = { open: Promise.resolve(), release: () => {}, waiting: 0 };
(globalThis as Loose).uploadsGate = gate;
function close(): void {
  gate.waiting = 0;
  gate.open = new Promise((resolve) => {
    gate.release = resolve;
  });
}
const WAITS = "const gate = globalThis.uploadsGate; gate.waiting++; await gate.open; gate.waiting--;";
const PLUGINS = {
  "tools/wait.mjs": `export default { kind: "tool", description: "Waits", parameters: { type: "object" },
    async execute() { ${WAITS} return {}; } };`,
  "steps/wait.mjs": `export default { kind: "step", async execute({ data }) { ${WAITS} return data; } };`,
  "sockets/wait.mjs": `export default { kind: "socket", path: "/wait", async message() { ${WAITS} } };`,
};
const WAITING = {
  providers: { scripted: { use: "scripted", replies: [{ when: "^go", call: { tool: "wait", input: {} } }] } },
  agents: { assistant: { instructions: "x", model: "scripted/echo", tools: ["wait"] } },
  tools: { wait: { use: "wait" } },
  workflows: { w: { steps: [{ id: "wait", andThen: { use: "wait" } }] } },
  mcp: { servers: { all: { tools: ["wait"] } } },
  routes: [{ use: "wait" }],
};
const GO = `go ${"x".repeat(20 * KIB)}`;
const send = {
  message: { messageId: "m", role: "ROLE_USER", parts: [{ text: GO }] },
  configuration: { returnImmediately: true },
};
const rpc = (method: string, params: object) => ({ jsonrpc: "2.0", id: 1, method, params });

/** What a body may ask for that outlasts its arrival, and some of it its reply. */
const OUTLASTS = /background|Idempotency-Key|workflows|returns at once/;
const WORK: Record<string, [path: string, body: object, headers?: Record<string, string>]> = {
  "/agents/:id/text": ["/agents/assistant/text", { input: GO }],
  "/agents/:id/stream": ["/agents/assistant/stream", { input: GO }],
  "/agents/:id/chat": ["/agents/assistant/chat", { input: GO }],
  "/agents/:id/text in the background": ["/agents/assistant/text", { input: GO, options: { background: true } }],
  "/agents/:id/text with an Idempotency-Key": ["/agents/assistant/text", { input: GO }, { "idempotency-key": "k" }],
  "/agents/:id/ag-ui": [
    "/agents/assistant/ag-ui",
    {
      threadId: "t",
      runId: "r",
      messages: [{ id: "1", role: "user", content: GO }],
      tools: [],
      context: [],
      state: {},
      forwardedProps: {},
    },
  ],
  "/v1/chat/completions": ["/v1/chat/completions", { model: "assistant", messages: [{ role: "user", content: GO }] }],
  "/v1/responses with stream": ["/v1/responses", { model: "assistant", input: GO, stream: true }],
  "/v1/responses in the background": ["/v1/responses", { model: "assistant", input: GO, background: true }],
  "/workflows/:id/execute": ["/workflows/w/execute", { input: { text: GO } }],
  "/workflows/:id/execute in the background": [
    "/workflows/w/execute",
    { input: { text: GO }, options: { background: true } },
  ],
  "/tools/:name/execute": ["/tools/wait/execute", { input: { text: GO } }],
  "/a2a/:id that returns at once": ["/a2a/assistant", rpc("SendMessage", send), { "a2a-version": "1.0" }],
  "/mcp": [
    "/mcp/all/mcp",
    rpc("tools/call", { name: "wait", arguments: { text: GO } }),
    { accept: "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18" },
  ],
};

describe("server.limits.uploads and the work that bodies ask for", () => {
  const counted = (service: TestService) => service.service.meters.limits.used("server.limits.uploads")!;

  test("the bytes of a POST stay counted until the work that it asks for has ended, in the background too, and without its client", async (t) => {
    const service = await startService(
      t,
      { name: "Test", version: "1.0.0", ...WAITING },
      { plugins: [pluginFolder(t, PLUGINS)] },
    );
    for (const [way, [path, body, headers]] of Object.entries(WORK)) {
      close();
      const client = new AbortController();
      const reply = fetch(service.url + path, {
        method: "POST",
        headers: { "content-type": "application/json", ...headers },
        body: JSON.stringify(body),
        signal: client.signal,
      });
      reply.then((answer) => answer.text()).catch(() => {});
      await eventually(() => gate.waiting === 1, way);
      assert.ok(counted(service) > 20 * KIB, `${way}: ${counted(service)}`);
      client.abort();
      if (OUTLASTS.test(way)) {
        await new Promise((resolve) => setTimeout(resolve, 20));
        assert.ok(counted(service) > 20 * KIB, `${way} without its client: ${counted(service)}`);
      }
      gate.release();
      await eventually(() => counted(service) === 0, `the end of ${way}`);
    }
  });

  for (const transport of TRANSPORTS) {
    test(`POST /agents/:id/text over ${transport}: what goes beyond server.limits.uploads while others are at work is 503 with Retry-After, and fits when they have ended`, async (t) => {
      const manifest = { name: "Test", version: "1.0.0", ...WAITING, server: { transport, limits: LIMITS } };
      const service = await startService(t, manifest, { plugins: [pluginFolder(t, PLUGINS)] });
      close();
      const ask = () => service.post("/agents/assistant/text", { input: GO });
      const running = [1, 2, 3, 4].map(ask);
      await eventually(() => gate.waiting === 4, "four");
      const refused = await ask();
      assert.deepEqual([refused.status, refused.headers.get("retry-after")], [503, "1"]);
      gate.release();
      for (const reply of running) assert.equal((await reply).status, 200);
      assert.equal((await ask()).status, 200);
    });

    test(`WS of a plugin over ${transport}: a message whose handler throws counts no more once its socket is closed`, async (t) => {
      const throwing = `export default { kind: "socket", path: "/throw", message: () => { throw new Error("no"); } };`;
      const plugins = [pluginFolder(t, { "sockets/throw.mjs": throwing })];
      const service = await startService(
        t,
        { name: "Test", version: "1.0.0", server: { transport }, routes: [{ use: "throw" }] },
        { plugins },
      );
      const socket = await openSocket(`${service.url}/throw`);
      socket.send(GO);
      assert.equal((await socket.closed).code, 1011);
      assert.equal(counted(service), 0);
    });

    test(`WS of a plugin over ${transport}: messages beyond server.limits.uploads close their socket with 1013, and those of others go on`, async (t) => {
      const manifest = { name: "Test", version: "1.0.0", ...WAITING, server: { transport, limits: LIMITS } };
      const service = await startService(t, manifest, { plugins: [pluginFolder(t, PLUGINS)] });
      close();
      const [first, second] = await Promise.all([1, 2].map(() => openSocket(`${service.url}/wait`)));
      for (let count = 0; count < 4; count++) first!.send(GO);
      await eventually(() => gate.waiting === 4, "four messages");
      second!.send(GO);
      assert.equal((await second!.closed).code, 1013);
      gate.release();
      await eventually(() => counted(service) === 0, "room");
      first!.send("x");
      await eventually(() => counted(service) === 0 && gate.waiting === 0, "a small message");
      first!.close();
    });
  }

  test("one user whose requests hold most of server.limits.uploads is 429 with Retry-After, and the next user is served", async (t) => {
    const auth = { mode: "authNext", provider: { use: "jwt", secret: SECRET } };
    const manifest = {
      name: "Test",
      version: "1.0.0",
      ...WAITING,
      auth,
      server: { limits: { ...LIMITS, uploads: "200KiB" } },
    };
    const service = await startService(t, manifest, { plugins: [pluginFolder(t, PLUGINS)] });
    close();
    const ask = (sub: string, input = GO) =>
      service.post("/agents/assistant/text", { input }, { authorization: `Bearer ${token({ sub })}` });
    const running = Array.from({ length: 8 }, () => ask("ada"));
    await eventually(() => gate.waiting === 8, "eight");
    const refused = await ask("ada");
    assert.deepEqual([refused.status, refused.headers.get("retry-after")], [429, "1"]);
    assert.equal((await ask("bob", "Hello")).status, 200);
    running.push(ask("bob"));
    await eventually(() => gate.waiting === 9, "that of the next user");
    gate.release();
    for (const reply of running) assert.equal((await reply).status, 200);
    assert.equal(counted(service), 0);
  });

  test("POST .../replay: what it copies of a large execution counts for server.limits.uploads until it has ended; what does not fit is 503 with Retry-After", async (t) => {
    const text = "x".repeat(60 * KIB);
    const steps = [
      ...["a", "b", "c"].map((id) => ({ id, andThen: { set: { id, text } } })),
      { id: "wait", andThen: { use: "wait" } },
    ];
    const server = { limits: { ...LIMITS, uploads: "1MiB" } };
    const manifest = { name: "Test", version: "1.0.0", ...WAITING, workflows: { large: { steps } }, server };
    const service = await startService(t, manifest, { plugins: [pluginFolder(t, PLUGINS)] });
    gate.open = Promise.resolve();
    const options = { executionId: "e" };
    const begun = await service.post("/workflows/large/execute", { input: null, options });
    assert.equal(begun.status, 200, await begun.text());
    close();
    const replay = () => service.post("/workflows/large/executions/e/replay", { stepId: "wait" });
    const first = replay();
    await eventually(() => gate.waiting === 1, "the replay");
    assert.ok(counted(service) > 180 * KIB, `${counted(service)}`);
    const second = replay();
    await eventually(() => gate.waiting === 2, "the second");
    const refused = await replay();
    assert.deepEqual([refused.status, refused.headers.get("retry-after")], [503, "1"]);
    gate.release();
    for (const reply of [first, second]) assert.equal((await reply).status, 200);
    assert.equal(counted(service), 0);
    assert.equal((await replay()).status, 200);
  });

  /** Small requests that read much of what is stored. */
  const READS: Record<string, (service: TestService, stored: string) => Promise<Response>> = {
    "GET /workflows/:id/executions/:executionId/state": (service) => service.get("/workflows/w/executions/e/state"),
    "GET /workflows/:id/executions/:executionId/stream": (service) => service.get("/workflows/w/executions/e/stream"),
    "GET /agents/:id/runs/:runId": (service) => service.get("/agents/assistant/runs/r"),
    "GET /agents/:id/runs/:runId/stream": (service) => service.get("/agents/assistant/runs/r/stream"),
    "POST /v1/responses with previous_response_id": (service, id) =>
      service.post("/v1/responses", { model: "assistant", input: "x", previous_response_id: id }),
    "POST /v1/responses with an item_reference": (service, id) =>
      service.post("/v1/responses", { model: "assistant", input: [{ type: "item_reference", id: itemOf(id) }] }),
    "POST /v1/responses/compact with previous_response_id": (service, id) =>
      service.post("/v1/responses/compact", { model: "assistant", previous_response_id: id }),
    "GET /v1/responses/:id": (service, id) => service.get(`/v1/responses/${id}`),
    "GET /v1/responses/:id/input_items": (service, id) => service.get(`/v1/responses/${id}/input_items`),
    "WS /v1/responses with previous_response_id": async (service, id) => {
      const socket = await openSocket(`${service.url}/v1/responses`);
      socket.send({ type: "response.create", model: "assistant", input: "x", previous_response_id: id });
      let last: Loose;
      do last = await socket.next();
      while (last.type !== "error" && last.type !== "response.completed");
      await socket.close();
      const headers: [string, string][] = last.status === 503 ? [["retry-after", "1"]] : [];
      return new Response(null, { status: last.status ?? 200, headers });
    },
  };
  const itemOf = (response: string) => `msg_${response.slice("resp_".length)}_0`;

  test("what a small request reads of much that is stored counts for server.limits.uploads: where it does not fit it is 503 with Retry-After", async (t) => {
    const limits = { body: "200KiB", uploads: "300KiB" };
    const manifest = { name: "Test", version: "1.0.0", ...WAITING, server: { limits } };
    const service = await startService(t, manifest, { plugins: [pluginFolder(t, PLUGINS)] });
    gate.open = Promise.resolve();
    const text = "x".repeat(140 * KIB);
    const ok = async (reply: Promise<Response>): Promise<Loose> => {
      const answer = await reply;
      const body = (await answer.json()) as Loose;
      assert.ok(answer.ok, JSON.stringify(body).slice(0, 500));
      return body;
    };
    await ok(service.post("/workflows/w/execute", { input: { text }, options: { executionId: "e" } }));
    const background = { background: true, runId: "r" };
    await ok(service.post("/agents/assistant/text", { input: text, options: background }));
    await eventually(
      async () => (await ok(service.get("/agents/assistant/runs/r"))).data.status === "completed",
      "the end of the run",
    );
    const { id } = await ok(service.post("/v1/responses", { model: "assistant", input: text }));
    for (const [read, ask] of Object.entries(READS)) {
      close();
      const running = service.post("/tools/wait/execute", { input: { text: "x".repeat(190 * KIB) } });
      await eventually(() => gate.waiting === 1, "what holds most of it");
      const refused = await ask(service, id);
      await refused.text();
      assert.deepEqual([refused.status, refused.headers.get("retry-after")], [503, "1"], read);
      gate.release();
      assert.equal((await running).status, 200);
      const answer = await ask(service, id);
      // The echo of a long conversation is too long for a summary.
      assert.equal(answer.status, read.includes("compact") ? 500 : 200, `${read}: ${await answer.text()}`);
      await eventually(() => counted(service) === 0, `the end of ${read}`);
    }
  });

  test("POST .../clone: a message that it copies counts for server.limits.uploads; where it does not fit, the clone is 503 and leaves nothing", async (t) => {
    const limits = { body: "200KiB", uploads: "300KiB" };
    const manifest = { name: "Test", version: "1.0.0", ...WAITING, memory: { default: {} }, server: { limits } };
    const service = await startService(t, manifest, { plugins: [pluginFolder(t, PLUGINS)] });
    const conversationId = "large";
    await service.post("/api/memory/conversations", { conversationId, userId: "u", resourceId: "r" });
    const messages = [{ userId: "u", role: "user", parts: [{ type: "text", text: "x".repeat(120 * KIB) }] }];
    const saved = await service.post("/api/memory/save-messages", { conversationId, messages });
    assert.equal(saved.status, 200, await saved.text());
    close();
    const running = service.post("/tools/wait/execute", { input: { text: "x".repeat(190 * KIB) } });
    await eventually(() => gate.waiting === 1, "what holds most of it");
    const clone = () => service.post("/api/memory/conversations/large/clone", { newConversationId: "copy" });
    const refused = await clone();
    assert.deepEqual([refused.status, refused.headers.get("retry-after")], [503, "1"]);
    assert.equal((await service.get("/api/memory/conversations/copy")).status, 404);
    gate.release();
    assert.equal((await running).status, 200);
    assert.equal((await clone()).status, 201);
    assert.equal(counted(service), 0);
  });
});
