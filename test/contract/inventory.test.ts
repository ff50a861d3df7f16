/** What the service is made of, for people who run it: `GET /observability/routes`, `/manifest` and `/limits`. */
import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { LimitState, ManifestValue, RouteState } from "../../generated/types.ts";
import { eventually } from "../support/event-reader.ts";
import { startService, type TestService } from "../support/service.ts";
import { openSocket } from "../support/sockets.ts";
import { TRANSPORTS } from "../support/transports.ts";

const SECRETS = ["from-the-environment", "from-a-file", "written-down", "pass-in-address", "sk-1234567890abcdef1234"];

/** The line of each setting counts. */
const manifest = (folder: string, transport: string) => `name: Desk
store: "memory:"
x-backup: "postgres://desk:pass-in-address@db/desk"
server:
  transport: ${transport}
  limits:
    body: 2KiB
    executions: "\${MOST}"
    execution: 1KiB
    request: 3s
    connections: 10
    socketMessage: 64
providers:
  demo: { use: scripted, delay: 50ms, models: { slow: { firstDelay: 60s } }, retries: 1 }
tools:
  lookUp:
    description: Finds orders
    http:
      method: GET
      url: "https://orders.example/{{ input.id }}?x=sk-1234567890abcdef1234"
      headers: { x-api-key: written-down, authorization: "Bearer \${KEY}", x-other: "\${file:${folder}/secret}" }
    parameters: { type: object, properties: { id: { type: string } }, required: [id] }
agents:
  assistant: { name: Assistant, description: Helps, instructions: The secret recipe., model: demo/slow, memory: false }
workflows:
  waiting: { steps: [{ id: wait, andAgent: { agent: assistant, prompt: Wait. } }] }
  large: { steps: [{ id: copy, andThen: { set: { again: "{{ input.text }}" } } }] }
`;

