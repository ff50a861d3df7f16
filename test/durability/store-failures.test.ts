/** The store fails while executions begin, run, are suspended and resumed: what clients are told, and what is there when it is back. */
import assert from "node:assert/strict";
import { after, type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { EventReader } from "../support/event-reader.ts";
import { inject } from "../support/inject.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { NO_POSTGRES, type PostgresServer, startPostgres } from "../support/postgres.ts";
import { soon } from "../support/providers.ts";
import { startService, type TestService } from "../support/service.ts";

// biome-ignore lint/suspicious/noExplicitAny: replies of many shapes
type Loose = any;

const MEMORY_STORE = fileURLToPath(new URL("../../core/storage/memory-store.ts", import.meta.url));
const ERRORS = fileURLToPath(new URL("../../core/lib/errors.ts", import.meta.url));

/** A store that refuses every commit while the world says so, and a step that waits for the world. */
const PLUGINS = {
  "stores/moody.mjs": `import { createMemoryStore } from ${JSON.stringify(MEMORY_STORE)};
    import { unavailable } from ${JSON.stringify(ERRORS)};
    const away = () => unavailable("storage is unavailable: it is away");
    export default { kind: "store", create: () => {
      const store = createMemoryStore();
      const world = globalThis.penstockMoody;
      return { ...store, kind: "moody",
        commit: async (commit) => {
          if (world.down) throw away();
          const revision = await store.commit(commit);
          if (world.deaf) throw away();
          return revision; },
        problem: async () => (world.down ? "it is away" : null) };
    } };`,
  "steps/pause.mjs": `export default { kind: "step", execute: async ({ data, idempotencyKey }) => {
    const world = globalThis.penstockMoody; world.runs.push(idempotencyKey); world.began(); await world.open; return data; } };`,
};

const world = {
  down: false,
  deaf: false,
  runs: [] as string[],
  began: () => {},
  open: Promise.resolve() as Promise<unknown>,
};
(globalThis as { penstockMoody?: typeof world }).penstockMoody = world;

/** Lets no `pause` end until `go`; `began` resolves when one has begun. */
function hold(): { began: Promise<void>; go(): void } {
  let go = () => {};
  world.runs = [];
  world.open = new Promise<void>((resolve) => {
    go = resolve;
  });
  const began = new Promise<void>((resolve) => {
    world.began = resolve;
  });
  return { began, go };
}

const WORKFLOWS = {
  w: {
    steps: [
      { id: "one", andThen: { use: "pause" } },
      { id: "two", andThen: { use: "pause" } },
      { id: "three", andThen: { set: { n: "{{ data.n + 1 }}" } } },
    ],
  },
  ask: {
    steps: [
      { id: "ask", andThen: { suspend: { reason: "Yes?" } } },
      { id: "one", andThen: { use: "pause" } },
    ],
  },
};

async function serve(t: TestContext, store = "moody"): Promise<TestService> {
  world.down = false;
  world.deaf = false;
  world.open = Promise.resolve();
  const plugins = [pluginFolder(t, PLUGINS)];
  const service = await startService(t, { name: "Test", version: "1.0.0", store, workflows: WORKFLOWS }, { plugins });
  t.after(() => {
    world.down = false;
    world.deaf = false;
  });
  return service;
}

const body = (id: string) => ({ input: { n: 1 }, options: { executionId: id } });
const read = async (reply: Response): Promise<Loose> => ({ status: reply.status, ...((await reply.json()) as object) });
const stateOf = async (service: TestService, id: string, workflow = "w") =>
  (await read(await service.get(`/workflows/${workflow}/executions/${id}/state`))).data;

async function until<T>(what: string, look: () => Promise<T | false>): Promise<T> {
  const looking = async () => {
    for (;;) {
      const seen = await look();
      if (seen !== false) return seen;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  };
  return soon(looking(), what);
}

const completed = (service: TestService, id: string) =>
  until("the end", async () => (await stateOf(service, id)).status === "completed");

test("POST /workflows/:id/execute and /stream: 503 when the start cannot be recorded, and nothing is left of it", async (t) => {
  const service = await serve(t);
  world.down = true;
  for (const path of ["/workflows/w/execute", "/workflows/w/stream"]) {
    const reply = await service.post(path, body("e"));
    assert.equal(reply.status, 503);
    assert.equal(reply.headers.get("x-error-code"), "unavailable");
    assert.ok(reply.headers.has("retry-after"));
    assert.equal((await read(reply)).error, "storage is unavailable: it is away");
  }
  assert.equal((await service.get("/readyz")).status, 503);
  world.down = false;
  assert.equal((await service.get("/readyz")).status, 200);
  assert.equal((await service.get("/workflows/w/executions/e/state")).status, 404);
  assert.deepEqual((await read(await service.get("/workflows/executions"))).data, []);
  assert.equal((await read(await service.get("/workflows"))).data[0].status, "idle");
  assert.deepEqual((await read(await service.post("/workflows/w/execute", body("e")))).data.result, { n: 2 });
});

test("POST /workflows/:id/execute: 503 with x-execution-id while a step cannot be recorded; it goes on by itself, and runs no step twice", async (t) => {
  const service = await serve(t);
  const { began, go } = hold();
  const waiting = service.post("/workflows/w/execute", body("e"));
  await soon(began, "the step");
  world.down = true;
  go();
  const reply = await soon(waiting, "the reply");
  assert.equal(reply.status, 503);
  assert.equal(reply.headers.get("x-execution-id"), "e");
  assert.ok(reply.headers.has("retry-after"));
  assert.equal((await stateOf(service, "e")).status, "running");
  assert.equal((await service.get("/readyz")).status, 503);
  assert.deepEqual(world.runs, ["e:one"], "the next step waits until it is recorded that it begins");
  world.down = false;
  await completed(service, "e");
  assert.deepEqual(world.runs, ["e:one", "e:two"]);
  const lines = service.log.filter(({ msg }) => /cannot be recorded/.test(String(msg)));
  assert.equal(lines.length, 1, "one line, and not one for every try");
});

test("POST /workflows/:id/stream: a stream waits while nothing can be recorded, tells nothing that is not, and goes on", async (t) => {
  const service = await serve(t);
  const { began, go } = hold();
  const reader = new EventReader(`${service.url}/workflows/w/stream`, body("e"));
  await soon(began, "the step");
  world.down = true;
  await soon(
    reader.until(() => reader.events.length === 2),
    "what was recorded before",
  );
  go();
  await new Promise((resolve) => setTimeout(resolve, 150));
  assert.deepEqual(
    reader.events.map(({ type }) => type),
    ["workflow-start", "step-start"],
  );
  world.down = false;
  await soon(reader.end(), "the end");
  assert.equal(reader.events.at(-1)!.type, "workflow-result");
  assert.equal(reader.events.filter(({ type }) => type === "step-complete").length, 3);
});

test("POST .../resume: 503 when it cannot be recorded; the execution stays suspended and can be resumed later", async (t) => {
  const service = await serve(t);
  assert.equal((await read(await service.post("/workflows/ask/execute", body("e")))).data.status, "suspended");
  world.down = true;
  assert.equal((await service.post("/workflows/ask/executions/e/resume", { resumeData: {} })).status, 503);
  assert.equal((await stateOf(service, "e", "ask")).status, "suspended");
  world.down = false;
  const { data } = await read(await service.post("/workflows/ask/executions/e/resume", { resumeData: { a: 1 } }));
  assert.deepEqual([data.status, data.result], ["completed", { n: 1, a: 1 }]);
});

for (const [command, status] of [
  ["suspend", "suspended"],
  ["cancel", "cancelled"],
] as const) {
  test(`POST .../${command}: 503 with x-execution-id while it cannot be recorded; it stands when the store is back`, async (t) => {
    const service = await serve(t);
    const { began, go } = hold();
    const waiting = service.post("/workflows/w/execute", body("e"));
    await soon(began, "the step");
    world.down = true;
    // In the process: the command is given when this returns, however busy the machine is.
    const stopped = inject(service.dispatch, {
      method: "POST",
      path: `/workflows/w/executions/e/${command}`,
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ reason: "enough" }),
    });
    await new Promise(setImmediate);
    go();
    const { status: stoppedWith, headers } = await stopped;
    assert.deepEqual([stoppedWith, headers["x-execution-id"]], [503, "e"]);
    const reply = await waiting;
    assert.deepEqual([reply.status, reply.headers.get("x-execution-id")], [503, "e"]);
    const state = await service.get("/workflows/w/executions/e/state");
    assert.equal(state.status, 503, "how it came to rest is not told before it is on record");
    world.down = false;
    await until("the rest", async () => (await stateOf(service, "e")).status === status);
    assert.deepEqual(world.runs, ["e:one"]);
  });
}

