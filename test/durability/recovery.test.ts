/** What goes on after a restart, by which definition, and what does not: pinned definitions, plugins that are gone, `recovery`. */
import assert from "node:assert/strict";
import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { createMemoryStore } from "../../core/storage/memory-store.ts";
import { findExecution, loadExecution } from "../../core/workflows/journal/load.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { until } from "../support/probe.ts";
import { soon } from "../support/providers.ts";
import { startService, type TestOptions, type TestService } from "../support/service.ts";
import { temporaryFolder } from "../support/storage.ts";
import { CALL, cutStore, processesOf } from "../support/workflow-process.ts";

// biome-ignore lint/suspicious/noExplicitAny: replies of many shapes
type Loose = any;

const ASK = { id: "ask", andThen: { suspend: { reason: "Yes?" } } };
const ADD_ONE = `export default { kind: "step", config: { type: "object", properties: { token: { type: "string" } } },
  execute: ({ data, config }) => ({ n: (data?.n ?? 0) + 1, length: config.token?.length }) };`;

/** Starts services one after the other on one SQLite file. */
async function restarts(t: TestContext) {
  const folder = await temporaryFolder(t);
  let running: TestService | null = null;
  const start = async (workflows: object, options: TestOptions = {}) => {
    await running?.kill();
    const manifest = { name: "Test", version: "1.0.0", store: `sqlite:${join(folder, "test.db")}`, workflows };
    running = await startService(t, manifest, options);
    return running;
  };
  return { folder, start };
}

const dataOf = async (reply: Response): Promise<Loose> => {
  const body = (await reply.json()) as { success: boolean; data: Loose; error?: string };
  assert.equal(reply.status, 200, body.error);
  return body.data;
};

async function suspendedId(service: TestService, workflow = "w"): Promise<string> {
  const data = await dataOf(await service.post(`/workflows/${workflow}/execute`, { input: {} }));
  assert.equal(data.status, "suspended");
  return data.executionId;
}

const versioned = (version: number, more: object[] = []) => ({
  w: {
    steps: [ASK, { id: "after", andThen: { set: { version } } }, ...more],
    resume: version === 1 ? { type: "object" } : { type: "string" },
  },
});

test("POST .../resume and .../replay: an execution keeps the steps that it began with when service.yaml has changed", async (t) => {
  const { start } = await restarts(t);
  const first = await start(versioned(1));
  const [one, other] = [await suspendedId(first), await suspendedId(first)];
  const second = await start(versioned(2, [{ id: "new", andThen: { set: { new: "{{ data.version }}" } } }]));

  const path = `/workflows/w/executions/${one}`;
  assert.equal((await second.post(`${path}/resume`, { resumeData: "a" })).status, 400, "the old schema counts");
  const resumed = await dataOf(await second.post(`${path}/resume`, { resumeData: { a: 1 } }));
  assert.deepEqual(resumed.result, { version: 1 });
  const replayed = await dataOf(await second.post(`${path}/replay`, { stepId: "after" }));
  assert.deepEqual(replayed.result, { version: 1 });
  assert.equal((await second.post(`${path}/replay`, { stepId: "new" })).status, 400, "a step that it never had");

  const now = await suspendedId(second);
  const fresh = await dataOf(await second.post(`/workflows/w/executions/${now}/resume`, { resumeData: "a" }));
  assert.deepEqual(fresh.result, { new: 2 });

  // The old definition is still there after another restart, and when nothing but an old execution needs it.
  const third = await start(versioned(3));
  const last = await dataOf(await third.post(`/workflows/w/executions/${other}/resume`, { resumeData: {} }));
  assert.deepEqual(last.result, { version: 1 });
});

