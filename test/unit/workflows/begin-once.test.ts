/** `POST /workflows/:id/execute` with `options.executionId`: two requests at once begin one execution. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, type TestContext, test } from "node:test";
import type { ServiceError } from "../../../core/lib/errors.ts";
import { EXECUTION_SEQUENCE } from "../../../core/storage/keys.ts";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import { createSequence } from "../../../core/storage/sequence.ts";
import type { Store } from "../../../core/storage/store.ts";
import type { Engine } from "../../../core/workflows/engine.ts";
import { watchProbe } from "../../support/probe.ts";
import { CALL, processesOf } from "../../support/workflow-process.ts";

const PLUGINS = { "steps/probe.mjs": readFileSync("test/fixtures/plugins/steps/probe.mjs", "utf8") };
const MANIFEST = {
  workflows: { w: { steps: [{ id: "s", andThen: { use: "probe", with: { hold: true } } }] } },
};

/** A store that says what it is, and where some reads take a while. */
function slowStore(kind: "memory" | "sqlite"): Store {
  const store = createMemoryStore();
  let reads = 0;
  return {
    ...store,
    kind,
    async get(key) {
      if (++reads % 2 === 0) await new Promise((resolve) => setTimeout(resolve, 3));
      return store.get(key);
    },
  };
}

const BLOCKS = { "numbers are there": 4096, "the block of numbers is used up": 1 };

async function twice(t: TestContext, kind: "memory" | "sqlite", block: number, requests: number) {
  const watched = watchProbe(t);
  const store = slowStore(kind);
  const start = await processesOf(t, MANIFEST, { plugins: PLUGINS });
  const { opened, access } = await start(store);
  const engine = opened.engine as { -readonly [K in keyof Engine]: Engine[K] };
  engine.sequence = await createSequence(store, EXECUTION_SEQUENCE, [], block);
  const replies = Array.from({ length: requests }, () =>
    access.execute("w", { input: {}, options: { executionId: "mine" } }, CALL).then(
      ({ json }) => JSON.parse(json) as { status: string },
      ({ kind, message }: ServiceError) => ({ status: kind as string, message }),
    ),
  );
  const call = await watched.next("s", "mine");
  // All who come too late have been told by now.
  await new Promise((resolve) => setTimeout(resolve, 40));
  return { watched, engine, access, replies, call };
}

for (const kind of ["memory", "sqlite"] as const) {
  describe(`${kind}: two requests with one options.executionId`, () => {
    for (const [when, block] of Object.entries(BLOCKS)) {
      for (const requests of [2, 5]) {
        test(`${when}, ${requests} requests: one succeeds, the others are conflicts; the work is done once`, async (t) => {
          const { watched, engine, replies, call } = await twice(t, kind, block, requests);
          assert.equal(engine.live.size, 1);
          assert.equal(watched.calls.length, 1);
          call.release({});
          const statuses = (await Promise.all(replies)).map(({ status }) => status).sort();
          assert.deepEqual(statuses, ["completed", ...Array(requests - 1).fill("conflict")]);
          assert.equal(watched.calls.length, 1);
        });
      }
      test(`${when}: the one that runs can be reached, and cancelled`, async (t) => {
        const { engine, access, replies, call } = await twice(t, kind, block, 2);
        assert.equal((await access.state("w", "mine")).status, "running");
        const { status } = await access.cancel("w", "mine", undefined);
        assert.equal(status, "cancelled");
        assert.ok(call.aborted instanceof Error);
        assert.deepEqual((await Promise.all(replies)).map(({ status }) => status).sort(), ["cancelled", "conflict"]);
        assert.equal(engine.live.size, 0);
      });
    }
  });
}
