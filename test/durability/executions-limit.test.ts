/** `server.limits.executions`: what more is asked for is refused before anything is stored; what was interrupted waits. */
import assert from "node:assert/strict";
import { mkdtempSync } from "node:fs";
import { rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import { eventually } from "../support/event-reader.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { startService, type TestService } from "../support/service.ts";
import { SECRET, token } from "../support/tokens.ts";
import { TRANSPORTS } from "../support/transports.ts";

// biome-ignore lint/suspicious/noExplicitAny: replies of many shapes
type Loose = any;

/** Waits until its gate is opened; says how many wait. Of this process, so that tests see it. */
const gates = new Map<string, { waiting: number; most: number; open: Promise<void>; release(): void }>();
(globalThis as Loose).gates = gates;

function gate(name: string) {
  let release = () => {};
  const open = new Promise<void>((resolve) => {
    release = resolve;
  });
  const made = { waiting: 0, most: 0, open, release };
  gates.set(name, made);
  return made;
}

const STEP = `export default { kind: "step", config: { type: "object", properties: { gate: { type: "string" } } },
  async execute({ config, data, signal }) {
    const gate = globalThis.gates.get(config.gate);
    gate.most = Math.max(gate.most, ++gate.waiting);
    try {
      await Promise.race([gate.open, new Promise((_, reject) => signal.addEventListener("abort", () => reject(new Error("stopped"))))]);
      return data;
    } finally { gate.waiting--; }
  } };`;

const WORKFLOWS = (name: string) => ({
  w: { steps: [{ id: "wait", andThen: { use: "gate", with: { gate: name } } }] },
  ask: {
    steps: [
      { id: "ask", andThen: { suspend: { reason: "?" } } },
      { id: "wait", andThen: { use: "gate", with: { gate: name } } },
    ],
  },
});

const TOOL = `export default { kind: "tool", description: "Waits", parameters: { type: "object" },
  async execute(_, { signal }) {
    const gate = globalThis.gates.get("users");
    gate.waiting++;
    await Promise.race([gate.open, new Promise((_, reject) => signal.addEventListener("abort", () => reject(new Error("stopped"))))]);
    return {};
  } };`;

function serve(t: TestContext, name: string, store: string, limits: object, transport: string, more: object = {}) {
  const server = { transport, limits };
  const manifest = { name: "Test", version: "1.0.0", store, workflows: WORKFLOWS(name), server, ...more };
  return startService(t, manifest, {
    plugins: [pluginFolder(t, { "steps/gate.mjs": STEP, "tools/wait.mjs": TOOL })],
    env: { ...process.env, SERVICE_CONSOLE_ACCESS_KEY: "the-key-of-the-console" },
  });
}

async function isCrowded(reply: Response): Promise<void> {
  const body = (await reply.json()) as Loose;
  assert.equal(reply.status, 503, JSON.stringify(body));
  assert.deepEqual([reply.headers.get("x-error-code"), reply.headers.get("retry-after")], ["unavailable", "1"]);
  assert.match(body.error, /server\.limits\.executions/);
}

const begin = (service: TestService, executionId: string, workflow = "w", how = "execute") =>
  service.post(`/workflows/${workflow}/${how}`, { input: { n: 1 }, options: { executionId } });
const command = (service: TestService, id: string, workflow: string, what: string) =>
  service.post(`/workflows/${workflow}/executions/${id}/${what}`, what === "replay" ? { stepId: "wait" } : {});
const statusOf = async (service: TestService, id: string) => {
  const reply = await service.get(`/workflows/w/executions/${id}/state`);
  const body = (await reply.json()) as Loose;
  return reply.status === 200 ? body.data.status : reply.status;
};

for (const transport of TRANSPORTS) {
  describe(`server.limits.executions over ${transport}`, () => {
    test("POST .../execute, /stream, /resume and /replay beyond limits.executions are 503 with Retry-After, store nothing, and succeed once one has ended", async (t) => {
      const state = gate(`full-${transport}`);
      const service = await serve(t, `full-${transport}`, "memory:", { executions: 2 }, transport);
      const suspended = (await (await begin(service, "asked", "ask")).json()) as Loose;
      assert.equal(suspended.data.status, "suspended");
      const running = ["a", "b"].map((id) => begin(service, id));
      await eventually(() => state.waiting === 2, "two executions");
      for (const how of ["execute", "stream"]) await isCrowded(await begin(service, `c-${how}`, "w", how));
      await isCrowded(await command(service, "asked", "ask", "resume"));
      await isCrowded(await command(service, "asked", "ask", "replay"));
      assert.equal(await statusOf(service, "c-execute"), 404);
      const list = (await (await service.get("/workflows/executions")).json()) as Loose;
      assert.deepEqual(
        new Set(JSON.stringify(list).match(/"(?:a|b|asked|c-\w+)"/g)),
        new Set(['"a"', '"b"', '"asked"']),
      );
      state.release();
      for (const reply of running) assert.equal((await reply).status, 200);
      assert.equal((await begin(service, "c-execute")).status, 200);
      assert.equal((await command(service, "asked", "ask", "resume")).status, 200);
      assert.equal(state.most, 2);
    });

    test("many POST /workflows/:id/execute at once: no more than limits.executions run, the others are 503", async (t) => {
      const state = gate(`burst-${transport}`);
      const service = await serve(t, `burst-${transport}`, "memory:", { executions: 5 }, transport);
      const replies = Array.from({ length: 40 }, (_, at) => begin(service, `e${at}`));
      await eventually(() => state.waiting === 5, "five executions");
      let refused = 0;
      for (const reply of replies) reply.then(({ status }) => status === 503 && refused++);
      await eventually(() => refused === 35, "thirty-five refusals");
      state.release();
      const statuses = (await Promise.all(replies)).map(({ status }) => status);
      assert.equal(statuses.filter((status) => status === 200).length, 5);
      assert.equal(statuses.filter((status) => status === 503).length, 35);
      assert.equal(state.most, 5);
    });
  });
}

describe("server.limits.userExecutions", () => {
  const auth = { mode: "authNext", provider: { use: "jwt", secret: SECRET } };
  const agents = { assistant: { instructions: "x", model: "scripted/echo", tools: ["wait"] } };
  const tools = { wait: { use: "wait" } };
  const providers = {
    scripted: { use: "scripted", replies: [{ when: "go", call: { tool: "wait", input: {} } }] },
  };
  const more = { auth, agents, tools, providers };
  const header = (sub: string) => ({ authorization: `Bearer ${token({ sub })}` });
  const [ada, bob] = [header("ada"), header("bob")];

  /** Every way in that begins an execution or a kept run. */
  const WAYS: Record<string, (service: TestService, headers: Record<string, string>) => Promise<Response>> = {
    "POST /workflows/:id/execute": (service, headers) => service.post("/workflows/w/execute", { input: {} }, headers),
    "POST /workflows/:id/execute in the background": (service, headers) =>
      service.post("/workflows/w/execute", { input: {}, options: { background: true } }, headers),
    "POST /workflows/:id/stream": (service, headers) => service.post("/workflows/w/stream", { input: {} }, headers),
    "POST /agents/:id/text in the background": (service, headers) =>
      service.post("/agents/assistant/text", { input: "go", options: { background: true } }, headers),
    "POST /v1/responses in the background": (service, headers) =>
      service.post("/v1/responses", { model: "assistant", input: "go", background: true }, headers),
  };

  test("one user who takes a quarter of server.limits.executions is 429 with Retry-After at each way in, the next user is served", async (t) => {
    const state = gate("users");
    const service = await serve(t, "users", "memory:", { executions: 8 }, "node", more);
    const asked = await service.post("/workflows/ask/execute", { input: {}, options: { executionId: "asked" } }, ada);
    const said = (await asked.json()) as Loose;
    assert.equal(said.data?.status, "suspended", JSON.stringify(said));
    const running = [1, 2].map(() => WAYS["POST /workflows/:id/execute"]!(service, ada));
    await eventually(() => state.waiting === 2, "two executions");
    const refuses = async (pending: Promise<Response>, way: string) => {
      const reply = await pending;
      const text = await reply.text();
      assert.equal(reply.status, 429, `${way}: ${text}`);
      assert.equal(reply.headers.get("retry-after"), "1", way);
      assert.match(text, /server\.limits\.userExecutions/);
    };
    for (const [way, ask] of Object.entries(WAYS)) await refuses(ask(service, ada), way);
    for (const what of ["resume", "replay"])
      await refuses(
        service.post(`/workflows/ask/executions/asked/${what}`, what === "replay" ? { stepId: "wait" } : {}, ada),
        what,
      );
    const limit = service.service.meters.limits;
    assert.equal(limit.refused("server.limits.userExecutions"), Object.keys(WAYS).length + 2);
    const ways = Object.keys(WAYS).filter((way) => way.includes("background"));
    for (const way of ways.slice(0, 2)) {
      const { status } = await WAYS[way]!(service, bob);
      assert.ok(status === 200 || status === 202, `${way} of the next user: ${status}`);
    }
    await eventually(() => state.waiting === 4, "those of the next user");
    await refuses(WAYS[ways[2]!]!(service, bob), "the third of the next user");
    state.release();
    for (const reply of running) assert.equal((await reply).status, 200);
    assert.equal((await WAYS["POST /workflows/:id/execute"]!(service, ada)).status, 200);
  });

  test("requests without a user share server.limits.executions, whoever they name", async (t) => {
    const state = gate("nobody");
    const service = await serve(t, "nobody", "memory:", { executions: 4, userExecutions: 1 }, "node");
    const ask = (userId?: string) => service.post("/workflows/w/execute", { input: {}, options: { userId } });
    const running = [undefined, undefined, "ada", "ada"].map(ask);
    await eventually(() => state.waiting === 4, "four executions");
    await isCrowded(await ask());
    state.release();
    for (const reply of running) assert.equal((await reply).status, 200);
  });

  test("executions of one user that were interrupted go on after a restart beyond server.limits.userExecutions, and count", async (t) => {
    const folder = mkdtempSync(join(tmpdir(), "penstock-executions-"));
    t.after(() => rm(folder, { recursive: true, force: true }));
    const store = `sqlite:${join(folder, "test.db")}`;
    const before = gate("users");
    const execute = (service: TestService, headers: Record<string, string>) =>
      WAYS["POST /workflows/:id/execute"]!(service, headers);
    const first = await serve(t, "users", store, { userExecutions: 3 }, "node", more);
    for (let count = 0; count < 3; count++) execute(first, ada).catch(() => {});
    await eventually(() => before.waiting === 3, "three executions");
    await first.kill();
    await eventually(() => before.waiting === 0, "their interruption");
    const state = gate("users");
    const second = await serve(t, "users", store, { userExecutions: 2 }, "node", more);
    await eventually(() => state.waiting === 3, "the three");
    assert.equal((await execute(second, ada)).status, 429);
    state.release();
    await eventually(async () => (await execute(second, ada)).status === 200, "a place");
  });
});

test("POST /agents/:id/text and /stream whose tool asks a person beyond limits.executions hear of the limit instead of waiting for a place, and ask nobody", async (t) => {
  const state = gate("asks");
  const service = await serve(t, "asks", "memory:", { executions: 1 }, "node", {
    providers: { demo: { use: "scripted", replies: [{ call: { tool: "wait", input: {} } }] } },
    tools: { wait: { use: "wait", approval: true } },
    agents: { clerk: { model: "demo/echo", memory: false, tools: ["wait"] } },
  });
  const running = begin(service, "asks");
  await eventually(() => state.waiting === 1, "an execution");
  for (const path of ["/agents/clerk/text", "/agents/clerk/stream"])
    assert.match(await (await service.post(path, { input: "go" })).text(), /as many as server\.limits\.executions/);
  assert.deepEqual(((await (await service.get("/approvals")).json()) as Loose).data, []);
  state.release();
  assert.equal((await running).status, 200);
  const asked = (await (await service.post("/agents/clerk/text", { input: "go" })).json()) as Loose;
  assert.equal(asked.data.approvals.length, 1);
});

test("executions that were interrupted go on after a restart as limits.executions has places for them, before new ones, and none is lost", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "penstock-executions-"));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const store = `sqlite:${join(folder, "test.db")}`;
  gate("restart");
  const first = await serve(t, "restart", store, {}, "node");
  const ids = Array.from({ length: 7 }, (_, at) => `e${at}`);
  for (const id of ids) begin(first, id).catch(() => {});
  await eventually(() => gates.get("restart")!.waiting === 7, "seven executions");
  await first.kill();
  await eventually(() => gates.get("restart")!.waiting === 0, "their interruption");

  const state = gate("restart");
  const second = await serve(t, "restart", store, { executions: 2 }, "node");
  await eventually(() => gates.get("restart")!.waiting === 2, "two that go on");
  await isCrowded(await begin(second, "new"));
  for (const id of ids) assert.equal(await statusOf(second, id), "running");
  state.release();
  for (const id of ids) await eventually(async () => (await statusOf(second, id)) === "completed", `the end of ${id}`);
  assert.equal(gates.get("restart")!.most, 2);
  assert.equal((await begin(second, "new")).status, 200);
});

test("a service stops while interrupted executions still wait for a place, and they go on after the next start", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "penstock-executions-"));
  t.after(() => rm(folder, { recursive: true, force: true }));
  const store = `sqlite:${join(folder, "test.db")}`;
  const limits = { executions: 1, drain: "100ms" };
  gate("stop");
  const first = await serve(t, "stop", store, { drain: "100ms" }, "node");
  const ids = ["a", "b", "c"];
  for (const id of ids) begin(first, id).catch(() => {});
  await eventually(() => gates.get("stop")!.waiting === 3, "three executions");
  await first.stop();
  gate("stop");
  const second = await serve(t, "stop", store, limits, "node");
  await eventually(() => gates.get("stop")!.waiting === 1, "one that goes on");
  await second.stop();
  gate("stop").release();
  const third = await serve(t, "stop", store, limits, "node");
  for (const id of ids) await eventually(async () => (await statusOf(third, id)) === "completed", `the end of ${id}`);
});
