/** Chats that are read again after their process ended: whichever commit was its last, the row by which a chat is found goes with its run. */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { createMemoryStore } from "../../core/storage/memory-store.ts";
import type { Store } from "../../core/storage/store.ts";
import { PENSTOCK, serve } from "../support/command-line.ts";
import { EventReader, eventually } from "../support/event-reader.ts";
import { heldModel } from "../support/held-model.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import type { Loose } from "../support/served-upstream.ts";
import { startService } from "../support/service.ts";
import { temporaryFolder } from "../support/storage.ts";
import { cutStore } from "../support/workflow-process.ts";

const CHAT = "/agents/teller/chat";
const STREAM = `${CHAT}/c/stream?userId=u`;
const QUESTION = "And then?";
const BODY = { input: QUESTION, options: { resumableStream: true, userId: "u", conversationId: "c" } };

const given = globalThis as { penstockGivenStore?: Store };
const GIVEN = { "stores/given.mjs": 'export default { kind: "store", create: () => globalThis.penstockGivenStore };' };

const textOf = (events: Loose[]) => events.map(({ delta }) => delta ?? "").join("");

/** A service on a store that this process has. */
function serviceOn(t: TestContext, model = heldModel(t)) {
  const plugins = [pluginFolder(t, GIVEN), model.plugins];
  const manifest = {
    name: "Test",
    version: "1.0.0",
    store: "given",
    providers: { held: model.settings, fast: { use: "scripted" } },
    memory: { default: {} },
    agents: {
      teller: { model: "held/any" },
      plain: { model: "fast/echo" },
      kept: { model: "fast/echo", durable: true },
    },
  };
  return (store: Store) => {
    given.penstockGivenStore = store;
    return startService(t, manifest, { plugins });
  };
}

const numbersOf = async (store: Store, prefix: string) =>
  (await store.scan({ prefix, limit: 9 })).map(({ key }) => key.slice(-9));

test("POST /agents/:id/chat with options.resumableStream, cut off after each of its commits: GET .../stream finds the run exactly while it is unfinished, and gives the whole answer", async (t) => {
  const model = heldModel(t);
  const start = serviceOn(t, model);
  let resumed = 0;
  for (let cut = 0, isWhole = false; !isWhole; cut++) {
    const base = createMemoryStore();
    const store = cutStore(base, "sqlite");
    t.after(() => store.bury());
    const first = await start(store);
    store.arm(cut);
    model.hold(QUESTION);
    const client = new EventReader(first.url + CHAT, BODY);
    const isAlive = (holds: Promise<void>) => {
      holds.catch(() => {});
      return Promise.race([store.cut.then(() => false), holds.then(() => true)]);
    };
    isWhole = await isAlive(client.until(() => client.text.includes("half")));
    model.release(QUESTION);
    isWhole &&= await isAlive(client.end());
    client.leave();
    const unfinished = await numbersOf(base, "xo/");
    assert.deepEqual(await numbersOf(base, "xr/"), unfinished, `after ${cut} commits`);
    model.hold(QUESTION);
    const second = await start({ ...base, kind: "sqlite" });
    const reader = new EventReader(second.url + STREAM);
    await reader.head();
    model.release(QUESTION);
    await reader.end();
    if (unfinished.length === 0) assert.equal(reader.status, 204, `after ${cut} commits`);
    else {
      resumed++;
      assert.equal(reader.status, 200);
      assert.equal(reader.events.at(-1)!.type, "finish");
      assert.match(textOf(reader.events), /half (\d+) rest \1$/);
      assert.deepEqual(
        reader.sent.slice(0, -1).map(({ id }) => Number(id)),
        reader.events.map((_, index) => index + 1),
      );
    }
    await eventually(async () => (await numbersOf(base, "xo/")).length === 0, "the end of the run");
    assert.deepEqual(await numbersOf(base, "xr/"), [], `after ${cut} commits`);
    assert.equal((await second.get(STREAM)).status, 204);
  }
  assert.ok(resumed >= 2, `cut off ${resumed} times`);
});

test("POST /agents/:id/text of a kept run of one step makes as many commits as the same text that is not kept, and its rows are those and four of the run", async (t) => {
  const seen = cutStore(createMemoryStore(), "sqlite");
  const service = await serviceOn(t)(seen);
  const fewest = async (agent: string) => {
    const counts: { commits: number; rows: number }[] = [];
    for (let n = 0; n < 8; n++) {
      const options = { userId: "u", conversationId: agent };
      seen.arm(Number.POSITIVE_INFINITY);
      const reply = await service.post(`/agents/${agent}/text`, { input: QUESTION, options });
      assert.equal(reply.status, 200);
      const made = seen.commits.map(({ put = [], delete: removed = [], add = [] }) => [...put, ...removed, ...add]);
      // The first turn creates the conversation.
      if (n > 0) counts.push({ commits: made.length, rows: made.flat().length });
    }
    // A pause of the machine gives the begin of a run a commit of its own, and what is written later its place among these.
    return counts.reduce((least, count) => (count.rows < least.rows ? count : least));
  };
  const [plain, kept] = [await fewest("plain"), await fewest("kept")];
  assert.equal(plain.commits, 1);
  assert.equal(kept.commits, 1);
  // Its record, its id, and one in each of the lists of the agent and of the user.
  assert.equal(kept.rows, plain.rows + 4);
});

test("GET /agents/:id/chat/:conversationId/stream after kill -9 in the middle of an answer: the next process has the run, and a new step in place of the half", async (t) => {
  const model = heldModel(t);
  const folder = await temporaryFolder(t);
  const config = join(folder, "service.yaml");
  const manifest = {
    name: "Test",
    version: "1.0.0",
    store: `sqlite:${join(folder, "test.db")}`,
    providers: { held: model.settings },
    memory: { default: {} },
    agents: { teller: { model: "held/any" } },
  };
  writeFileSync(config, JSON.stringify(manifest));
  const start = () =>
    serve(t, [process.execPath, PENSTOCK, "serve", "--config", config, "--plugins", model.plugins, "--port", "0"]);
  const first = await start();
  model.hold(QUESTION);
  const client = new EventReader(first.url + CHAT, BODY);
  await client.until(() => client.text.includes("half 1"));
  await first.interrupt("SIGKILL");
  const second = await start();
  const reader = new EventReader(second.url + STREAM);
  await reader.until(() => reader.text.includes("half 2"));
  model.release(QUESTION);
  await reader.end();
  assert.deepEqual(reader.events.slice(0, client.events.length), client.events, "what the client has seen comes first");
  assert.deepEqual(
    reader.events.map(({ type, delta }) => delta ?? type),
    [
      ...["start", "start-step", "text-start", "half 1 "],
      ...["start-step", "text-start", "half 2 ", "rest 2", "text-end", "finish-step", "finish"],
    ],
  );
  assert.equal((await fetch(second.url + STREAM)).status, 204);
});
