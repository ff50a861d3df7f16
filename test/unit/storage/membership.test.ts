/** The leases of processes on a shared store: who is taken for gone, and how a process notices that it was. */
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { unavailable } from "../../../core/lib/errors.ts";
import { PROCESSES, processKey, processOfKey } from "../../../core/storage/keys.ts";
import { hasEnded, Membership, type MembershipTimes, nameProcess, Silence } from "../../../core/storage/membership.ts";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import type { Row, Store } from "../../../core/storage/store.ts";
import { silent } from "../../support/agents.ts";
import { until } from "../../support/probe.ts";

const NEVER = 3_600_000;
const TIMES: MembershipTimes = { heartbeatInterval: 10, leaseTimeout: 150, sessionTimeout: 150 };
const row = (key: string, revision: number): Row => ({ key, value: "", revision });
const keys = (rows: readonly Row[]) => rows.map(({ key }) => key);
const live = new AbortController().signal;

test("silence: a row that was read again and again and has not changed for the whole time, whatever is written in it", () => {
  const silence = new Silence(900);
  const seen: string[][] = [];
  for (let now = 0; now <= 1_200; now += 100)
    seen.push(keys(silence.after([row("dead", 1), row("alive", now), row("late", now < 400 ? 1 : 2)], now)));
  assert.deepEqual(
    seen.map((silentNow) => silentNow.join()),
    ["", "", "", "", "", "", "", "", "", "dead", "dead", "dead", "dead"],
  );
  assert.deepEqual(keys(silence.after([row("late", 2)], 1_300)), ["late"], "900 after its change");
});

test("silence: a gap between two readings begins the count anew, so that the silence of the store is that of nobody", () => {
  const silence = new Silence(900);
  for (let now = 0; now <= 800; now += 100) assert.deepEqual(silence.after([row("a", 1)], now), []);
  for (let now = 60_000; now < 60_900; now += 100) assert.deepEqual(silence.after([row("a", 1)], now), []);
  assert.deepEqual(keys(silence.after([row("a", 1)], 60_900)), ["a"]);
});

/** A store that other processes use too; `away` says what it rejects at present. */
function shared() {
  const base = createMemoryStore();
  const view = (change: Partial<Store> = {}) => ({ ...base, kind: "shared", ...change });
  const beats = async () =>
    new Map((await base.scan({ prefix: PROCESSES, limit: 99 })).map((r) => [r.key, r.revision]));
  return { base, view, beats };
}

function member(t: TestContext, store: Store, times = TIMES, name?: () => string): Membership {
  const membership = new Membership(store, { logger: silent, times, ...(name && { name }) });
  t.after(() => membership.release());
  return membership;
}

/** Waits until every row has been written so often. */
async function beatOn(beats: () => Promise<Map<string, number>>, times = 40): Promise<void> {
  const changes = new Map<string, number>();
  let before = await beats();
  await until(async () => {
    const now = await beats();
    for (const [key, revision] of now) if (before.get(key) !== revision) changes.set(key, (changes.get(key) ?? 0) + 1);
    before = now;
    return [...now.keys()].every((key) => (changes.get(key) ?? 0) >= times);
  }, "the heartbeats");
}

test("membership: while the store answers nobody for longer than a lease lasts, and after that, nobody is taken for gone", async (t) => {
  const { view, base, beats } = shared();
  let away = false;
  const flaky = () => {
    const unlessAway = <T>(work: () => Promise<T>) => (away ? Promise.reject<T>(unavailable("away")) : work());
    return view({
      commit: (commit) => unlessAway(() => base.commit(commit)),
      scan: (range) => unlessAway(() => base.scan(range)),
    });
  };
  const members = [member(t, flaky()), member(t, flaky()), member(t, flaky())];
  for (const each of members) await each.start();
  const names = members.map(({ name }) => name);
  for (let outage = 0; outage < 3; outage++) {
    away = true;
    await new Promise((resolve) => setTimeout(resolve, 2 * TIMES.leaseTimeout));
    away = false;
    await beatOn(beats);
  }
  assert.deepEqual(
    members.map(({ name }) => name),
    names,
  );
});

