/** A store plugin that can wake other processes: what it is asked, and that its failures are no harm. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { pluginFolder } from "../support/plugin-folder.ts";
import { manifestWith, startService } from "../support/service.ts";

const MEMORY_STORE = fileURLToPath(new URL("../../core/storage/memory-store.ts", import.meta.url));

const world = { broken: false, asked: [] as string[], woken: new Map<string, () => void>() };
(globalThis as { penstockWaking?: typeof world }).penstockWaking = world;

const PLUGINS = {
  "stores/waking.mjs": `import { createMemoryStore } from ${JSON.stringify(MEMORY_STORE)};
    const world = globalThis.penstockWaking;
    const ask = (what) => { world.asked.push(what); if (world.broken) throw new Error("it is broken"); };
    export default { kind: "store", create: () => ({ ...createMemoryStore(), kind: "waking",
      wake: (topic) => ask("wake " + topic),
      watch: (topic, woken) => { ask("watch " + topic); world.woken.set(topic, woken); return () => ask("end " + topic); } }) };`,
};

test("a store plugin with wake and watch is asked for both, and what it throws reaches nobody", async (t) => {
  const manifest = { ...manifestWith(), store: "waking" };
  const { service } = await startService(t, manifest, { plugins: [pluginFolder(t, PLUGINS)] });
  const { store } = service;
  let woken = 0;
  world.asked.length = 0;
  const end = store.watch!("a", () => {
    woken++;
  });
  store.wake!("b");
  await new Promise(setImmediate);
  world.woken.get("a")!();
  assert.equal(woken, 1);
  end();
  await new Promise(setImmediate);
  assert.deepEqual(world.asked, ["watch a", "wake b", "end a"]);
  world.broken = true;
  store.wake!("c");
  store.watch!("d", () => {})();
  // An unhandled rejection would fail this test.
  await new Promise(setImmediate);
  world.broken = false;
  assert.deepEqual(world.asked.slice(3), ["wake c", "watch d"]);
});
