/**
 * Writes test/fixtures/stores/simulated.json: what an earlier release left in PostgreSQL as all its processes were killed, amid what
 * clients of a simulation do. The service is that of manifest.ts, served by a checkout of the earlier release:
 *
 *     git worktree add --detach /tmp/earlier 0bf679ff && (cd /tmp/earlier && npm ci)
 *     node --import tsx test/simulate/earlier-write.ts /tmp/earlier
 */
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { everyRow } from "../../core/storage/all-keys.ts";
import { LAYOUT_VERSION } from "../../core/storage/layout.ts";
import { openPostgresStore } from "../../core/storage/postgres-store.ts";
import { startPostgres } from "../support/postgres.ts";
import { silent } from "../support/providers.ts";
import type { Earlier, Left } from "./earlier.ts";
import { manifestText } from "./manifest.ts";

// biome-ignore lint/suspicious/noExplicitAny: replies of many shapes
type Loose = any;

const CONSOLE = "the-key-of-the-console";
const PATIENCE_MS = 20_000;
const checkout = resolve(process.argv[2]!);
const folder = join(checkout, "simulated");
const effectsFile = join(folder, "effects");
const postgres = (await startPostgres())!;
const url = await postgres.createDatabase();

// A call whose text says that it is held, and a step of an execution whose id names it, do not end before their process.
const common = `
import { appendFileSync } from "node:fs";
const effect = (...told) => appendFileSync(${JSON.stringify(effectsFile)}, JSON.stringify(told) + "\\n");
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
export { effect, pause };
`;
const tool = (name: string, more: string) => `
import { defineTool } from "#plugin";
import { effect, pause } from "../../common.mjs";
export default defineTool({
  description: "Does ${name}",
  parameters: {
    type: "object",
    properties: { what: { type: "string" }, milliseconds: { type: "number" } },
    required: ["what"],
    additionalProperties: false,
  },
  ${more}
  async execute({ what }, call) {
    effect("${name} begins", what, call.idempotencyKey);
    await pause(what.includes("held-${name}") ? 3_600_000 : 50);
    effect("${name}", what, call.idempotencyKey);
    return { done: what };
  },
});
`;
const FILES: Record<string, string> = {
  "common.mjs": common,
  "plugins/tools/act.ts": tool("act", ""),
  "plugins/tools/pay.ts": tool("pay", 'approval: true, expires: "10m",'),
  "plugins/steps/act.ts": `
import { defineStep } from "#plugin";
import { effect, pause } from "../../common.mjs";
export default defineStep({
  async execute({ config, executionId, idempotencyKey, attempt, input }) {
    effect(config.name + " begins", executionId, idempotencyKey);
    await pause(executionId.includes("held-" + config.name) ? 3_600_000 : 50);
    effect(config.name, executionId, idempotencyKey);
    if (attempt <= (config.fails ?? 0)) throw new Error("it fails at first");
    return { ...input, [config.name]: true };
  },
});
`,
  "plugins/auth/names.ts": `
import { defineAuth } from "#plugin";
export default defineAuth({
  create: () => ({ type: "names", verifyToken: async (token) => (token.startsWith("user-") ? { id: token } : null) }),
});
`,
};

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  server.close();
  return port;
}

/** A process of the earlier release. */
async function serve() {
  const port = await freePort();
  const manifest = JSON.parse(manifestText());
  manifest.store = url;
  manifest.server = { ...manifest.server, port, host: "127.0.0.1" };
  const config = join(folder, `service-${port}.yaml`);
  writeFileSync(config, JSON.stringify(manifest));
  const child = spawn(process.execPath, ["core/penstock.js", "serve", "--config", config], {
    cwd: checkout,
    env: { ...process.env, SERVICE_CONSOLE_ACCESS_KEY: CONSOLE },
    stdio: ["ignore", "inherit", "inherit"],
  });
  process.on("exit", () => child.kill("SIGKILL"));
  const base = `http://127.0.0.1:${port}`;
  for (;;) {
    if (child.exitCode !== null) throw new Error("a process does not start");
    if (
      await fetch(`${base}/readyz`).then(
        (reply) => reply.ok,
        () => false,
      )
    )
      break;
    await sleep(100);
  }
  return {
    child,
    async ask(path: string, user: string, body?: unknown, headers: Record<string, string> = {}): Promise<Loose> {
      const reply = await fetch(base + path, {
        method: body === undefined ? "GET" : "POST",
        headers: { authorization: `Bearer ${user}`, "content-type": "application/json", ...headers },
        ...(body !== undefined && { body: JSON.stringify(body) }),
      });
      const json = (await reply.json()) as Loose;
      return { status: reply.status, approval: reply.headers.get("x-approval-id"), json, data: json.data };
    },
  };
}
type Served = Awaited<ReturnType<typeof serve>>;