test("POST .../resume: 503 that names the plugin that is gone; the execution stays suspended, and goes on when it is back", async (t) => {
  const { start } = await restarts(t);
  const plugins = [pluginFolder(t, { "steps/mine.mjs": ADD_ONE })];
  const using = { w: { steps: [ASK, { id: "mine", andThen: { use: "mine" } }] } };
  const first = await start(using, { plugins });
  const [id, cancelled] = [await suspendedId(first), await suspendedId(first)];

  const without = await start({ w: { steps: [ASK] } });
  const path = `/workflows/w/executions/${id}`;
  const refused = await without.post(`${path}/resume`, { resumeData: { n: 1 } });
  assert.equal(refused.status, 503);
  assert.match(((await refused.json()) as Loose).error, /step plugin "mine"/);
  const state = await dataOf(await without.get(`${path}/state`));
  assert.deepEqual([state.status, state.suspension.stepId, state.suspension.stepIndex], ["suspended", "ask", 0]);
  const [listed] = await dataOf(await without.get("/workflows/executions?status=suspended&limit=1&offset=1"));
  assert.equal(listed.id, id);
  assert.match(await (await without.get(`${path}/stream`)).text(), /"type":"workflow-result"/);
  assert.equal((await without.post(`${path}/replay`, { stepId: "ask" })).status, 503);
  const gone = await dataOf(await without.post(`/workflows/w/executions/${cancelled}/cancel`, {}));
  assert.equal(gone.status, "cancelled", "what is gone is not needed to cancel");

  const back = await start(using, { plugins });
  const { status, result } = await dataOf(await back.post(`${path}/resume`, { resumeData: { n: 1 } }));
  assert.deepEqual([status, result], ["completed", { n: 2 }]);
});

test("POST .../resume: what came from the environment is not in the store; it is looked up anew, and named when it is gone", async (t) => {
  const { folder, start } = await restarts(t);
  const plugins = [pluginFolder(t, { "steps/mine.mjs": ADD_ONE })];
  const secret = "hunter2-hunter2";
  const workflows = {
    // biome-ignore lint/suspicious/noTemplateCurlyInString: the environment is meant
    w: { steps: [ASK, { id: "mine", andThen: { use: "mine", with: { token: "Bearer ${TOKEN}" } } }] },
  };
  const first = await start(workflows, { plugins, env: { TOKEN: secret } });
  const [id, other] = [await suspendedId(first), await suspendedId(first)];
  await dataOf(await first.post(`/workflows/w/executions/${other}/resume`, { resumeData: {} }));
  const names = await readdir(folder);
  assert.ok(names.includes("test.db"));
  for (const name of names) {
    const bytes = await readFile(join(folder, name));
    assert.equal(bytes.includes(secret), false, `${name} holds the secret`);
  }

  const without = await start({ w: { steps: [ASK] } }, { plugins, env: {} });
  const refused = await without.post(`/workflows/w/executions/${id}/resume`, {});
  assert.equal(refused.status, 503);
  assert.match(((await refused.json()) as Loose).error, /environment variable "TOKEN"/);

  const third = await start({ w: { steps: [ASK] } }, { plugins, env: { TOKEN: "1234" } });
  const { result } = await dataOf(await third.post(`/workflows/w/executions/${id}/resume`, {}));
  assert.equal(result.length, "Bearer 1234".length);
});

/** `pause` waits while the world does; it counts how often it runs. */
const world = { open: Promise.resolve() as Promise<unknown>, runs: 0 };
(globalThis as { penstockWorld?: typeof world }).penstockWorld = world;
const PAUSE = {
  "steps/pause.mjs": `export default { kind: "step", execute: async ({ data }) => {
    globalThis.penstockWorld.runs++; await globalThis.penstockWorld.open; return data; } };`,
};

/** A process that dies while `pause` runs, and its store. */
async function diedWhilePausing(t: TestContext, workflow: object, commits = 1) {
  const store = createMemoryStore();
  const start = await processesOf(t, { workflows: { w: workflow } }, { plugins: PAUSE });
  const cutting = cutStore(store, "sqlite");
  const dying = await start(cutting);
  world.open = new Promise(() => {});
  world.runs = 0;
  cutting.arm(commits);
  dying.access.execute("w", { input: { a: 1 }, options: { executionId: "e" } }, CALL).catch(() => {});
  while (world.runs === 0) await new Promise((resolve) => setImmediate(resolve));
  return { store, start, restart: () => start(cutStore(store, "sqlite")) };
}

