/** A kept run ends in the commit that stores its turn: whatever happens to that commit, both are there or neither is. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { CommitConflict, unavailable } from "../../core/lib/errors.ts";
import { commitJoined } from "../../core/storage/joined.ts";
import { OPEN_EXECUTIONS, PROCESSES } from "../../core/storage/keys.ts";
import { createMemoryStore } from "../../core/storage/memory-store.ts";
import type { Commit, Store } from "../../core/storage/store.ts";
import { eventually } from "../support/event-reader.ts";
import { heldModel } from "../support/held-model.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import type { Loose } from "../support/served-upstream.ts";
import { startService } from "../support/service.ts";
import { cutStore } from "../support/workflow-process.ts";

const QUESTION = "And then?";
const OPTIONS = { userId: "u", conversationId: "c", runId: "r" };
const BODY = { input: QUESTION, options: OPTIONS };

const given = globalThis as { penstockGivenStore?: Store };
const GIVEN = { "stores/given.mjs": 'export default { kind: "store", create: () => globalThis.penstockGivenStore };' };

/** Services on a store that this process has, one after the other or beside each other. */
function serviceOn(t: TestContext) {
  const model = heldModel(t);
  const manifest = {
    name: "Test",
    version: "1.0.0",
    store: "given",
    providers: { held: model.settings },
    memory: { default: {} },
    agents: { keeper: { model: "held/any", durable: true } },
  };
  const start = async (store: Store) => {
    given.penstockGivenStore = store;
    const service = await startService(t, manifest, { plugins: [pluginFolder(t, GIVEN), model.plugins] });
    const data = async (path: string): Promise<Loose | null> => {
      const reply = await service.get(path);
      return reply.status === 200 ? ((await reply.json()) as Loose).data : null;
    };
    return {
      ...service,
      data,
      run: () => data("/agents/keeper/runs/r"),
      /** Who said what. */
      said: async () =>
        ((await data("/api/memory/conversations/c/messages?agentId=keeper&userId=u"))?.messages ?? []).map(
          ({ role, parts }: Loose) => `${role}: ${parts.map(({ text = "" }: Loose) => text).join("")}`,
        ) as string[],
    };
  };
  return { model, start };
}

