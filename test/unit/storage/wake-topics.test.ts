/** Wake-ups between processes, over a wire that a test can cut: what is sent, who hears it, and how much it is. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { WakeTopics } from "../../../core/storage/postgres-notices.ts";
import { until } from "../../support/probe.ts";

/** NOTIFY of PostgreSQL takes less. */
const MAX_NOTICE_BYTES = 8_000;

/** Notices reach every process, and the one that sent them. */
function createWire() {
  const processes: WakeTopics[] = [];
  const sent: string[] = [];
  let cut = false;
  const join = () => {
    const process = new WakeTopics(async (notice) => {
      if (cut) throw new Error("cut");
      sent.push(notice);
      await null;
      for (const each of processes) each.heard(notice);
    });
    processes.push(process);
    process.announce(true);
    return process;
  };
  return {
    join,
    sent,
    cut: (is: boolean) => {
      cut = is;
    },
    woken: () => sent.filter((notice) => notice.startsWith("woken")),
  };
}

/** Counts how often it was woken. */
function watched(process: WakeTopics, topic: string) {
  const seen = { count: 0, end: () => {} };
  seen.end = process.watch(topic, () => {
    seen.count++;
  });
  return seen;
}

const sentSoon = (wire: ReturnType<typeof createWire>, count: number) =>
  until(() => wire.sent.length >= count, `notice ${count}`);

test("wake of a topic that another process watches reaches it, and the watch of another topic does not hear of it", async () => {
  const wire = createWire();
  const [one, two] = [wire.join(), wire.join()];
  const [a, b] = [watched(two, "a"), watched(two, "b")];
  await until(() => wire.sent.length >= 3, "the announcement");
  await new Promise(setImmediate);
  one.wake("a");
  await until(() => a.count > 0, "the wake-up");
  assert.deepEqual([a.count, b.count], [1, 0]);
});

test("wake of topics that no other process watches sends nothing, however many they are", async () => {
  const wire = createWire();
  const [one, two] = [wire.join(), wire.join()];
  const other = watched(two, "watched");
  const own = watched(one, "own");
  await sentSoon(wire, 3);
  for (let n = 0; n < 10_000; n++) one.wake("own");
  one.wake("watched");
  await until(() => other.count > 0, "the wake-up");
  assert.equal(wire.woken().length, 1);
  assert.equal(own.count, 10_000);
});

test("wake of very many topics in one turn is one notice, shorter than NOTIFY allows", async () => {
  const wire = createWire();
  const [one, two] = [wire.join(), wire.join()];
  const all = Array.from({ length: 20_000 }, (_, n) => watched(two, `x/${n}`));
  const announced = () => wire.sent.some((notice) => notice.includes(two.name) && notice.length > 4_000);
  await until(announced, "the announcement");
  await new Promise(setImmediate);
  for (const n of all.keys()) one.wake(`x/${n}`);
  await until(() => all.every(({ count }) => count > 0), "all wake-ups");
  assert.equal(wire.woken().length, 1);
  for (const notice of wire.sent) assert.ok(Buffer.byteLength(notice) < MAX_NOTICE_BYTES, `${notice.length} bytes`);
});

test("wake just before the other process has heard that somebody watches is told when it has", async () => {
  const wire = createWire();
  const [one, two] = [wire.join(), wire.join()];
  await sentSoon(wire, 2);
  const a = watched(two, "a");
  // Before the announcement has been sent.
  one.wake("a");
  await until(() => a.count > 0, "the wake-up");
});

test("a watch that has ended is not called any more, and one of two goes on", async () => {
  const wire = createWire();
  const [one, two] = [wire.join(), wire.join()];
  const [first, second] = [watched(two, "a"), watched(two, "a")];
  await sentSoon(wire, 3);
  await new Promise(setImmediate);
  first.end();
  one.wake("a");
  await until(() => second.count > 0, "the wake-up");
  assert.equal(first.count, 0);
});

test("a process that was cut off asks what the others watch, and is asked", async () => {
  const wire = createWire();
  const [one, two] = [wire.join(), wire.join()];
  await sentSoon(wire, 2);
  wire.cut(true);
  const a = watched(two, "a");
  await new Promise((resolve) => setTimeout(resolve, 30));
  one.wake("a");
  wire.cut(false);
  assert.equal(a.count, 0);
  // As its connection does when it is back.
  one.announce(true);
  await until(() => a.count > 0, "the wake-up that was lost");
  const before = a.count;
  one.wake("a");
  await until(() => a.count > before, "the next one");
});

test("a process that has closed is told nothing any more", async () => {
  const wire = createWire();
  const [one, two] = [wire.join(), wire.join()];
  watched(two, "a");
  await sentSoon(wire, 3);
  await two.close();
  one.wake("a");
  await new Promise((resolve) => setTimeout(resolve, 30));
  assert.deepEqual(wire.woken(), []);
});

test("notices that mean nothing are passed over", () => {
  const process = new WakeTopics(async () => {});
  const a = watched(process, "a");
  for (const notice of [
    "",
    "woken",
    "woken x",
    "woken x A",
    "woken x ÄÖ",
    "woken x AA AA",
    "other x AA",
    "watches x !!",
  ])
    process.heard(notice);
  assert.equal(a.count, 0);
});
