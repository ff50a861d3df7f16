/** The story of service.yaml, told to the shipped manifest as a reader would: offline, in an empty folder, without a key. */
import assert from "node:assert/strict";
import { copyFile, mkdtemp, readdir, readFile, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { before, test } from "node:test";
import { PENSTOCK, ROOT, type Served, serve } from "./support/command-line.ts";
import { EXAMPLES } from "./support/plugin-folder.ts";
import { onPort } from "./support/ports.ts";
import { dataOf, type Loose } from "./support/served-upstream.ts";
import { parseEvents } from "./support/service.ts";

const MANIFEST = join(ROOT, "service.yaml");
let service: Served;
let cwd: string;
/** Where the manifest is, and with it the store. */
let home: string;

before(async () => {
  cwd = await mkdtemp(join(tmpdir(), "penstock-flagship-"));
  home = await mkdtemp(join(tmpdir(), "penstock-flagship-home-"));
  const config = join(home, "service.yaml");
  await copyFile(MANIFEST, config);
  await symlink(EXAMPLES, join(home, "plugins"));
  // The environment holds PORT, which a tool of the manifest calls, and nothing else of anybody: no key, no proxy.
  service = await onPort((port) =>
    serve({ after: stopLast }, [process.execPath, PENSTOCK, "--config", config], { cwd, env: { PORT: `${port}` } }),
  );
});

/** `serve` stops what it started when a test ends; here that is the last one. */
let stop: () => unknown = () => undefined;
function stopLast(callback: () => unknown): void {
  stop = callback;
}

const post = (path: string, body: unknown) =>
  fetch(service.url + path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });

const ask = (input: string, context?: object): Promise<Loose> =>
  dataOf(post("/agents/support/text", { input, ...(context && { options: { context } }) }));