for (const transport of TRANSPORTS)
  describe(`what a service is made of, over ${transport}`, () => {
    let service: TestService;
    const ends: (() => unknown)[] = [];

    before(async () => {
      const folder = await mkdtemp(join(tmpdir(), "penstock-inventory-"));
      ends.push(() => rm(folder, { recursive: true }));
      await writeFile(join(folder, "secret"), "from-a-file");
      const env = { KEY: "from-the-environment", MOST: "1" };
      service = await startService({ after: (end) => void ends.unshift(end) }, manifest(folder, transport), { env });
    });

    after(async () => {
      for (const end of ends) await end();
    });

    const read = async <T>(path: string): Promise<T> => {
      const reply = await service.get(`/observability/${path}`);
      const { data, error } = (await reply.json()) as { data: T; error?: string };
      assert.equal(reply.status, 200, error);
      return data;
    };
    const limit = async (path: string) => {
      const found = (await read<LimitState[]>("limits")).find((each) => each.path === path);
      assert.ok(found, path);
      return found;
    };

    test("GET /observability/manifest says of each value where it comes from: a line, a variable, a file, a default", async () => {
      const values = new Map((await read<ManifestValue[]>("manifest")).map((value) => [value.path, value]));
      const about = (path: string) => {
        const { value, source = "", origin } = values.get(path) ?? {};
        return [value, source.replaceAll(/[^\s(]*\//g, ""), origin];
      };
      assert.deepEqual(about("name"), ["Desk", "service.yaml:1:1", "manifest"]);
      assert.deepEqual(about("server.limits.body"), [2048, "service.yaml:7:5", "manifest"]);
      assert.deepEqual(about("server.limits.drain"), [30_000, "default of the schema", "default"]);
      assert.deepEqual(about("tools.lookUp.http.headers.authorization"), [
        "[redacted]",
        "environment variable KEY (service.yaml:21:43)",
        "environment",
      ]);
      const [value, source, origin] = about("tools.lookUp.http.headers.x-other");
      assert.deepEqual([value, origin], ["***", "environment"]);
      assert.match(String(source), /^file secret \(service.yaml:21:\d+\)$/);
      assert.equal(values.get("server.limits.drain")?.unit, "milliseconds");
      assert.match(values.get("server.limits.drain")?.description ?? "", /^Longest wait/);
    });

    test("GET /observability/manifest sends no secret, wherever it was written, and no instructions of an agent", async () => {
      const text = await (await service.get("/observability/manifest")).text();
      for (const secret of [...SECRETS, "recipe"]) assert.ok(!text.includes(secret), secret);
      const values = new Map((JSON.parse(text).data as ManifestValue[]).map(({ path, value }) => [path, value]));
      assert.equal(values.get("agents.assistant.instructions"), "[redacted]");
      assert.equal(values.get("tools.lookUp.http.headers.x-api-key"), "[redacted]");
      assert.equal(values.get("x-backup"), "postgres://[redacted]@db/desk");
      assert.match(String(values.get("tools.lookUp.http.url")), /^https:\/\/orders\.example\//);
      assert.equal(values.get("agents.assistant.description"), "Helps");
    });

    test("GET /observability/routes lists routes and sockets with their class, and counts what was asked", async () => {
      await service.get("/agents/none");
      const routes = await read<RouteState[]>("routes");
      const agent = routes.find(({ method, path }) => method === "GET" && path === "/agents/:id");
      assert.deepEqual([agent?.access, agent?.requests, agent?.refused, agent?.failed], ["public", 1, 1, 0]);
      assert.ok(routes.some(({ method, path }) => method === "WS" && path === "/ws/logs"));
      assert.deepEqual(
        routes.map(({ path }) => path),
        routes.map(({ path }) => path).sort(),
      );
    });

    test("GET /observability/limits has the value of each, also of one from the environment, and no count where nothing is refused", async () => {
      const { value, origin, source, used, refused } = await limit("server.limits.executions");
      assert.deepEqual([value, origin, used, refused], [1, "environment", 0, 0]);
      assert.match(source, /^environment variable MOST /);
      assert.equal((await limit("server.limits.heartbeat")).refused, undefined);
      assert.deepEqual(
        [(await limit("providers.demo.retries")).value, (await limit("agents.assistant.maxSteps")).value],
        [1, 5],
      );
    });

    test("GET /observability/limits counts a body that is too large, an execution too many, and what is in use", async () => {
      const large = await service.post("/agents/assistant/text", { input: "x".repeat(4096) });
      assert.equal(large.status, 413);
      assert.equal((await limit("server.limits.body")).refused, 1);

      const running = { input: {}, options: { executionId: "first" } };
      const ended = service.post("/workflows/waiting/execute", running);
      await eventually(async () => (await limit("server.limits.executions")).used === 1, "the execution");
      assert.equal((await service.post("/workflows/waiting/execute", { input: {} })).status, 503);
      assert.equal((await limit("server.limits.executions")).refused, 1);
      await service.post("/workflows/waiting/executions/first/cancel", {});
      await ended;
      assert.equal((await limit("server.limits.executions")).used, 0);
    });

    test("GET /observability/limits counts an execution that records too much, and a request that takes too long", async () => {
      await service.post("/workflows/large/execute", { input: { text: "x".repeat(900) } });
      assert.equal((await limit("server.limits.execution")).refused, 1);
      assert.equal((await service.post("/agents/assistant/text", { input: "Hello" })).status, 503);
      assert.equal((await limit("server.limits.request")).refused, 1);
    });

    test("GET /observability/limits counts connections that are one too many, and messages of a WebSocket that are too large", async () => {
      const socket = await openSocket(`${service.url.replace("http", "ws")}/ws/logs`);
      socket.send("x".repeat(100));
      assert.equal((await socket.closed).code, 1009);
      await eventually(async () => (await limit("server.limits.socketMessage")).refused === 1, "the refusal");
      // What uWebSockets.js itself refuses is one too.
      const larger = await openSocket(`${service.url.replace("http", "ws")}/ws/logs`);
      larger.send("x".repeat(100_000));
      await larger.closed;
      await eventually(async () => (await limit("server.limits.socketMessage")).refused === 2, "the second refusal");

      const before = (await limit("server.limits.connections")).refused!;
      const { hostname, port } = new URL(service.url);
      const many = Array.from({ length: 20 }, () => connect(Number(port), hostname));
      for (const each of many) each.on("error", () => {});
      await Promise.race(many.map((each) => new Promise((resolve) => each.once("close", resolve))));
      for (const each of many) each.destroy();
      await eventually(async () => (await limit("server.limits.connections")).refused! > before, "the refusal");
    });
  });

test("GET /observability/manifest sends no secret that stands under another name, in an address, a list, a key, a number or an anchor", async (t) => {
  const written = [
    "x-kept: &kept hunter2-kept",
    "x-recipe: &recipe Say nothing about the merger.",
    "x-pin: { accessToken: 90210777, tokens: { hunter2-holder: ada }, list: { tokens: [hunter2-listed] } }",
    "x-addresses:",
    "  - postgres://desk:hunter2@hunter2-rest@db/desk",
    "  - https://hunter2-user@sentry.example/1",
    "  - https://hooks.example/services/T0042ABCD/hunter2Xa91Zq0Lm44Tt7",
    "  - https://desk-of-europe-2.example/v1?version=2026-08-01-preview",
    "store: 'memory:'",
    "providers: { demo: { use: scripted } }",
    "agents:",
    "  monkey: { model: demo/echo, memory: false, maxSteps: 7, description: Climbs, instructions: *recipe }",
    "tools:",
    "  reset_password:",
    "    description: Writes to the user",
    "    parameters: { type: object, properties: { token: { type: string, default: hunter2-default } } }",
    "    http:",
    "      method: POST",
    "      url: https://desk.example/reset",
    "      headers: { x-desk: hunter2-header, x-other: *kept, x-user: '{{ user.id }}' }",
    "      query: { code: hunter2-query, page: '{{ input.page }}' }",
    "mcp: { clients: { files: { command: node, args: [-e, '0', --token, hunter2-argument], env: { DESK: hunter2-env } } } }",
  ].join("\n");
  const service = await startService(t, written);
  const text = await (await service.get("/observability/manifest")).text();
  for (const secret of text.match(/hunter2[\w-]*|90210777|merger/g) ?? []) assert.fail(secret);
  const values = new Map((JSON.parse(text).data as ManifestValue[]).map(({ path, value }) => [path, value]));
  const shown = {
    "agents.monkey.description": "Climbs",
    "agents.monkey.instructions": "[redacted]",
    "agents.monkey.maxSteps": 7,
    "tools.reset_password.description": "Writes to the user",
    "tools.reset_password.http.headers.x-user": "{{ user.id }}",
    "tools.reset_password.http.method": "POST",
    "tools.reset_password.http.query.page": "{{ input.page }}",
    "tools.reset_password.http.url": "https://desk.example/reset",
    "tools.reset_password.parameters.properties.token.type": "string",
    "x-addresses[0]": "postgres://[redacted]@db/desk",
    "x-addresses[1]": "https://[redacted]@sentry.example/1",
    "x-addresses[2]": "https://hooks.example/services/T0042ABCD/[redacted]",
    "x-addresses[3]": "https://desk-of-europe-2.example/v1?version=2026-08-01-preview",
    'x-pin.tokens["[redacted]"]': "[redacted]",
  };
  for (const [path, value] of Object.entries(shown)) assert.equal(values.get(path), value, path);
});

test("GET /observability/limits has those of agents whose ids begin with a digit, the most steps that a request may ask for, and those of memories", async (t) => {
  const agent = (maxSteps: unknown) => ({ model: "demo/echo", memory: false, maxSteps });
  const agents = { "2nd": agent(3), third: agent({ default: 4, max: 9 }) };
  const memory = { long: { contextTokens: 5000 } };
  const service = await startService(t, { store: "memory:", providers: { demo: { use: "scripted" } }, memory, agents });
  const { data } = (await (await service.get("/observability/limits")).json()) as { data: LimitState[] };
  const steps = data.filter(({ path }) => /maxSteps|^memory/.test(path)).map(({ path, value }) => [path, value]);
  assert.deepEqual(steps, [
    ['agents["2nd"].maxSteps', 3],
    ["agents.third.maxSteps.max", 9],
    ["memory.long.contextTokens", 5000],
  ]);
});
