/**
 * `npm run test:copilotkit`: CopilotKit's core, without React, over its runtime, which asks an agent of Penstock by AG-UI. They are fetched from
 * the npm registry and kept in node_modules/.cache. Prints what was tried, and exits with 1 when something fails.
 */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { PAY_PLUGIN, ran } from "../support/approvals.ts";
import { eventually } from "../support/event-reader.ts";
import { fetchPackages } from "../support/fetched.ts";
import { calls, failsAfter, failure, says, stallsAfter } from "../support/openai-upstream.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { type Loose, type ServedUpstream, serveUpstream } from "../support/served-upstream.ts";

const VERSION = "1.75.0";
const modules = fetchPackages(
  `copilotkit-${VERSION}`,
  `@copilotkit/core@${VERSION}`,
  `@copilotkit/runtime@${VERSION}`,
  "@ag-ui/client@0.0.59",
);
const load = (name: string): Promise<Loose> =>
  import(pathToFileURL(createRequire(join(modules, "here.js")).resolve(name)).href);

process.env.COPILOTKIT_TELEMETRY_DISABLED = "true";
// The core asks a runtime for its agents in a page alone.
Object.assign(globalThis, { window: globalThis });
const [{ CopilotKitCore }, { CopilotRuntime, InMemoryAgentRunner }, { createCopilotNodeListener }, { HttpAgent }] =
  await Promise.all(
    ["@copilotkit/core", "@copilotkit/runtime/v2", "@copilotkit/runtime/v2/node", "@ag-ui/client"].map(load),
  );

const ends: (() => unknown)[] = [];
const context = { after: (end: () => unknown) => void ends.push(end) };
const PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";

interface Rig extends ServedUpstream {
  readonly core: Loose;
  readonly agent: Loose;
  readonly url: string;
  readonly errors: string[];
  /** Says it, if anything, and runs the agent. */
  run(text: Loose | null, options?: object): Promise<Loose>;
}