async function until<T>(what: string, look: () => Promise<T | undefined | false>): Promise<T> {
  const end = Date.now() + PATIENCE_MS;
  while (Date.now() < end) {
    const found = await look();
    if (found) return found;
    await sleep(50);
  }
  throw new Error(`${what} does not come`);
}

const run = (service: Served, { key, user, choice }: Left, headers: Record<string, string> = {}) =>
  service.ask(
    "/agents/worker/text",
    user,
    { input: `${choice} ${key}`, options: { background: true, runId: key } },
    headers,
  );
const execute = (service: Served, { key, user, choice }: Left) =>
  service.ask(`/workflows/${choice}/execute`, user, {
    input: { what: key },
    options: { executionId: key, background: true },
  });
const rpc = (service: Served, user: string, method: string, params: object) =>
  service.ask("/a2a/worker", user, { jsonrpc: "2.0", id: 1, method, params }, { "a2a-version": "1.0" });
const send = async (service: Served, { key, user, choice }: Left) => {
  const message = { messageId: key, role: "ROLE_USER", parts: [{ text: `${choice} ${key}` }] };
  const configuration = { returnImmediately: true };
  const { json } = await rpc(service, user, "SendMessage", { message, configuration });
  if (json.result === undefined) throw new Error(JSON.stringify(json));
};
const turn = (service: Served, { key, user }: Left, input: string) =>
  service.ask(
    "/agents/friend/text",
    user,
    { input, options: { memory: { conversationId: key, userId: user } } },
    { "idempotency-key": input.replaceAll(" ", "-") },
  );
const question = (service: Served, { key, user }: Left): Promise<string> =>
  until(`the question of ${key}`, async () => {
    const { data } = await service.ask("/approvals?limit=100", user);
    return data.find(({ input, status }: Loose) => input.what === key && status === "open")?.approvalId;
  });
const answer = (service: Served, one: Left, id: string, approved = true) =>
  service.ask(`/approvals/${id}`, one.user, { approved });
const begins = (kind: string, key: string) =>
  until(`${kind} of ${key}`, async () =>
    readFileSync(effectsFile, "utf8").includes(JSON.stringify([`${kind} begins`, key]).slice(0, -1)),
  );
const state = (service: Served, { key, user, choice }: Left, status: string) =>
  until(`${status} of ${key}`, async () => {
    const { data } = await service.ask(`/workflows/${choice}/executions/${key}/state?userId=${user}`, user, undefined, {
      "x-console-access-key": CONSOLE,
    });
    return data?.status === status;
  });

const [one, two] = ["user-1", "user-2"];
const left: Left[] = [];
const leave = (does: Left["does"], key: string, user: string, choice: string, more: Partial<Left> = {}): Left => {
  const thing = { does, key: `earlier-${key}`, user, choice, ...more };
  left.push(thing);
  return thing;
};

rmSync(folder, { recursive: true, force: true });
for (const [path, text] of Object.entries(FILES)) {
  mkdirSync(join(folder, path, ".."), { recursive: true });
  writeFileSync(join(folder, path), text);
}
writeFileSync(effectsFile, "");
const a = await serve();
const b = await serve();

// What has ended.
const done = leave("run", "done", one, "act");
await run(a, done, { "idempotency-key": done.key });
await begins("act", done.key);
const taskDone = leave("task", "task-done", two, "act");
await send(a, taskDone);
const called = leave("once", "called", one, "act");
await a.ask(
  "/tools/act/execute",
  one,
  { input: { what: called.key, milliseconds: 400 } },
  { "idempotency-key": called.key },
);
const talk = leave("talk", "talk", one, "");
for (const at of [0, 1]) await turn(a, talk, `hello ${talk.key} ${at}`);

// What waits for a person.
const waits = leave("run", "waits", one, "pay");
await run(a, waits, { "idempotency-key": waits.key });
const both = leave("run", "both", two, "both");
await run(b, both);
const taskWaits = leave("task", "task-waits", one, "pay");
await send(a, taskWaits);
const taskBoth = leave("task", "task-both", two, "both");
await send(a, taskBoth);
const direct = leave("direct", "direct", one, "pay");
await a.ask("/tools/pay/execute", one, { input: { what: direct.key } });
const chain = leave("workflow", "chain", two, "chain");
await execute(a, chain);
const paying = leave("workflow", "paying", one, "paying");
await execute(b, paying);
const asking = leave("workflow", "asking", two, "asking");
await execute(b, asking);
for (const asked of [waits, both, taskWaits, taskBoth, direct, paying, asking]) await question(a, asked);
await state(a, chain, "suspended");

