/** Claims of which a process hears only after others have taken it for gone: they are not its own. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { TurnClaims } from "../../../core/agents/conversation/turn-claims.ts";
import { TurnTicket } from "../../../core/agents/conversation/turn-queue.ts";
import { RunCaller } from "../../../core/agents/run/caller.ts";
import { Deferred } from "../../../core/lib/abortable.ts";
import { KeptReplies } from "../../../core/storage/kept-replies.ts";
import { processKey } from "../../../core/storage/keys.ts";
import { Membership } from "../../../core/storage/membership.ts";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import type { Store } from "../../../core/storage/store.ts";
import { silent } from "../../support/agents.ts";

const NEVER = 3_600_000;
const { signal } = new AbortController();

/**
 * Two processes over one store. The answers to what one of them commits come late: once others have taken it for gone, and have what it
 * had. It hears of that by the answer, or has a name and a lease again by then.
 */
async function late(t: TestContext, hearsBefore: boolean) {
  t.mock.timers.enable({ apis: ["Date"] });
  const store: Store = { ...createMemoryStore(), kind: "shared" };
  const member = async () => {
    const membership = new Membership(store, {
      logger: silent,
      times: { heartbeatInterval: NEVER, leaseTimeout: 9_000 },
    });
    await membership.start();
    t.after(() => membership.release());
    return membership;
  };
  const [one, other] = [await member(), await member()];
  const committed = new Deferred<void>();
  const answered = new Deferred<void>();
  const slow: Store = {
    ...store,
    commit: async (commit) => {
      const revision = await store.commit(commit);
      committed.resolve();
      await answered.promise;
      return revision;
    },
  };
  /** @param taken what the other one does meanwhile */
  const whileSilent = async <T>(taken: () => Promise<T>): Promise<T> => {
    await committed.promise;
    t.mock.timers.tick(10_000);
    await store.commit({ delete: [processKey(one.name)] });
    await other.confirm(signal);
    const theirs = await taken();
    if (hearsBefore) await one.confirm(signal);
    answered.resolve();
    return theirs;
  };
  return { slow, store, one, other, whileSilent };
}

function ticket(runId: string): TurnTicket {
  const call = new RunCaller(
    { user: null, caller: null as never, requestId: "r", signal, logger: silent, trace: null as never },
    "a",
    {},
  );
  return new TurnTicket({
    mode: "queue",
    memory: "m",
    conversation: "c",
    user: "u",
    runId,
    isDelegated: false,
    record: null,
    call,
  });
}

for (const hearsBefore of [false, true]) {
  const when = hearsBefore ? "after it has a lease again" : "after its lease is over";

  test(`a turn is not taken by a process that hears of its claim ${when}`, async (t) => {
    const { slow, store, one, other, whileSilent } = await late(t, hearsBefore);
    const [mine, theirs] = [new TurnClaims(slow, one, silent), new TurnClaims(store, other, silent)];
    const taken = mine.take(ticket("first"));
    const claim = await whileSilent(() => theirs.wait(ticket("second"), signal));
    assert.equal(await taken, null);
    assert.equal(await mine.runElsewhere(claim.key), "second");
    await theirs.release(claim);
    assert.equal(await theirs.isTaken(claim.key), false);
  });

  test(`a request with a key is not begun by a process that hears of its claim ${when}`, async (t) => {
    const { slow, store, one, other, whileSilent } = await late(t, hearsBefore);
    const [mine, theirs] = [new KeptReplies(slow, one, silent), new KeptReplies(store, other, silent)];
    const request = { id: "key", fingerprint: "f" } as const;
    const replied = mine.take(request, signal);
    const claim = await whileSilent(() => theirs.take(request, signal));
    assert.ok("settle" in claim);
    const reply = { status: 200, headers: [], body: "once" };
    await claim.settle(reply);
    assert.deepEqual(await replied, reply);
  });
}
