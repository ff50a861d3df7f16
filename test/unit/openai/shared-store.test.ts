/** Responses in the background on a store that processes share: what one of them does to a response of another. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { pino } from "pino";
import { EVERYTHING } from "../../../core/identity/principal.ts";
import type { Manifest } from "../../../core/manifest/manifest.ts";
import type { ResponseResource } from "../../../core/openai/resource.ts";
import { Responses } from "../../../core/openai/responses.ts";
import { Membership } from "../../../core/storage/membership.ts";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import type { Store } from "../../../core/storage/store.ts";

const logger = pino({ enabled: false });
const MANIFEST = { auth: { mode: "none" }, history: { retention: 1e9 } } as Manifest;
const ID = "resp_1";
const RESOURCE = { id: ID, status: "in_progress", background: true, output: [] } as unknown as ResponseResource;

/** One store as several processes see it. */
function sharedStore(): Store {
  const store = createMemoryStore();
  return new Proxy(store, {
    get(target, key) {
      if (key === "kind") return "shared";
      const value = Reflect.get(target, key);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

async function join(t: TestContext, store: Store) {
  const membership = new Membership(store, { logger });
  await membership.start();
  const responses = new Responses(MANIFEST, { store, membership, logger });
  // What waits here does not keep a process alive: in a service, its sockets do.
  const alive = setInterval(() => {}, 1_000);
  t.after(async () => {
    clearInterval(alive);
    await responses.close();
    await membership.release();
  });
  return { responses };
}

/** A run that ends when it is stopped; resolves when that happens. */
async function begin({ background }: Responses) {
  const abort = new AbortController();
  const record = { resource: RESOURCE, owner: "", createdAt: Date.now(), input: [], chain: [] };
  const stopped = new Promise<void>((resolve) => abort.signal.addEventListener("abort", () => resolve()));
  await background.begin({ ...record, process: background.process }, abort, async () => {
    await stopped;
    return { ...RESOURCE, status: "failed" };
  });
  return { stopped };
}

test("POST /v1/responses/:id/cancel stops a response that runs in another process, which leaves it cancelled", async (t) => {
  const store = sharedStore();
  const [{ responses: one }, { responses: other }] = [await join(t, store), await join(t, store)];
  const { stopped } = await begin(one);
  assert.equal((await other.get(ID, EVERYTHING)).status, "in_progress");
  assert.equal((await other.cancel(ID, EVERYTHING)).status, "cancelled");
  await stopped;
  await one.background.idle(60_000);
  for (const responses of [one, other]) assert.equal((await responses.get(ID, EVERYTHING)).status, "cancelled");
});

test("DELETE /v1/responses/:id stops a response that runs in another process, which does not bring it back", async (t) => {
  const store = sharedStore();
  const [{ responses: one }, { responses: other }] = [await join(t, store), await join(t, store)];
  const { stopped } = await begin(one);
  await other.delete(ID, EVERYTHING);
  await stopped;
  await one.background.idle(60_000);
  await assert.rejects(one.get(ID, EVERYTHING), { kind: "not_found" });
});