test("membership: a store that takes no writes while it can be read makes nobody take anybody for gone", async (t) => {
  const { view, base, beats } = shared();
  let away = false;
  const commit: Store["commit"] = (given) => (away ? Promise.reject(unavailable("full")) : base.commit(given));
  const members = [member(t, view({ commit })), member(t, view({ commit }))];
  for (const each of members) await each.start();
  const names = members.map(({ name }) => name);
  away = true;
  await new Promise((resolve) => setTimeout(resolve, 3 * TIMES.leaseTimeout));
  away = false;
  await beatOn(beats);
  assert.deepEqual(
    members.map(({ name }) => name),
    names,
  );
});

test("membership: a process that is silent alone is taken for gone, finds out with its next heartbeat, and goes on under another name", async (t) => {
  const { view, base } = shared();
  let mute = false;
  const quiet = member(
    t,
    view({ commit: (given) => (mute ? Promise.reject(unavailable("away")) : base.commit(given)) }),
  );
  const other = member(t, view());
  await quiet.start();
  await other.start();
  const before = quiet.name;
  let [gone, lost] = [0, 0];
  other.onGone(() => gone++);
  quiet.onLost(() => lost++);
  mute = true;
  await until(() => gone > 0, "the end of the lease");
  assert.equal(await other.goneCheck()(before), true);
  assert.deepEqual([quiet.isHeld(), lost], [false, 0], "it knows by its own clock that it may have been");
  mute = false;
  await quiet.confirm(live);
  assert.equal(lost, 2, "for what it had, and for what it has begun until it had another name");
  assert.notEqual(quiet.name, before);
  assert.equal(quiet.isHeld(), true);
  assert.equal(await other.goneCheck()(quiet.name), false);
});

test("membership: nothing has the new name of a process that was taken for gone before a row has it: others would take for left what it has begun", async (t) => {
  const { view, base } = shared();
  const told: string[] = [];
  const isNew = (name: string) => (name === before ? "the name before" : "the new name");
  const quiet: Membership = member(
    t,
    view({
      async commit(given) {
        if (told.length === 1 && given.put?.some(([key]) => key !== processKey(before)))
          told.push(`its row is written under ${isNew(quiet.name)}, held: ${quiet.isHeld()}`);
        return base.commit(given);
      },
    }),
    { heartbeatInterval: 10, leaseTimeout: NEVER, sessionTimeout: NEVER },
  );
  const before = quiet.name;
  await quiet.start();
  quiet.onLost(() => told.push(`lost under ${isNew(quiet.name)}`));
  await base.commit({ delete: [processKey(before)] });
  await until(() => quiet.name !== before, "another name");
  assert.deepEqual(told, [
    "lost under the name before",
    "its row is written under the name before, held: false",
    "lost under the new name",
  ]);
  assert.equal(quiet.isHeld(), true);
});

test("membership: a heartbeat that happened without an answer is not taken for somebody else's", async (t) => {
  const { view, base, beats } = shared();
  let deaf = false;
  const each = member(
    t,
    view({
      async commit(given) {
        const revision = await base.commit(given);
        if (deaf) throw unavailable("the connection was lost");
        return revision;
      },
    }),
  );
  await each.start();
  const { name } = each;
  each.onLost(() => assert.fail("it was not"));
  deaf = true;
  const before = (await beats()).get(processKey(name));
  await until(async () => (await beats()).get(processKey(name)) !== before, "a heartbeat that nobody hears of");
  await until(() => !each.isHeld(), "the end of what is known");
  deaf = false;
  await each.confirm(live);
  assert.deepEqual([each.name, each.isHeld()], [name, true]);
});

test("membership: confirm waits until a heartbeat can be written, or its signal aborts", async (t) => {
  const { view, base } = shared();
  let away = false;
  const each = member(
    t,
    view({ commit: (given) => (away ? Promise.reject(unavailable("away")) : base.commit(given)) }),
  );
  await each.start();
  away = true;
  await until(() => !each.isHeld(), "the end of what is known");
  const stop = new AbortController();
  let confirmed = false;
  const waiting = each.confirm(live).then(() => {
    confirmed = true;
  });
  const stopped = each.confirm(stop.signal);
  stop.abort();
  await stopped;
  assert.deepEqual([confirmed, each.isHeld()], [false, false]);
  away = false;
  await waiting;
  assert.equal(each.isHeld(), true);
});

