/** Generation with memory while the store fails, and the order of what is stored and what is said. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { EVERYTHING } from "../../../core/identity/principal.ts";
import { type ServiceError, unavailable } from "../../../core/lib/errors.ts";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import type { Commit, Store } from "../../../core/storage/store.ts";
import { caller, compile, Events } from "../../support/agents.ts";

const options = { memory: { userId: "ada", conversationId: "c" } };
const GENERATIONS = ["text", "stream", "chat"] as const;

/** A store that can be made to fail, or to be slow. */
function fragile() {
  const store = createMemoryStore();
  const down = () => Promise.reject(unavailable("the disk is full"));
  const state = { reads: true, writes: true, held: undefined as Promise<void> | undefined, commits: [] as Commit[] };
  const fails: Store = {
    ...store,
    get: (key) => (state.reads ? store.get(key) : down()),
    getMany: (keys) => (state.reads ? store.getMany(keys) : down()),
    scan: (range) => (state.reads ? store.scan(range) : down()),
    async commit(commit) {
      await state.held;
      if (!state.writes) return down();
      state.commits.push(commit);
      return store.commit(commit);
    },
  };
  return { store: fails, state };
}

async function remembering(t: TestContext, store: Store, agent: object = {}) {
  const { agents, memories, problems } = await compile(
    t,
    {
      providers: { demo: { use: "scripted", replies: [{ when: "break", error: "down" }] } },
      memory: { default: {} },
      tools: { add: { use: "add" } },
      agents: { assistant: { name: "Assistant", model: "demo/echo", ...agent } },
    },
    store,
  );
  assert.deepEqual(problems, []);
  const texts = async () => {
    const { messages } = await memories.get("default")!.for(EVERYTHING).earlier("c", { limit: 100 });
    return messages.map(({ role, parts }) => [role, parts!.flatMap(({ text }) => text ?? []).join("")]);
  };
  return { agent: agents.get("assistant")!, texts };
}

const run = async (
  agent: Awaited<ReturnType<typeof remembering>>["agent"],
  how: (typeof GENERATIONS)[number],
  events: Events,
) =>
  how === "text"
    ? agent.generateText({ input: "hello", options }, caller())
    : (await agent[how]({ input: "hello", options }, caller()))(events);

const isUnavailable = (error: ServiceError) => error.kind === "unavailable";

for (const how of GENERATIONS) {
  test(`a turn by ${how} fails before the first byte when the conversation cannot be read`, async (t) => {
    const { store, state } = fragile();
    const { agent } = await remembering(t, store);
    state.reads = false;
    const events = new Events();
    await assert.rejects(() => run(agent, how, events) as Promise<unknown>, isUnavailable);
    assert.equal(events.opened, false);
    state.reads = true;
    await run(agent, how, events);
  });

  test(`a turn by ${how} that cannot be stored fails, and says no finish`, async (t) => {
    const { store, state } = fragile();
    const { agent, texts } = await remembering(t, store);
    await run(agent, how, new Events());
    state.writes = false;
    const events = new Events();
    await assert.rejects(() => run(agent, how, events) as Promise<unknown>, isUnavailable);
    assert.deepEqual(events.of("finish"), []);
    state.writes = true;
    assert.equal((await texts()).length, 2);
    await run(agent, how, new Events());
    assert.equal((await texts()).length, 4);
  });
}

test("a turn with the id of a stored message removes what came after it in the commit that stores the turn", async (t) => {
  const { store, state } = fragile();
  const { agent, texts } = await remembering(t, store);
  const said = (id: string, content: string) => [{ id, role: "user", content }];
  for (const [id, content] of [
    ["u1", "one"],
    ["u2", "two"],
  ] as const)
    await agent.generateText({ input: said(id, content), options }, caller());
  const before = await texts();
  state.writes = false;
  await assert.rejects(agent.generateText({ input: said("u1", "uno"), options }, caller()), isUnavailable);
  assert.deepEqual(await texts(), before);
  state.writes = true;
  const { length } = state.commits;
  await agent.generateText({ input: said("u1", "uno"), options }, caller());
  const commits = state.commits.slice(length).filter(({ put = [] }) => put.some(([key]) => key.startsWith("c/")));
  assert.equal(commits.length, 1);
  assert.deepEqual(await texts(), [
    ["user", "uno"],
    ["assistant", "uno"],
  ]);
});

test("a streamed turn says finish only when it is stored", async (t) => {
  const { store, state } = fragile();
  const { agent, texts } = await remembering(t, store);
  let release: () => void = () => undefined;
  state.held = new Promise((resolve) => {
    release = resolve;
  });
  const events = new Events();
  const over = (await agent.stream({ input: "hello", options }, caller()))(events);
  while (events.of("finish-step").length === 0) await new Promise(setImmediate);
  for (let turn = 0; turn < 20; turn++) await new Promise(setImmediate);
  assert.deepEqual(events.of("finish"), []);
  release();
  await over;
  assert.equal(events.of("finish").length, 1);
  assert.deepEqual(await texts(), [
    ["user", "hello"],
    ["assistant", "hello"],
  ]);
});

test("a turn keeps the model's failure as the answer when it cannot be stored either", async (t) => {
  const { store, state } = fragile();
  const { agent } = await remembering(t, store);
  state.writes = false;
  await assert.rejects(
    agent.generateText({ input: "break", options }, caller()),
    (error: ServiceError) => error.kind === "provider_failed",
  );
});

test("a turn without a conversation neither reads nor writes", async (t) => {
  const { store, state } = fragile();
  const { agent } = await remembering(t, store);
  const before = state.commits.length;
  state.reads = false;
  state.writes = false;
  await agent.generateText({ input: "hello", options: { memory: { userId: "ada" } } }, caller());
  assert.equal(state.commits.length, before);
});

test("a turn of one step is one commit", async (t) => {
  const { store, state } = fragile();
  const { agent } = await remembering(t, store);
  const before = state.commits.length;
  await agent.generateText({ input: "hello", options }, caller());
  assert.equal(state.commits.length, before + 1);
});

test("an agent's own tool cannot have the name of the working memory's", async (t) => {
  const { problems } = await compile(t, {
    memory: { default: { workingMemory: { template: "# Me" } } },
    tools: { update_working_memory: { use: "add" } },
    agents: { assistant: { name: "Assistant", model: "demo/echo", tools: ["update_working_memory"] } },
  });
  assert.deepEqual(problems[0]!.path, ["agents", "assistant", "tools", 0]);
});