const isOpen = async (store: Store) => (await store.scan({ prefix: OPEN_EXECUTIONS, limit: 1 })).length > 0;
const storesTurn = ({ put = [] }: Commit) => put.some(([key]) => /^c\/\w+\/m\//.test(key));
const toldTwice = (n: number) => [`user: ${QUESTION}`, `assistant: half ${n} rest ${n}`];

for (const isAcknowledged of [true, false]) {
  const when = isAcknowledged ? "after each of its commits" : "in each of its commits, once that is on disk";
  test(`POST /agents/:id/text of a durable agent, cut off ${when}: the conversation has the turn once, exactly when the run has ended`, async (t) => {
    const { model, start } = serviceOn(t);
    let asked = 0;
    let cutOff = 0;
    for (let cut = isAcknowledged ? 0 : 1, isWhole = false; !isWhole; cut++) {
      const base = createMemoryStore();
      const store = cutStore(base, "sqlite");
      t.after(() => store.bury());
      const first = await start(store);
      store.arm(cut, isAcknowledged);
      let isCut = false;
      store.cut.then(() => {
        isCut = true;
      });
      model.hold(QUESTION);
      const reply = first.post("/agents/keeper/text", BODY);
      reply.catch(() => {});
      await model.isAsked(QUESTION, ++asked);
      // The begin of the run has a commit of its own.
      await eventually(async () => isCut || (await isOpen(base)), "the begin of the run");
      model.release(QUESTION);
      isWhole = await Promise.race([store.cut.then(() => false), reply.then(() => true)]);
      const isUnfinished = await isOpen(base);
      const second = await start({ ...base, kind: "sqlite" });
      if (isUnfinished) {
        asked++;
        cutOff++;
      }
      await eventually(async () => !(await isOpen(base)), "the end of the run");
      const run = await second.run();
      assert.equal(run?.status, run === null ? undefined : "completed", `after ${cut} commits`);
      assert.deepEqual(await second.said(), run === null ? [] : toldTwice(asked), `after ${cut} commits`);
      await model.isAsked(QUESTION, asked);
    }
    assert.ok(cutOff > 0);
  });
}

for (const what of ["its turn", "what was said in its conversation"])
  test(`POST /agents/:id/text of a durable agent goes on when ${what} could not be read, once its store is back`, async (t) => {
    const { start } = serviceOn(t);
    const base = createMemoryStore();
    let failed = 3;
    const fails = (key: string) =>
      (what === "its turn" ? key.startsWith("ct/") : key.startsWith("id/")) && failed++ < 2;
    const away = (key: string) => {
      if (fails(key)) throw unavailable("the connection is lost");
    };
    const service = await start({
      ...base,
      kind: "shared",
      commit: async (commit) => {
        for (const [key] of commit.put ?? []) if (key.startsWith("ct/")) away(key);
        return base.commit(commit);
      },
      get: async (key) => away(key) ?? base.get(key),
      getMany: async (keys) => keys.forEach(away) ?? base.getMany(keys),
      scan: async (range) => away(range.prefix) ?? base.scan(range),
    });
    failed = 0;
    const reply = await service.post("/agents/keeper/text", BODY);
    assert.equal(reply.status, 503, "who waits is told");
    await eventually(async () => (await service.run())?.status === "completed", "the end of the run");
    assert.ok(failed > 2, String(failed));
    assert.deepEqual(await service.said(), toldTwice(1));
  });

for (const kind of ["sqlite", "shared"]) {
  for (const hasBegun of [true, false]) {
    for (const happens of [false, true]) {
      const what = `${hasBegun ? "a run that is on disk" : "a run that is not on disk yet"} (${kind})`;
      const then = happens
        ? " and has happened: both are stored, once"
        : ": the run goes on until both are stored, once";
      test(`POST /agents/:id/text of ${what} is 503 when the commit of its turn fails${then}`, async (t) => {
        const { model, start } = serviceOn(t);
        const base = createMemoryStore();
        let failed = 0;
        const commit = async (commit: Commit) => {
          if (!storesTurn(commit) || failed++ > 0) return base.commit(commit);
          if (happens) await base.commit(commit);
          throw unavailable("the connection is lost");
        };
        const service = await start({ ...base, kind, commit });
        if (hasBegun) model.hold(QUESTION);
        const reply = service.post("/agents/keeper/text", BODY);
        if (hasBegun) {
          await eventually(() => isOpen(base), "the begin of the run");
          model.release(QUESTION);
        }
        assert.equal((await reply).status, 503);
        await eventually(async () => ((await service.run())?.status ?? "running") !== "running", "the end of the run");
        assert.equal(failed, 2, "it was tried again");
        assert.equal((await service.run())!.status, "completed");
        assert.equal(await isOpen(base), false);
        assert.deepEqual(await service.said(), toldTwice(1));
        const stream = await (await service.get("/agents/keeper/runs/r/stream")).text();
        assert.ok(stream.includes('"type":"finish"'));
        assert.ok(stream.includes("rest 1"));
        assert.equal((await service.data("/agents/keeper/runs"))!.length, 1);
      });
    }
  }
}

test("POST /agents/:id/text of a durable agent: when another process adds to the conversation before the commit, the turn comes behind that, and the run ends once", async (t) => {
  const { start } = serviceOn(t);
  const base = createMemoryStore();
  const shared = { ...base, kind: "shared" };
  const other = await start(shared);
  const save = (text: string) =>
    other.post("/api/memory/save-messages", {
      messages: [{ conversationId: "c", userId: "u", message: { role: "user", parts: [{ type: "text", text }] } }],
      agentId: "keeper",
    });
  const created = await other.post("/api/memory/conversations", {
    conversationId: "c",
    userId: "u",
    resourceId: "keeper",
  });
  assert.equal(created.status, 201, await created.text());
  const conflicts: string[][] = [];
  const commit = async (commit: Commit) => {
    if (storesTurn(commit) && conflicts.length === 0) assert.equal((await save("Meanwhile")).status, 200);
    return base.commit(commit).catch((error) => {
      if (error instanceof CommitConflict && storesTurn(commit)) conflicts.push([...error.keys]);
      throw error;
    });
  };
  const service = await start({ ...shared, commit });
  assert.equal((await service.post("/agents/keeper/text", BODY)).status, 200);
  assert.equal(conflicts.length, 1);
  assert.deepEqual(await service.said(), ["user: Meanwhile", ...toldTwice(1)]);
  assert.equal((await service.run())!.status, "completed");
  assert.equal((await service.data("/agents/keeper/runs"))!.length, 1);
});

test("POST /agents/:id/text of a run that another process has taken over is 503 and stores nothing: the conversation has the turn of the other", async (t) => {
  const { model, start } = serviceOn(t);
  const base = createMemoryStore();
  const shared = { ...base, kind: "shared" };
  let isSilent = false;
  let refused = 0;
  let wake = () => {};
  const woken = new Promise<void>((resolve) => {
    wake = resolve;
  });
  t.after(wake);
  const commit = (commit: Commit): Promise<number> => {
    // It does not hear that it is taken for gone.
    if (isSilent && commit.put?.some(([key]) => key.startsWith(PROCESSES)))
      return woken.then(() => base.commit(commit));
    return base.commit(commit).catch((error) => {
      if (storesTurn(commit)) refused++;
      throw error;
    });
  };
  const first = await start({ ...shared, commit });
  const [lease] = await base.scan({ prefix: PROCESSES, limit: 1 });
  model.hold(QUESTION);
  const reply = first.post("/agents/keeper/text", BODY);
  await eventually(() => isOpen(base), "the begin of the run");
  isSilent = true;
  const second = await start(shared);
  await base.commit({ delete: [lease!.key] });
  await model.isAsked(QUESTION, 2);
  model.release(QUESTION);
  assert.equal((await reply).status, 503);
  assert.equal(refused, 1);
  await eventually(async () => !(await isOpen(base)), "the end of the run");
  assert.deepEqual(await second.said(), toldTwice(2));
  assert.equal((await second.run())!.output, "half 2 rest 2");
  const entries = async () => (await second.data("/agents/keeper/history"))!.entries;
  await eventually(async () => (await entries()).length > 0, "the history");
  assert.deepEqual(
    (await entries()).map(({ status, output }: Loose) => [status, output]),
    [["completed", "half 2 rest 2"]],
  );
});

test("commitJoined: changes that joined happen with the others or not at all, and say themselves what it means that they cannot", async () => {
  const store = createMemoryStore();
  const lost = new Error("lost");
  let committed = 0;
  const joined = (revision: number | null) => ({
    changes: { put: [["b", '"b"']] as const, expect: [["lease", revision]] as const },
    committed: () => committed++,
    lost: () => lost,
  });
  const own = (revision: number | null) => ({
    put: [["a", '"a"'] as const],
    delete: [],
    clear: [],
    add: [],
    expect: [["head", revision] as const],
    of: [],
  });
  const lease = await store.commit({ put: [["lease", "1"]] });
  const head = await store.commit({ put: [["head", "1"]] });
  await assert.rejects(commitJoined(store, own(null), [joined(lease)]), CommitConflict);
  await assert.rejects(commitJoined(store, own(head), [joined(null)]), lost);
  await assert.rejects(commitJoined(store, own(null), [joined(null)]), lost);
  assert.deepEqual([await store.get("a"), await store.get("b"), committed], [undefined, undefined, 0]);
  await commitJoined(store, own(head), [joined(lease)]);
  assert.deepEqual([(await store.get("a"))?.value, (await store.get("b"))?.value, committed], ['"a"', '"b"', 1]);
});