test("membership: a process that stops gives its lease back, and the others hear of it with their next look", async (t) => {
  const { view, base } = shared();
  const times = { heartbeatInterval: 10, leaseTimeout: NEVER, sessionTimeout: NEVER };
  const [stopping, other] = [member(t, view(), times), member(t, view(), times)];
  await stopping.start();
  await other.start();
  let gone = 0;
  other.onGone(() => gone++);
  await stopping.release();
  await until(() => gone > 0, "the news of it");
  assert.equal(await base.get(processKey(stopping.name)), undefined);
});

test("membership: one that has lost its session and is silent is gone sooner; one that never showed itself is not", async (t) => {
  const { view, base } = shared();
  const shown = new Set<string>();
  let away = false;
  const presence = (shows: boolean) => ({
    async show(name: string) {
      if (shows && !away) shown.add(name);
      return shows && !away;
    },
    shown: async (names: readonly string[]) => new Set(names.filter((name) => shown.has(name))),
  });
  const times = { heartbeatInterval: 10, leaseTimeout: NEVER, sessionTimeout: 100 };
  const mute: Store["commit"] = (given) => (away ? Promise.reject(unavailable("away")) : base.commit(given));
  const withSession = member(t, view({ presence: presence(true), commit: mute }), times);
  const without = member(t, view({ presence: presence(false), commit: mute }), times);
  const other = member(t, view({ presence: presence(false) }), times);
  for (const each of [withSession, without, other]) await each.start();
  const [first, second] = [withSession.name, without.name];
  let gone = 0;
  other.onGone(() => gone++);
  shown.delete(first);
  away = true;
  await until(() => gone > 0, "the end of the lease");
  assert.equal(await other.goneCheck()(first), true);
  assert.equal(await other.goneCheck()(second), false);
});

test("membership: what processes are at work on is seen by the others, and their own is not", async (t) => {
  const { view } = shared();
  const [one, two] = [member(t, view()), member(t, view())];
  one.busy = () => ["a", "b"];
  two.busy = () => ["c"];
  await one.start();
  await two.start();
  assert.deepEqual(await two.busyElsewhere(), new Set(["a", "b"]));
});

test("membership: a row that is not a heartbeat is gone once it has been silent, and stops no look before", async (t) => {
  const { view, base } = shared();
  await base.commit({ put: [[`${PROCESSES}odd`, "no JSON"]] });
  const each = member(t, view());
  await each.start();
  assert.deepEqual(await each.busyElsewhere(), new Set());
  await until(async () => (await base.get(`${PROCESSES}odd`)) === undefined, "the end of the row");
});

const isLinux = process.platform === "linux";

test("the name of a process says for certain at the same place whether it has ended, and nothing elsewhere", {
  skip: isLinux ? false : "it needs /proc",
}, async (t) => {
  const own = nameProcess();
  assert.notEqual(own, nameProcess());
  assert.equal(processOfKey(processKey(own)), own);
  assert.equal(hasEnded(own), false);
  const child: ChildProcess = spawn("sleep", ["600"]);
  t.after(() => child.kill("SIGKILL"));
  await once(child, "spawn");
  const started = readFileSync(`/proc/${child.pid}/stat`, "utf8")
    .replace(/^.*\) /s, "")
    .split(" ")[19]!;
  const named = (place: string, pid: number, when: string) => `${place}.${pid}.${when}.0`;
  const place = own.split(".")[0]!;
  const name = named(place, child.pid!, started);
  assert.equal(hasEnded(name), false);
  assert.equal(hasEnded(named(place, child.pid!, String(Number(started) - 1))), true, "another one with its number");
  child.kill("SIGKILL");
  await once(child, "exit");
  assert.equal(hasEnded(name), true);
  assert.equal(hasEnded(named("0123456789abcdef", child.pid!, started)), false, "of another place");
  for (const other of ["only", "", "a.b.c.d"]) assert.equal(hasEnded(other), false);
});