// What is at work: in a process that stands still and is asked to end it, and in one that works.
const cancelled = leave("run", "cancelled-held-act", one, "act", { isCancelled: true });
await run(a, cancelled);
await begins("act", cancelled.key);
const long = leave("cancel", "long-held-long", one, "");
await execute(a, { ...long, choice: "long" });
await begins("long", long.key);
const held = leave("run", "held-act", two, "act");
await run(a, held);
await begins("act", held.key);
const taskHeld = leave("task", "task-held-act", one, "act", { isLost: true });
await send(a, taskHeld);
await begins("act", taskHeld.key);
const approved = leave("run", "approved-held-pay", one, "pay", { approved: true });
await run(b, approved);
await answer(b, approved, await question(b, approved));
await begins("pay", approved.key);
const taskApproved = leave("task", "task-approved-held-pay", two, "pay", { isLost: true });
await send(b, taskApproved);
await answer(b, taskApproved, await question(b, taskApproved));
await begins("pay", taskApproved.key);
const stepApproved = leave("workflow", "paying-held-after", one, "paying", { approved: true });
await execute(b, stepApproved);
await answer(b, stepApproved, await question(b, stepApproved));
await begins("after", stepApproved.key);
const resumed = leave("workflow", "chain-held-three", one, "chain", { approved: true });
await execute(b, resumed);
await state(b, resumed, "suspended");
// It answers once the step has ended.
const resume = { resumeData: {}, options: { stepId: "ask" } };
void b.ask(`/workflows/chain/executions/${resumed.key}/resume`, one, resume).catch(() => {});
await begins("three", resumed.key);
const calling = leave("once", "calling-held-act", two, "act");
const body = { input: { what: calling.key, milliseconds: 400 } };
void b.ask("/tools/act/execute", two, body, { "idempotency-key": calling.key }).catch(() => {});
await begins("act", calling.key);
const turnHeld = leave("talk", "talk-held", two, "");
await turn(a, turnHeld, `hello ${turnHeld.key} 0`);
void turn(a, turnHeld, `act ${turnHeld.key}-held-act`).catch(() => {});
await begins("act", `${turnHeld.key}-held-act`);
const answered = leave("run", "answered", two, "pay");
await run(b, answered);
const stepAnswered = leave("workflow", "paying-answered", two, "paying");
await execute(b, stepAnswered);
const questions: (readonly [Left, string])[] = [];
for (const asked of [answered, stepAnswered]) questions.push([asked, await question(b, asked)]);
// Histories have what runs for some seconds.
await sleep(6_000);
const sleeping = leave("workflow", "chain-sleeping", two, "chain");
await execute(b, sleeping);
await begins("two", sleeping.key);
await sleep(300);
a.child.kill("SIGSTOP");
void b.ask(`/agents/worker/runs/${cancelled.key}/cancel`, one, {}).catch(() => {});
await sleep(500);
await Promise.race([sleep(2_000), ...questions.map(([asked, id]) => answer(b, asked, id))]);
for (const { child } of [a, b]) child.kill("SIGKILL");
const written = Date.now();
await sleep(200);

const store = await openPostgresStore(url, { logger: silent });
const rows: [string, string][] = [];
for await (const { key, value } of everyRow(store)) rows.push([key, value]);
await store.close();
for (const thing of [answered, stepAnswered]) {
  const found = rows.find(([key, value]) => key.startsWith("ap/") && JSON.parse(value).input.what === thing.key);
  const { status } = JSON.parse(found![1]);
  if (status !== "open") Object.assign(thing, { approved: status === "approved" });
}
const effects = readFileSync(effectsFile, "utf8")
  .split("\n")
  .filter((line) => line !== "")
  .map((line) => JSON.parse(line));
const release = execFileSync("git", ["rev-parse", "--short=8", "HEAD"], { cwd: checkout, encoding: "utf8" }).trim();
const whole: Earlier = { release, schema: LAYOUT_VERSION, written, left, effects, rows };
const lines = (list: readonly unknown[]) => `[\n${list.map((each) => JSON.stringify(each)).join(",\n")}\n]`;
writeFileSync(
  "test/fixtures/stores/simulated.json",
  `{"release":"${release}","schema":${LAYOUT_VERSION},"written":${written},"left":${lines(whole.left)},"effects":${lines(effects)},"rows":${lines(rows)}}\n`,
);
await postgres.close();
rmSync(folder, { recursive: true });
console.log(`${rows.length} rows`);
process.exit(0);