/** A core in front of a runtime in front of a service. */
async function rig(agent: object = {}): Promise<Rig> {
  const served = await serveUpstream(
    context,
    { tools: ["sum"], memory: "chats", ...agent },
    {
      tools: { sum: { use: "add" }, pay: { use: "pay", approval: true } },
      memory: { chats: { workingMemory: { scope: "conversation", schema: { type: "object" } } } },
    },
    { plugins: [pluginFolder(context, PAY_PLUGIN)] },
  );
  const remote = new HttpAgent({ url: `${served.service.url}/agents/assistant/ag-ui` });
  const runtime = new CopilotRuntime({ agents: { assistant: remote }, runner: new InMemoryAgentRunner() });
  const server = createServer(createCopilotNodeListener({ runtime, basePath: "/copilot" }));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  context.after(() => server.close());
  context.after(() => server.closeAllConnections());
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/copilot`;
  return { ...served, ...(await connected(url)), url };
}

let count = 0;

async function connected(url: string): Promise<Pick<Rig, "core" | "agent" | "run" | "errors">> {
  const core = new CopilotKitCore({ runtimeUrl: url });
  const errors: string[] = [];
  core.subscribe({ onError: ({ error }: Loose) => void errors.push(String(error.message)) });
  await eventually(() => core.getAgent("assistant") !== undefined, "the core knows the agent");
  const agent = core.getAgent("assistant");
  agent.threadId = `thread-${++count}`;
  const run = (content: Loose | null, options: object = {}) => {
    if (content !== null) agent.addMessage({ id: `user-${++count}`, role: "user", content });
    return core.runAgent({ agent, ...options });
  };
  return { core, agent, run, errors };
}

const rolesOf = (messages: readonly Loose[]) => messages.map(({ role }) => role).join(" ");
const PAYS = calls([{ id: "c1", name: "pay", input: { amount: 5 } }]);

/** The open question of the last run. */
const interruptOf = ({ agent }: Rig): Loose => agent.pendingInterrupts[0];

const CHECKS: Record<string, () => Promise<void>> = {
  async "a text arrives, and the next question has it before it"() {
    const { upstream, agent, run } = await rig();
    upstream.replies(says("Hello there.", { chunks: 3 }), says("Again."));
    await run("Hi");
    await run("And?");
    assert.equal(rolesOf(agent.messages), "user assistant user assistant");
    assert.equal(agent.messages[1].content, "Hello there.");
    assert.equal(rolesOf(upstream.requests[1]!.body.messages), "system user assistant user");
  },
  async "reasoning is a message of its own"() {
    const { upstream, agent, run } = await rig();
    upstream.replies(says("Hello.", { reasoning: "They greet." }));
    await run("Hi");
    assert.deepEqual(
      agent.messages.map(({ content }: Loose) => content),
      ["Hi", "They greet.", "Hello."],
    );
  },
  async "a tool of the agent is shown with its result"() {
    const { upstream, agent, run } = await rig();
    upstream.replies(calls([{ id: "c1", name: "sum", input: { a: 1, b: 2 } }]), says("Three."));
    await run("1 + 2?");
    assert.equal(rolesOf(agent.messages), "user assistant tool assistant");
    assert.deepEqual(JSON.parse(agent.messages[2].content), { sum: 3 });
  },
  async "a tool of the page runs there, and the agent goes on with its result"() {
    const { upstream, core, agent, run } = await rig();
    const asked: Loose[] = [];
    const handler = async (input: Loose) => {
      asked.push(input);
      return "painted";
    };
    core.addTool({ name: "paint", description: "Paints the page", handler });
    upstream.replies(calls([{ id: "c1", name: "paint", input: { color: "red" } }]), says("It is red."));
    await run("Make it red");
    assert.deepEqual(asked, [{ color: "red" }]);
    assert.equal(rolesOf(agent.messages), "user assistant tool assistant");
    assert.equal(upstream.requests[1]!.body.messages.at(-1).content, "painted");
  },
  async "a tool of the page that fails is told to the agent with the next message"() {
    const { upstream, core, agent, run } = await rig();
    core.addTool({ name: "paint", description: "Paints", handler: () => Promise.reject(new Error("no colour")) });
    upstream.replies(calls([{ id: "c1", name: "paint", input: {} }]), says("It failed."));
    await run("Make it red");
    await run("Well?");
    assert.match(JSON.stringify(upstream.requests[1]!.body.messages), /no colour/);
    assert.equal(agent.messages.at(-1).content, "It failed.");
  },
  async "a tool of the agent and one of the page in one step"() {
    const { upstream, core, agent, run } = await rig();
    core.addTool({ name: "paint", description: "Paints", handler: async () => "painted" });
    upstream.replies(
      calls([
        { id: "c1", name: "sum", input: { a: 1, b: 2 } },
        { id: "c2", name: "paint", input: {} },
      ]),
      says("Both."),
    );
    await run("Do both");
    const told = upstream.requests[1]!.body.messages.filter(({ role }: Loose) => role === "tool");
    assert.deepEqual(told.map((each: Loose) => each.tool_call_id).sort(), ["c1", "c2"]);
    assert.equal(agent.messages.at(-1).content, "Both.");
  },
  async "what the page says of itself reaches the model"() {
    const { upstream, core, run } = await rig();
    core.addContext({ description: "The page", value: "The cart has 3 pears" });
    upstream.replies(says("Three."));
    await run("How many?");
    assert.match(JSON.stringify(upstream.requests[0]!.body.messages), /3 pears/);
  },
  async "the state of the page is in the run"() {
    const { upstream, agent, run } = await rig();
    upstream.replies(says("Seen."));
    agent.setState({ cart: ["plums"] });
    await run("What is in it?");
    assert.match(JSON.stringify(upstream.requests[0]!.body.messages), /plums/);
    assert.deepEqual(agent.state, { cart: ["plums"] });
  },
  async "a tool that a person must approve interrupts, and a yes runs it once"() {
    const it = await rig({ tools: ["pay"] });
    it.upstream.replies(PAYS, says("Paid."));
    ran.splice(0);
    await it.run("Pay");
    assert.deepEqual(ran, []);
    const resume = [{ interruptId: interruptOf(it).id, status: "resolved", payload: { approved: true } }];
    await it.run(null, { resume });
    assert.deepEqual(ran, [5]);
    assert.equal(it.agent.messages.at(-1).content, "Paid.");
  },
  async "a no is told to the model"() {
    const it = await rig({ tools: ["pay"] });
    it.upstream.replies(PAYS, says("Well."));
    ran.splice(0);
    await it.run("Pay");
    const payload = { approved: false, reason: "too much" };
    await it.run(null, { resume: [{ interruptId: interruptOf(it).id, status: "resolved", payload }] });
    assert.deepEqual(ran, []);
    assert.match(JSON.stringify(it.upstream.requests[1]!.body.messages), /too much/);
  },
  async "an interrupt that is given up leaves the chat usable"() {
    const it = await rig({ tools: ["pay"] });
    it.upstream.replies(PAYS, says("As you like."));
    await it.run("Pay");
    await it.run(null, { resume: [{ interruptId: interruptOf(it).id, status: "cancelled" }] });
    assert.equal(it.agent.messages.at(-1).content, "As you like.");
  },
  async "a page that is loaded again gets its thread"() {
    const { upstream, agent, run, url } = await rig();
    upstream.replies(says("Hello."));
    await run("Hi");
    const again = await connected(url);
    again.agent.threadId = agent.threadId;
    await again.core.connectAgent({ agent: again.agent });
    assert.equal(rolesOf(again.agent.messages), "user assistant");
    assert.equal(again.agent.messages[1].content, "Hello.");
  },
  async "stop ends the call of the model"() {
    const { upstream, core, agent, run } = await rig();
    upstream.replies(stallsAfter("Long"));
    const running = run("Tell me");
    await eventually(() => agent.messages.at(-1).role === "assistant", "the answer has begun");
    core.stopAgent({ agent });
    await running;
    await upstream.requests[0]!.aborted;
  },
  async "a model that fails before its answer, and one that fails in it, are errors of the run"() {
    const { upstream, run, errors } = await rig();
    upstream.replies(failure(500), failsAfter("Half"));
    await run("Hi").catch(() => {});
    const first = errors.length;
    assert.ok(first > 0);
    await run("Again").catch(() => {});
    assert.ok(errors.length > first);
  },
  async "a picture of the user reaches the model"() {
    const { upstream, run } = await rig();
    upstream.replies(says("A dot."));
    const source = { type: "data", value: PIXEL, mimeType: "image/png" };
    await run([
      { type: "text", text: "What is it?" },
      { type: "image", source },
    ]);
    assert.match(JSON.stringify(upstream.requests[0]!.body.messages), /data:image\/png;base64,iVBOR/);
  },
};

/** A check that gets no answer for so long fails; in milliseconds. */
const HANG = 60_000;

let passed = 0;
for (const [check, work] of Object.entries(CHECKS)) {
  const hangs = new Promise<never>((_, reject) => {
    setTimeout(() => reject(new Error("no end")), HANG).unref();
  });
  try {
    await Promise.race([work(), hangs]);
    passed++;
    console.log(`✔ ${check}`);
  } catch (error) {
    console.log(`✖ ${check}\n  ${(error as Error).message.slice(0, 300)}`);
  }
}
for (const end of ends.reverse()) await end();
const all = Object.keys(CHECKS).length;
console.log(`CopilotKit ${VERSION}: ${passed} of ${all}`);
process.exit(passed === all ? 0 : 1);