test("an execution whose commits happen while nobody hears of it is not in the way of itself", async (t) => {
  const service = await serve(t);
  const { began, go } = hold();
  const waiting = service.post("/workflows/w/execute", body("e"));
  await soon(began, "the step");
  world.deaf = true;
  go();
  assert.equal((await soon(waiting, "the reply")).status, 503);
  await new Promise((resolve) => setTimeout(resolve, 150));
  world.deaf = false;
  await completed(service, "e");
  // The last commit of all: that it rests.
  const again = hold();
  const second = service.post("/workflows/ask/execute", body("f"));
  assert.equal((await read(await second)).data.status, "suspended");
  const resumed = service.post("/workflows/ask/executions/f/resume", { resumeData: {} });
  await soon(again.began, "the step");
  world.deaf = true;
  again.go();
  assert.equal((await soon(resumed, "the reply")).status, 503);
  world.deaf = false;
  await until("the end", async () => (await stateOf(service, "f", "ask")).status === "completed");
  assert.equal(service.log.filter(({ msg }) => /another process/.test(String(msg))).length, 0);
  assert.deepEqual(world.runs, ["f:one"]);
});

const server = await startPostgres();
after(() => server?.close());
const skip = server === null ? NO_POSTGRES : server.stop === null ? "the server is not ours to stop" : false;

test("an execution on PostgreSQL waits while the server is away, and goes on when it is back", { skip }, async (t) => {
  const db = server as PostgresServer;
  const service = await serve(t, await db.createDatabase());
  const { began, go } = hold();
  const waiting = service.post("/workflows/w/execute", body("e"));
  const reader = new EventReader(`${service.url}/workflows/w/stream`, body("f"));
  await soon(began, "the step");
  await until("both", async () => world.runs.length === 2);
  await db.stop?.("immediate");
  try {
    go();
    const reply = await soon(waiting, "the reply");
    assert.equal(reply.status, 503);
    assert.equal(reply.headers.get("x-execution-id"), "e");
    assert.equal((await service.post("/workflows/w/execute", body("g"))).status, 503);
  } finally {
    await db.start?.();
  }
  await completed(service, "e");
  await soon(reader.end(), "the end of the stream");
  assert.equal(reader.events.at(-1)!.type, "workflow-result");
  assert.deepEqual([...world.runs].sort(), ["e:one", "e:two", "f:one", "f:two"]);
});