test("recovery: fail ends what was running with status error, naming the step; it can be replayed", async (t) => {
  const steps = [
    { id: "first", andThen: { set: { b: 2 } } },
    { id: "inside", andWhen: { if: "true", then: { id: "held", andThen: { use: "pause" } } } },
  ];
  const { restart } = await diedWhilePausing(t, { recovery: "fail", steps });
  world.open = Promise.resolve();
  const { access, opened } = await restart();
  await opened.engine.live.get("e")?.settled;
  const state = await access.state("w", "e");
  assert.deepEqual(
    [state.status, state.error],
    ["error", { message: "interrupted: the process ended while it ran", stepId: "held" }],
  );
  assert.equal(world.runs, 1, "it was not run again");
  const [record] = JSON.parse(await (await access.executions({ limit: 1, offset: 0 })).whole());
  assert.deepEqual(
    record.events.map(({ from, status }: Loose) => [from, status]),
    [
      ["w", "running"],
      ["first", "success"],
      ["inside", "error"],
      ["held", "error"],
      ["w", "error"],
    ],
  );
  const replayed = JSON.parse((await access.replay("w", "e", { stepId: "held" }, CALL)).json);
  assert.deepEqual([replayed.status, replayed.result], ["completed", { b: 2 }]);
});

test("recovery: resume, the default, runs the step that was in flight again", async (t) => {
  const { restart } = await diedWhilePausing(t, { steps: [{ id: "only", andThen: { use: "pause" } }] });
  world.open = Promise.resolve();
  const { access, opened } = await restart();
  await opened.engine.live.get("e")?.settled;
  assert.equal((await access.state("w", "e")).status, "completed");
  assert.equal(world.runs, 2);
});

test("an execution that kills its process is taken up three times without progress, then ends with an error that says so", async (t) => {
  const steps = [
    { id: "first", andThen: { use: "pause" } },
    { id: "deadly", andThen: { use: "pause" } },
  ];
  const { store, start } = await diedWhilePausing(t, { steps }, 1);
  const dies = async (runs: number) => {
    const cutting = cutStore(store, "sqlite");
    await start(cutting);
    await until(() => world.runs === runs, `run ${runs}`);
    cutting.arm(0);
  };
  for (const runs of [2, 3]) await dies(runs);
  // The first step is done now, so that the count begins anew.
  const through = cutStore(store, "sqlite");
  let go = (_value: unknown) => {};
  world.open = new Promise((resolve) => {
    go = resolve;
  });
  await start(through);
  await until(() => world.runs === 4, "the first step");
  world.open = new Promise(() => {});
  go(null);
  await until(() => world.runs === 5, "the second step");
  through.arm(0);
  for (const runs of [6, 7, 8]) await dies(runs);

  const { access, opened } = await start(cutStore(store, "sqlite"));
  await opened.engine.live.get("e")?.settled;
  const { status, error } = await access.state("w", "e");
  assert.deepEqual([status, error], ["error", { message: "stopped its process 4 times", stepId: "deadly" }]);
  assert.equal(world.runs, 8, "it was not run again");
  await opened.close();
});

test("recoveries: a process that stops cleanly does not count, so that restarts never end an execution", async (t) => {
  const { store, start } = await diedWhilePausing(t, {
    recoveries: 1,
    steps: [{ id: "only", andThen: { use: "pause" } }],
  });
  for (let runs = 2; runs < 7; runs++) {
    const { opened } = await start(cutStore(store, "sqlite"));
    await until(() => world.runs === runs, `run ${runs}`);
    await opened.close();
  }
  const cutting = cutStore(store, "sqlite");
  await start(cutting);
  await until(() => world.runs === 7, "the last clean start");
  cutting.arm(0);
  // Its process was killed once since: that is as often as the manifest lets it.
  world.open = Promise.resolve();
  const { access, opened } = await start(cutStore(store, "sqlite"));
  await opened.engine.live.get("e")?.settled;
  assert.equal((await access.state("w", "e")).status, "completed");
});

