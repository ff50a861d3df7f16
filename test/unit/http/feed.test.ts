/** The feed that sockets follow: cursors, slices, and what happens to followers that are slow. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { Feed } from "../../../core/http/feed.ts";
import { silent } from "../../support/tools.ts";

/** A peer that takes what it is sent, unless it is told to be slow. */
class Reader {
  readonly got: string[] = [];
  dropped = 0;
  buffered = 0;
  corks = 0;
  closed: number | null = null;
  readonly logger = silent;

  send(text: string | Uint8Array): boolean {
    this.got.push(String(text));
    return true;
  }
  drop(count: number): void {
    this.dropped += count;
  }
  cork(work: () => void): void {
    this.corks++;
    work();
  }
  close(code = 1000): void {
    this.closed = code;
  }
}

const BEHIND = 1024 * 1024;
const all = (item: number) => String(item);
const numbers = (from: number, to: number) => Array.from({ length: to - from }, (_, index) => String(from + index));

async function settled(holds: () => boolean, what: string): Promise<void> {
  for (let turns = 0; turns < 10_000; turns++) {
    if (holds()) return;
    await turn();
  }
  assert.fail(`did not happen: ${what}`);
}

test("a follower gets what is published after it came, in order and in one write, and nothing after it has stopped", async () => {
  const feed = new Feed<number>(100);
  feed.publish(0);
  const reader = new Reader();
  const follower = feed.follow(reader, all);
  for (const item of [1, 2, 3]) feed.publish(item);
  assert.deepEqual(reader.got, [], "not in the publisher's time");
  await settled(() => reader.got.length === 3, "three items");
  assert.deepEqual([reader.got, reader.corks], [["1", "2", "3"], 1]);
  follower.stop();
  follower.stop();
  feed.publish(4);
  await turn();
  await turn();
  assert.equal(reader.got.length, 3);
  assert.equal(feed.size, 0);
});

test("each follower gets what it selects, and one that selects nothing costs no write", async () => {
  const feed = new Feed<number>(100);
  const [even, none] = [new Reader(), new Reader()];
  feed.follow(even, (item) => (item % 2 === 0 ? String(item) : null));
  feed.follow(none, () => null);
  for (let item = 0; item < 10; item++) feed.publish(item);
  await settled(() => even.got.length === 5, "the even ones");
  assert.deepEqual(even.got, ["0", "2", "4", "6", "8"]);
  assert.deepEqual([none.got.length, none.corks], [0, 0]);
});

test("more items than one stride are all sent", async () => {
  const feed = new Feed<number>(1_000);
  const reader = new Reader();
  feed.follow(reader, all);
  for (let item = 0; item < 700; item++) feed.publish(item);
  await settled(() => reader.got.length === 700, "all of them");
  assert.deepEqual(reader.got, numbers(0, 700));
});

test("a follower that is behind is passed over, and goes on where it was when it wakes", async () => {
  const feed = new Feed<number>(100);
  const [slow, quick] = [new Reader(), new Reader()];
  const follower = feed.follow(slow, all);
  feed.follow(quick, all);
  slow.buffered = BEHIND;
  for (let item = 0; item < 50; item++) feed.publish(item);
  await settled(() => quick.got.length === 50, "the other one is served");
  assert.deepEqual(slow.got, []);
  slow.buffered = 0;
  follower.wake();
  await settled(() => slow.got.length === 50, "what it has missed");
  assert.deepEqual([slow.got, slow.dropped], [numbers(0, 50), 0]);
});

test("a follower that falls out of the ring is told how many it has lost, and goes on with the oldest that is left", async () => {
  const feed = new Feed<number>(10);
  const slow = new Reader();
  const follower = feed.follow(slow, all);
  slow.buffered = BEHIND;
  for (let item = 0; item < 35; item++) feed.publish(item);
  await turn();
  slow.buffered = 0;
  follower.wake();
  await settled(() => slow.got.length === 10, "what is left");
  assert.deepEqual([slow.dropped, slow.got], [25, numbers(25, 35)]);
});

test("a follower that fails is closed (1011), and the others go on", async () => {
  const feed = new Feed<number>(10);
  const [one, broken, other] = [new Reader(), new Reader(), new Reader()];
  feed.follow(one, all);
  feed.follow(broken, () => {
    throw new Error("no such item");
  });
  feed.follow(other, all);
  feed.publish(1);
  await settled(() => one.got.length + other.got.length === 2, "both are served");
  assert.deepEqual([broken.closed, feed.size], [1011, 2]);
});

test("followers may come and go while they are served", async () => {
  const feed = new Feed<number>(100);
  const late = new Reader();
  const readers = Array.from({ length: 50 }, () => new Reader());
  const followers = readers.map((reader, index) =>
    feed.follow(reader, (item) => {
      if (index === 25 && item === 0) {
        for (const at of [24, 25, 26]) followers[at]!.stop();
        feed.follow(late, all);
      }
      return String(item);
    }),
  );
  feed.publish(0);
  feed.publish(1);
  await settled(
    () => readers[0]!.got.length === 2 && readers[49]!.got.length === 2,
    "the first and the last are served",
  );
  feed.publish(2);
  const served = readers.filter((_, index) => index < 24 || index > 26);
  await settled(
    () => late.got.length === 1 && served.every(({ got }) => got.length === 3),
    "the one that came and all that stayed",
  );
  assert.deepEqual(late.got, ["2"]);
  assert.ok(readers[25]!.got.length <= 1);
  assert.equal(feed.size, 48);
  for (const reader of served) assert.deepEqual(reader.got, ["0", "1", "2"]);
});

test("many followers are served in slices: everybody else has a turn after a few milliseconds", async () => {
  const feed = new Feed<number>(10);
  let served = 0;
  for (let count = 0; count < 60; count++) {
    const reader = new Reader();
    reader.send = () => {
      for (const until = performance.now() + 1; performance.now() < until; );
      served++;
      return true;
    };
    feed.follow(reader, all);
  }
  feed.publish(1);
  for (let before = 0; before < 60; before = served) {
    await turn();
    assert.ok(served - before <= 5, `${served - before} milliseconds of work in one turn`);
  }
});
