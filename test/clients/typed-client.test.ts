/** The client that `penstock client` writes: its types in a strict project, and its calls of a running service. */
import assert from "node:assert/strict";
import { copyFileSync, mkdtempSync, readFileSync, realpathSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { pathToFileURL } from "node:url";
import { client } from "../../core/command/client.ts";
import { PAY_PLUGIN, ran } from "../support/approvals.ts";
import { penstock, ROOT } from "../support/command-line.ts";
import { heldModel } from "../support/held-model.ts";
import { EXAMPLES, pluginFolder } from "../support/plugin-folder.ts";
import { until } from "../support/probe.ts";
import type { Loose } from "../support/served-upstream.ts";
import { manifestWith, startService } from "../support/service.ts";
import { typeErrors } from "../support/type-errors.ts";

const objectOf = (properties: object, more: object = {}) => ({
  type: "object",
  properties,
  required: Object.keys(properties),
  ...more,
});
const text = { type: "string" };
const amount = { type: "number", description: "In EUR: */ and `this` stay in the comment" };

const TOOLS = {
  sum: { use: "add" },
  pay: { use: "pay", approval: true },
  "look:up": {
    description: "Finds a place",
    parameters: {
      ...objectOf({ at: { $ref: "#/$defs/place" }, unit: { enum: ["km", "mile"] } }),
      $defs: { place: objectOf({ city: text, within: { $ref: "#/$defs/place" } }, { required: ["city"] }) },
    },
    http: { url: "http://127.0.0.1:9/{{ input.at.city }}" },
  },
};
const WORKFLOWS = {
  order: {
    input: objectOf({ item: text, amount }),
    result: objectOf({ total: { type: "number" }, approved: { type: "boolean" } }),
    resume: objectOf({ approved: { type: "boolean" } }),
    steps: [
      { id: "ask", andThen: { suspend: { reason: "Is it right?" } } },
      { id: "end", andThen: { set: { total: "{{ input.amount }}", approved: "{{ steps.ask.approved }}" } } },
    ],
  },
  payment: {
    result: objectOf({ paid: { type: "number" } }),
    steps: [{ id: "pay", andThen: { tool: "pay", input: { amount: 7 } } }],
  },
  letter: {
    steps: [
      { id: "begin", andThen: { set: { begun: true } } },
      { id: "write", andAgent: { agent: "slow", prompt: "Write" } },
    ],
  },
  broken: { steps: [{ id: "fail", andThen: { use: "missing-order" } }] },
};
const FAIL = `export default { kind: "step", name: "missing-order", execute: () => { throw new Error("no such order"); } };`;

const hooks = { after };
const folder = realpathSync(mkdtempSync(join(tmpdir(), "penstock-client-")));
after(() => rmSync(folder, { recursive: true, force: true }));
symlinkSync(join(ROOT, "node_modules"), join(folder, "node_modules"));
writeFileSync(join(folder, "package.json"), '{ "type": "module" }');

const held = heldModel(hooks);
const own = pluginFolder(hooks as never, { ...PAY_PLUGIN, "steps/missing-order.mjs": FAIL });
const replies = [
  { when: "busy", error: "unavailable" },
  { when: "who", text: '{"name":"Ada"}' },
];
const providers = { demo: { use: "scripted", replies }, held: held.settings };
const manifest = manifestWith(
  { tools: ["sum"] },
  { name: "Shop */ `x`", tools: TOOLS, workflows: WORKFLOWS, providers },
);
const slow = { name: "Slow", description: "Waits", instructions: "Wait.", model: "held/model", memory: false };
Object.assign(manifest.agents as object, { slow });
// Nobody listens there: what tools that server has is known while the service runs.
const mcp = { clients: { github: { url: "http://127.0.0.1:9/mcp" } } };
const config = join(folder, "service.yaml");
writeFileSync(config, JSON.stringify({ ...manifest, mcp }));

const file = join(folder, "src/service.ts");
const plugins = [EXAMPLES, own, held.plugins];
const call = (args: string[]) =>
  penstock(["client", ...plugins.flatMap((each) => ["--plugins", each]), ...args], { cwd: folder });
const written = await call(["--out", file]);
assert.deepEqual([written.code, written.stderr], [0, ""]);
assert.match(written.stdout, /npm install openapi-fetch/);
const service = await startService(hooks, manifest, { plugins: [own, held.plugins] });
const module: Loose = await import(pathToFileURL(file).href);

const connect = (options: object = {}): Loose => module.createClient({ baseUrl: service.url, ...options });

test("penstock client --out writes one file with one import, and --check finds it to be that of the manifest, or another", async () => {
  const first = readFileSync(file, "utf8");
  assert.deepEqual(first.match(/^import .*$/gm), ['import createFetchClient from "openapi-fetch";']);
  const compare = (out: string) => client({ config, plugins, rest: [], checkOnly: true, out });
  assert.equal(await compare(file), 0, "the same bytes are made again");
  assert.equal(await compare(join(folder, "none.ts")), 1);
  const other = join(folder, "other.ts");
  writeFileSync(other, first.replace('"slow"', '"fast"'));
  const changed = await call(["--check", "--out", other]);
  assert.equal(changed.code, 1);
  assert.equal(
    changed.stderr,
    `${other} is not the client of service.yaml: write it with penstock client --out ${other}\n`,
  );
});

test("penstock client: a package that is missing and a file of somebody else are said, and nothing is written", async (t) => {
  const bare = realpathSync(mkdtempSync(join(tmpdir(), "penstock-bare-")));
  t.after(() => rmSync(bare, { recursive: true, force: true }));
  const precious = join(folder, "own.ts");
  writeFileSync(precious, "export const precious = 1;\n");
  const [missing, foreign, inFolder] = await Promise.all([
    penstock(["client"], { cwd: bare }),
    call(["--out", precious]),
    call(["--out", folder]),
  ]);
  assert.deepEqual(
    [inFolder.code, inFolder.stderr],
    [1, `penstock: ${folder}: this is a folder: name the file in it\n`],
  );
  assert.deepEqual([missing.code, missing.stdout], [1, ""]);
  assert.equal(
    missing.stderr,
    `penstock: the command client needs the package openapi-typescript, which is not installed in ${bare}: npm install --save-dev openapi-typescript@7 typescript@5\n`,
  );
  assert.deepEqual([foreign.code, readFileSync(precious, "utf8")], [1, "export const precious = 1;\n"]);
  assert.match(foreign.stderr, /own\.ts is not a client that this command has written/);
});

test("penstock client: the file and its right uses have no errors in a strict project for browsers, and its wrong uses are errors", () => {
  const uses = join(folder, "src/uses.ts");
  copyFileSync(new URL("./typed-client-uses.ts.txt", import.meta.url), uses);
  assert.deepEqual(typeErrors([uses], { lib: ["lib.es2022.d.ts", "lib.dom.d.ts"], types: [] }), []);
});

test("typed client: text, object and tool give the data, and what is refused is thrown with its code and body", async () => {
  const client = connect();
  const answer = await client.agent("assistant").text({ input: "Hello" });
  assert.deepEqual([answer.text, answer.finishReason], ["Hello", "stop"]);
  const { result, toolName } = await client.tool("sum").execute({ a: 2, b: 3 });
  assert.deepEqual([result, toolName], [{ sum: 5 }, "sum"]);
  const page = await module
    .unwrap(client.api.GET("/api/memory/conversations", { params: { query: { limit: 1 } } }))
    .catch((error: unknown) => error);
  assert.ok(page instanceof module.PenstockError, "there is no memory");
  const refused = await client
    .tool("sum")
    .execute({ a: "2", b: 3 })
    .catch((error: unknown) => error);
  assert.ok(refused instanceof module.PenstockError);
  assert.deepEqual([refused.status, refused.code, refused.source], [400, "invalid_input", "service"]);
  assert.deepEqual(refused.body, { success: false, error: refused.message });
  assert.ok(refused.requestId);
  const nobody = await collect(client.agent("nobody").stream({ input: "Hello" })).catch((error: unknown) => error);
  assert.deepEqual([(nobody as Loose).status, (nobody as Loose).code], [404, "not_found"]);
});

test("typed client: the base URL may end with a slash, and token, headers and fetch are the caller's", async () => {
  const sent: (string | null)[][] = [];
  let asked = 0;
  const client = connect({
    baseUrl: `${service.url}/`,
    token: async () => `token-${++asked}`,
    headers: { "x-shop": "north" },
    fetch: (request: Request) => {
      sent.push(["authorization", "x-shop", "x-request-id"].map((name) => request.headers.get(name)));
      return fetch(request);
    },
  });
  await client.agent("assistant").text({ input: "Hi" });
  await client.agent("assistant").text({ input: "Hi" }, { headers: { "x-request-id": "mine-1" } });
  assert.deepEqual(sent, [
    ["Bearer token-1", "north", null],
    ["Bearer token-2", "north", "mine-1"],
  ]);
});

test("typed client: an Idempotency-Key makes a call that is sent again the same one", async () => {
  const client = connect();
  const request = { input: { item: "desk", amount: 1 } };
  const key = { idempotencyKey: "order-of-the-desk" };
  const [first, second] = [
    await client.workflow("order").execute(request, key),
    await client.workflow("order").execute(request, key),
  ];
  assert.deepEqual(first, second);
});

test("typed client: an agent's stream gives its parts one by one, and may be read once", async () => {
  const stream = connect().agent("assistant").stream({ input: "One two three" });
  const parts = await collect(stream);
  assert.deepEqual([parts[0]!.type, parts.at(-1)!.type], ["start", "finish"]);
  const deltas = parts.filter(({ type }) => type === "text-delta").map(({ delta }) => delta);
  assert.equal(deltas.join(""), "One two three");
  assert.equal(stream.lastEventId, parts.length);
  await assert.rejects(collect(stream), /read once/);
  const chunks = await collect(connect().agent("assistant").chat({ input: "One" }));
  assert.deepEqual([chunks[0]!.type, chunks.at(-1)!.type], ["start", "finish"]);
});

test("typed client: a stream that fails after its beginning throws its last event, and one that never began the reply", async (t) => {
  const early = await collect(connect().agent("assistant").stream({ input: "busy" })).catch((error: unknown) => error);
  assert.ok(early instanceof module.PenstockError);
  assert.deepEqual([(early as Loose).code, (early as Loose).source], ["provider_failed", "provider"]);
  const rest = { providers: { held: held.settings }, server: { limits: { drain: "10ms" } } };
  const stopped = await startService(t, manifestWith({ model: "held/model" }, rest), { plugins: [held.plugins] });
  held.hold("stop");
  const stream = connect({ baseUrl: stopped.url }).agent("assistant").stream({ input: "stop" });
  const types: string[] = [];
  const reading = (async () => {
    for await (const part of stream) {
      types.push(part.type);
      if (part.type === "text-delta") void stopped.stop();
    }
  })();
  const late: Loose = await reading.catch((error: unknown) => error);
  assert.ok(late instanceof module.PenstockError);
  assert.deepEqual([late.code, late.status, late.body], ["stream_failed", 200, { type: "error", error: late.message }]);
  assert.equal(types.at(-1), "text-delta");
});

test("typed client: an object comes whole, and as it grows", async () => {
  const body = { input: "who", schema: objectOf({ name: text }) };
  assert.deepEqual(await connect().agent("assistant").object(body), { name: "Ada" });
  const events = await collect(connect().agent("assistant").streamObject(body));
  assert.deepEqual(
    [events[0].type, events.at(-1).type, events.at(-1).finalObject],
    ["partial", "final", { name: "Ada" }],
  );
});

test("typed client: an agent's stream ends when its signal aborts, and when the reader leaves", async () => {
  held.hold("abort");
  const abort = new AbortController();
  const stream = connect().agent("slow").stream({ input: "abort" }, { signal: abort.signal });
  const said: string[] = [];
  const reading = (async () => {
    for await (const part of stream) {
      if (part.type !== "text-delta") continue;
      said.push(part.delta);
      abort.abort();
    }
  })();
  await assert.rejects(reading, { name: "AbortError" });
  assert.equal(said.length, 1);
  held.hold("leave");
  for await (const part of connect().agent("slow").stream({ input: "leave" })) if (part.type === "text-delta") break;
  const ends = async () => (await connect().agent("slow").history()).entries.map(({ status }: Loose) => status);
  await until(async () => (await ends()).length === 2, "the end of both runs");
  assert.deepEqual(await ends(), ["cancelled", "cancelled"]);
});

test("typed client: a run in the background is followed by its id, from the beginning and behind a number", async () => {
  const agent = connect().agent("assistant");
  const { runId, status } = await agent.start({ input: "In the background" });
  assert.equal(status, "running");
  const stream = agent.run(runId).events();
  const parts = await collect(stream);
  assert.equal(parts.at(-1)!.type, "finish");
  const rest = await collect(agent.run(runId).events({ after: stream.lastEventId - 2 }));
  assert.deepEqual(rest, parts.slice(-2));
  await until(async () => (await agent.run(runId).get()).status === "completed", "the end of the run");
  assert.deepEqual(
    (await agent.runs({ limit: 1 })).map((run: Loose) => run.runId),
    [runId],
  );
});

test("typed client: a workflow's stream waits with the execution, which a resume brings to its typed end", async () => {
  const workflow = connect().workflow("order");
  const events = await collect(workflow.stream({ input: { item: "desk", amount: 250 } }));
  const { type, status, executionId } = events.at(-1)!;
  assert.deepEqual([type, status], ["workflow-result", "suspended"]);
  const execution = workflow.execution(executionId);
  assert.equal((await execution.state()).suspension.stepId, "ask");
  const wrong = await execution.resume({ resumeData: { approved: "yes" } }).catch((error: unknown) => error);
  assert.equal(wrong.code, "invalid_input");
  const end = await execution.resume({ resumeData: { approved: true } });
  assert.deepEqual([end.status, end.result], ["completed", { total: 250, approved: true }]);
  const stream = execution.events({ after: events.length });
  assert.deepEqual((await collect(stream)).at(-1)!.result, end.result);
});

test("typed client: a workflow's stream whose connection breaks goes on behind its last event, without a gap and without a repetition", async () => {
  held.hold("Write");
  const asked: string[] = [];
  let connection = new AbortController();
  const client = connect({
    fetch: (request: Request) => {
      asked.push(`${request.method} ${new URL(request.url).pathname.split("/").at(-1)}${new URL(request.url).search}`);
      connection = new AbortController();
      return fetch(request, { signal: connection.signal });
    },
  });
  const stream = client.workflow("letter").stream({ input: null });
  const seen: Loose[] = [];
  const numbers: number[] = [];
  for await (const event of stream) {
    seen.push(event);
    numbers.push(stream.lastEventId);
    if (event.type !== "step-start" || event.from !== "write") continue;
    // As when the network goes away: what fetch then throws is a TypeError.
    connection.abort(new TypeError("terminated"));
    held.release("Write");
  }
  assert.deepEqual(asked, [
    "POST stream",
    `GET stream?fromSequence=${numbers[seen.findIndex(({ from }) => from === "write")]}`,
  ]);
  const { executionId, status } = seen.at(-1)!;
  assert.equal(status, "completed");
  const whole = connect().workflow("letter").execution(executionId).events();
  assert.deepEqual(seen, await collect(whole));
  assert.equal(numbers.at(-1), whole.lastEventId);
});

test("typed client: a connection that breaks is the reader's error where reconnects is 0", async () => {
  const client = connect({ reconnects: 0, fetch: (request: Request) => fetch(request, { signal: connection.signal }) });
  const connection = new AbortController();
  held.hold("Write");
  const reading = (async () => {
    for await (const event of client.workflow("letter").stream({ input: null }))
      if (event.from === "write") connection.abort(new TypeError("terminated"));
  })();
  await assert.rejects(reading, new TypeError("terminated"));
  held.release("Write");
});

test("typed client: an execution that waits for an approval ends after the answer", async () => {
  const client = connect();
  ran.splice(0);
  const waiting = await client.workflow("payment").execute({ input: {} });
  assert.equal(waiting.status, "suspended");
  const open = await client.approvals.list();
  const asked = open.find(({ executionId }: Loose) => executionId === waiting.executionId);
  assert.deepEqual([asked.toolName, asked.input], ["pay", { amount: 7 }]);
  const answered = await client.approvals.answer(asked.approvalId, { approved: true, reason: "It is right" });
  assert.equal(answered.status, "approved");
  const execution = client.workflow("payment").execution(waiting.executionId);
  await until(async () => (await execution.state()).status === "completed", "the end of the execution");
  const events = await collect(execution.events());
  assert.deepEqual([events.at(-1)!.status, events.at(-1)!.result.paid, ran], ["completed", 7, [7]]);
});

test("typed client: a tool that a person must approve is an error with the id of the approval, and runs with it", async () => {
  const client = connect();
  const asked = await client
    .tool("pay")
    .execute({ amount: 3 })
    .catch((error: unknown) => error);
  assert.deepEqual([asked.status, asked.code], [409, "conflict"]);
  await client.approvals.answer(asked.approvalId, { approved: true });
  const { result } = await client.tool("pay").execute({ amount: 3 }, { approvalId: asked.approvalId });
  assert.equal(result.paid, 3);
});

test("typed client: a step that fails is an error with the execution's id, and an event of its stream", async () => {
  const workflow = connect().workflow("broken");
  const failed = await workflow.execute({ input: 1 }).catch((error: unknown) => error);
  assert.deepEqual([failed.status, failed.code, failed.message], [500, "step_failed", 'step "fail": no such order']);
  assert.equal((await workflow.execution(failed.executionId).state()).status, "error");
  const events = await collect(workflow.stream({ input: 1 }));
  assert.deepEqual([events.at(-1)!.type, events.at(-1)!.status], ["workflow-result", "error"]);
});

async function collect(stream: AsyncIterable<Loose>): Promise<Loose[]> {
  const all: Loose[] = [];
  for await (const each of stream) all.push(each);
  return all;
}