test("POST .../resume beside a timer whose process is killed: before it the step waits on, after it the answer stands", async (t) => {
  const branches = [
    [
      { id: "ask", andThen: { suspend: { reason: "Yes?" } } },
      { id: "slow", andThen: { use: "pause" } },
    ],
    { id: "timer", andThen: { use: "pause" } },
  ];
  const { store, start } = await diedWhilePausing(t, { steps: [{ id: "race", andRace: branches }] }, 1);
  const cutting = cutStore(store, "sqlite");
  const second = await start(cutting);
  await until(() => world.runs === 2, "the timer after the restart");
  const state = await second.access.state("w", "e");
  assert.deepEqual([state.status, state.suspension?.stepId], ["running", "ask"]);
  const answer = { resumeData: { ok: 1 }, options: { stepId: "ask" } };
  second.access.resume("w", "e", answer, CALL).catch(() => {});
  await until(() => world.runs === 3, "the step behind the answer");
  cutting.arm(0);

  world.open = Promise.resolve();
  const third = await start(cutStore(store, "sqlite"));
  await third.opened.engine.live.get("e")?.settled;
  const { steps } = (await loadExecution(store, (await findExecution(store, "e"))!))!.state;
  assert.deepEqual([steps.get("ask")?.status, (await third.access.state("w", "e")).status], ["done", "completed"]);
});

test("an execution that ran when its plugin went rests as suspended, says why, and goes on when it is back", async (t) => {
  const { store, start } = await diedWhilePausing(t, { steps: [{ id: "only", andThen: { use: "pause" } }] });
  const without = await processesOf(t, { workflows: { w: { steps: [ASK] } } });
  const { access, opened } = await without(cutStore(store, "sqlite"));
  await opened.engine.live.get("e")?.settled;
  const state = await access.state("w", "e");
  assert.equal(state.status, "suspended");
  assert.match(state.suspension!.reason, /step plugin "pause"/);
  await assert.rejects(access.resume("w", "e", {}, CALL), /step plugin "pause"/);
  await opened.close();

  world.open = Promise.resolve();
  const back = await start(cutStore(store, "sqlite"));
  const { status, result } = JSON.parse((await back.access.resume("w", "e", {}, CALL)).json);
  assert.deepEqual([status, result], ["completed", { a: 1 }]);
});