test("service.yaml serves its agents, tools, workflows and routes on PORT, without a warning", async () => {
  const { stdout } = service;
  assert.match(stdout(), /"Harbour Goods support desk listens on .*: 2 agents, 3 tools, 2 workflows; .*auth none/m);
  assert.doesNotMatch(stdout(), /"level":"warn".*service\.yaml:/);
  const agents = await dataOf(fetch(`${service.url}/agents`));
  assert.deepEqual(
    agents.map(({ id, model, status }: Loose) => [id, model, status]),
    [
      ["support", "demo/echo", "idle"],
      ["writer", "demo/echo", "idle"],
    ],
  );
  assert.deepEqual(await dataOf(fetch(`${service.url}/hello?name=Ada`)), { hello: "Ada" });
});

test("service.yaml: the agent looks an order up, and says so when there is none", async () => {
  const found = await ask("Where is order A-1002?");
  assert.equal(found.text, "Order A-1002, a Standing desk, is shipped.");
  assert.deepEqual(found.toolCalls[0].input, { orderId: "A-1002" });
  assert.equal(found.toolResults[0].output.status, "shipped");
  assert.equal((await ask("And A-9999?")).text, "I find no order A-9999.");
});

test("service.yaml: the REST tool asks the service itself, on the PORT it was given", async () => {
  const { text, toolResults } = await ask("Do you deliver to Lisbon?");
  assert.equal(text, "A parcel takes 4 days to get there.");
  assert.deepEqual([toolResults[0].toolName, toolResults[0].output], ["delivery_days", 4]);
  const direct = await dataOf(post("/tools/delivery_days/execute", { input: { city: "São Paulo/Centro" } }));
  assert.equal(direct.result, 7);
});

test("service.yaml: a customer who collects is not offered the tool for deliveries", async () => {
  const { text, toolResults } = await ask("Do you deliver to Lisbon?", { pickup: true });
  assert.equal(text, "You collect this order, so I cannot tell.");
  assert.deepEqual(toolResults, []);
});

test("service.yaml: a letter is written by the sub-agent", async () => {
  const { text, toolCalls } = await ask("I have a complaint");
  assert.equal(text, "Our writer suggests: Dear customer, we are sorry.");
  assert.equal(toolCalls[0].toolName, "delegate_task");
});

test("service.yaml: when the first model is down, the second of the list answers", async () => {
  assert.match((await ask("Are you busy?")).text, /standing in/);
});

test("service.yaml: hello is answered by a rule, anything else is repeated; a refund has its currency and its limit", async () => {
  assert.match((await ask("Hello!")).text, /^Hello! Ask me about an order/);
  assert.equal((await ask("No rule for this")).text, "No rule for this");
  const refund = await dataOf(post("/tools/refund/execute", { input: { orderId: "A-1001", amount: 49 } }));
  assert.deepEqual([refund.result.amount, refund.result.currency], [49, "EUR"]);
  const refused = await post("/tools/refund/execute", { input: { orderId: "A-1001", amount: 1001 } });
  assert.equal(refused.status, 500);
  assert.match(((await refused.json()) as Loose).error, /at most 1000 EUR/);
});

test("service.yaml: the same answer streams in pieces", async () => {
  const reply = await post("/agents/support/stream", { input: "Where is order A-1002?" });
  const parts = parseEvents(await reply.text()).map(({ data }) => JSON.parse(data));
  const deltas = parts.filter(({ type }) => type === "text-delta").map(({ delta }) => delta);
  assert.ok(deltas.length > 1);
  assert.equal(deltas.join(""), "Order A-1002, a Standing desk, is shipped.");
  assert.equal(parts.at(-1).type, "finish");
});

test("service.yaml: the agent keeps the conversation, and finds it by its meaning", async () => {
  const memory = { userId: "ada", conversationId: "moving" };
  const say = (input: string) => dataOf(post("/agents/support/text", { input, options: { memory } }));
  await say("My new flat is on the fourth floor and has no elevator.");
  await say("Where is order A-1002?");
  const { conversation, messages } = await dataOf(
    fetch(`${service.url}/api/memory/conversations/moving/messages?userId=ada`),
  );
  assert.deepEqual([conversation.userId, conversation.resourceId], ["ada", "support"]);
  assert.equal(conversation.title, "My new flat is on the fourth floor and has no elevator.");
  assert.deepEqual(
    messages.map(({ role }: Loose) => role),
    ["user", "assistant", "user", "assistant"],
  );
  const types = messages[3].parts.map(({ type }: Loose) => type);
  assert.ok(types.includes("tool-lookup_order") && types.includes("text"), types.join());
  const query = new URLSearchParams({
    searchQuery: "Does the apartment have a lift?",
    userId: "ada",
  });
  const { results } = await dataOf(fetch(`${service.url}/api/memory/search?${query}`));
  assert.equal(results[0].conversationId, "moving");
  assert.match(results[0].message.parts[0].text, /elevator/);
});

const execute = (workflow: string, input: object, executionId: string): Promise<Loose> =>
  dataOf(post(`/workflows/${workflow}/execute`, { input, options: { executionId } }));

test("service.yaml: a small refund is paid at once, with the key of its step", async () => {
  const { status, result } = await execute("refund", { orderId: "A-1001", amount: 49 }, "small");
  assert.equal(status, "completed");
  assert.deepEqual([result.refundId, result.amount, result.currency], ["R-small:pay", 49, "EUR"]);
});

test("service.yaml: a large refund waits for a person, who may say no", async () => {
  const amounts: number[] = [];
  for (const approved of [true, false]) {
    const { status, suspension } = await execute("refund", { orderId: "A-1002", amount: 620 }, `large-${approved}`);
    assert.deepEqual([status, suspension.reason], ["suspended", "A refund above 100 needs approval"]);
    const path = `/workflows/refund/executions/large-${approved}`;
    const state = await dataOf(fetch(`${service.url}${path}/state`));
    assert.deepEqual([state.suspension.stepId, state.suspension.stepIndex], ["ask", 1]);
    const refused = await post(`${path}/resume`, { resumeData: {} });
    assert.equal(refused.status, 400);
    const resumed = await dataOf(post(`${path}/resume`, { resumeData: { approved } }));
    assert.equal(resumed.status, "completed");
    amounts.push(resumed.result.amount);
  }
  assert.deepEqual(amounts, [620, 0]);
});

test("service.yaml: a complaint is answered with a letter, and its refund asks for the same approval", async () => {
  const small = await execute("complaint", { customer: "Ada", orderId: "A-1001", amount: 20 }, "complaint-1");
  assert.deepEqual(small.result, { letter: "Dear Ada, we are sorry.", found: true, refunded: 20 });
  const large = await execute("complaint", { customer: "Grace", orderId: "A-1002", amount: 300 }, "complaint-2");
  assert.equal(large.status, "suspended");
  const path = "/workflows/complaint/executions/complaint-2/resume";
  const { result } = await dataOf(post(path, { resumeData: { approved: true } }));
  assert.deepEqual(result, { letter: "Dear Grace, we are sorry.", found: true, refunded: 300 });
});

test("service.yaml: every section has a comment above it", async () => {
  const lines = (await readFile(MANIFEST, "utf8")).split("\n");
  for (const [index, line] of lines.entries()) {
    if (!/^[a-z]+:$/.test(line)) continue;
    assert.match(lines[index - 1]!, /^#/, `a comment above ${line}`);
  }
});

test("service.yaml: nothing was written to the folder it was started in, and SIGTERM ends it with 0", async () => {
  assert.deepEqual(await readdir(cwd), []);
  await stop();
  assert.equal(service.child.exitCode, 0);
  assert.deepEqual((await readdir(home)).toSorted(), ["data", "plugins", "service.yaml"]);
  await rm(cwd, { recursive: true });
  await rm(home, { recursive: true });
});