test("what one branch of andAll gave is on disk while another one still runs", async (t) => {
  const steps = [
    {
      id: "both",
      andAll: [
        { id: "long", andThen: { use: "pause" } },
        { id: "short", andThen: { use: "add-tax" } },
      ],
    },
  ];
  const store = createMemoryStore();
  const start = await processesOf(t, { workflows: { w: { steps } } }, { plugins: PAUSE });
  const { access, opened } = await start(cutStore(store, "sqlite"));
  let go = (_value: unknown) => {};
  world.open = new Promise((resolve) => {
    go = resolve;
  });
  const executed = access.execute("w", { input: { amount: 1 }, options: { executionId: "e" } }, CALL);
  const onDisk = async () => {
    for (;;) {
      const found = await findExecution(store, "e");
      const loaded = found === null ? null : await loadExecution(store, found);
      if (loaded?.state.steps.get("short")?.status === "done") return;
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  };
  await soon(onDisk(), "the entry of the short branch");
  go(null);
  assert.equal(JSON.parse((await executed).json).status, "completed");
  await opened.close();
});

test("an execution of 1,000 steps costs 1,000 appends that do not grow, and one record", async (t) => {
  const steps = Array.from({ length: 1000 }, (_, index) => ({ id: `s${index}`, andThen: { use: "pause" } }));
  const start = await processesOf(t, { workflows: { w: { steps } } }, { plugins: PAUSE });
  const store = cutStore(createMemoryStore(), "sqlite");
  const { access, opened } = await start(store);
  world.open = Promise.resolve();
  store.arm(Number.POSITIVE_INFINITY);
  const { status } = JSON.parse((await access.execute("w", { input: { text: "x".repeat(100) } }, CALL)).json);
  assert.equal(status, "completed");
  assert.equal(store.commits.length, 1001);
  const sizes = store.commits.map(({ put = [] }) =>
    put.reduce((sum, [key, value]) => sum + key.length + value.length, 0),
  );
  const appends = sizes.slice(1, -1);
  assert.ok(Math.max(...appends) < 400, `${Math.max(...appends)} bytes in one append`);
  const [early, late] = [appends.slice(0, 100), appends.slice(-100)].map((part) =>
    part.reduce((sum, size) => sum + size, 0),
  );
  assert.ok(late! < early! * 1.2, `${late} bytes for the last hundred, ${early} for the first`);
  assert.ok(sizes.at(-1)! < 600 * 1000, `${sizes.at(-1)} bytes for the record`);
  await opened.close();
});

test("steps that only compute ride along: 1,000 of them are one commit", async (t) => {
  const steps = Array.from({ length: 1000 }, (_, index) => ({
    id: `s${index}`,
    andThen: { set: { n: "{{ data.n + 1 }}" } },
  }));
  const start = await processesOf(t, { workflows: { w: { steps } } });
  const store = cutStore(createMemoryStore(), "sqlite");
  const { access, opened } = await start(store);
  store.arm(Number.POSITIVE_INFINITY);
  const { result } = JSON.parse((await access.execute("w", { input: { n: 0 } }, CALL)).json);
  assert.deepEqual(result, { n: 1000 });
  assert.equal(store.commits.length, 1);
  await opened.close();
});

test("a restart in the pause between two tries does not cut it short, nor does it give the try again", async (t) => {
  const { folder, start } = await restarts(t);
  const tries = join(folder, "tries");
  const failing = `import { appendFileSync, readFileSync } from "node:fs";
    export default { kind: "step", execute: ({ attempt }) => {
      appendFileSync(${JSON.stringify(tries)}, \`\${attempt} \${Date.now()}\\n\`);
      if (readFileSync(${JSON.stringify(tries)}, "utf8").split("\\n").length === 2) throw new Error("not yet");
      return { attempt };
    } };`;
  const plugins = [pluginFolder(t, { "steps/flaky.mjs": failing })];
  const flaky = { id: "flaky", retry: { attempts: 1, delay: "2s", backoff: "fixed" }, andThen: { use: "flaky" } };
  const holder = {
    id: "held",
    retry: { attempts: 1, delay: "2s", backoff: "fixed" },
    andAll: [{ ...flaky, retry: { attempts: 0 } }],
  };
  for (const step of [flaky, holder]) {
    await writeFile(tries, "");
    const begun = async () => (await readFile(tries, "utf8")).trim().split("\n").filter(Boolean);
    const first = await start({ w: { steps: [step] } }, { plugins });
    const body = { input: {}, options: { executionId: `pause-${step.id}` } };
    first.post("/workflows/w/execute", body).catch(() => {});
    while ((await begun()).length === 0) await sleep(10);
    // The failure of the first try has to be on disk: what is killed before tries again, as it should.
    await until(async () => {
      const found = await findExecution(first.service.store, `pause-${step.id}`);
      const loaded = found === null ? null : await loadExecution(first.service.store, found);
      return (loaded?.state.steps.get(step.id)?.tries ?? 0) > 0;
    }, "the failure of the first try");
    const second = await start({ w: { steps: [step] } }, { plugins });
    const record = async () => dataOf(await second.get(`/workflows/w/executions/pause-${step.id}/state`));
    while ((await record()).status === "running") await sleep(50);
    assert.equal((await record()).status, "completed");
    const times = (await begun()).map((line) => line.split(" ").map(Number) as [number, number]);
    assert.equal(times.length, 2);
    // When it is due is stored by the clock of the system, which may be set a little meanwhile.
    assert.ok(times[1]![1] - times[0]![1] >= 1_850, `the second try came after ${times[1]![1] - times[0]![1]} ms`);
  }
});
