import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { createBatch } from "../../../core/storage/batch.ts";

/** A batch whose trips end when the test says so. */
function slow(limit: number, weigh?: (input: number) => number) {
  const trips: { inputs: readonly number[]; end(result?: Error): void }[] = [];
  const batch = createBatch<number, number>(
    (inputs) =>
      new Promise((resolve, reject) => {
        const end = (error?: Error) => {
          if (error) reject(error);
          else resolve(inputs.map((input) => (input < 0 ? new RangeError(String(input)) : input * 2)));
        };
        trips.push({ inputs, end });
      }),
    weigh === undefined ? { limit } : { limit, weigh },
  );
  return { batch, trips };
}

const turns = async (count: number) => {
  for (let index = 0; index < count; index++) await turn();
};

test("calls of one turn travel together, those that come meanwhile together after it, each with its own answer", async () => {
  const { batch, trips } = slow(100);
  const first = Promise.all([batch(1), batch(2), batch(3)]);
  await turns(2);
  const second = Promise.all([batch(4), batch(5)]);
  await turns(5);
  assert.deepEqual(
    trips.map(({ inputs }) => inputs),
    [[1, 2, 3]],
  );
  trips[0]?.end();
  assert.deepEqual(await first, [2, 4, 6]);
  // Asked for by those who were just answered: they join those that wait.
  const third = batch(6);
  await turns(3);
  assert.deepEqual(trips[1]?.inputs, [4, 5, 6]);
  trips[1]?.end();
  assert.deepEqual([await second, await third], [[8, 10], 12]);
});

test("an Error among the results rejects its call alone, a failed trip all of its calls, and the next trip goes on", async () => {
  const { batch, trips } = slow(100);
  const mixed = Promise.allSettled([batch(1), batch(-1), batch(2)]);
  await turns(2);
  trips[0]?.end();
  assert.deepEqual(
    (await mixed).map(({ status }) => status),
    ["fulfilled", "rejected", "fulfilled"],
  );
  const failed = Promise.allSettled([batch(1), batch(2)]);
  await turns(4);
  trips[1]?.end(new Error("gone"));
  assert.deepEqual(
    (await failed).map((result) => (result as PromiseRejectedResult).reason.message),
    ["gone", "gone"],
  );
  const last = batch(7);
  await turns(4);
  trips[2]?.end();
  assert.equal(await last, 14);
});

test("a trip takes no more than its limit, in order, and a call beyond the limit travels alone", async () => {
  const { batch, trips } = slow(10, (input) => input);
  const all = Promise.all([batch(4), batch(5), batch(6), batch(50), batch(1), batch(2)]);
  for (let index = 0; index < 4; index++) {
    await turns(4);
    trips[index]?.end();
  }
  assert.deepEqual(await all, [8, 10, 12, 100, 2, 4]);
  assert.deepEqual(
    trips.map(({ inputs }) => inputs),
    [[4, 5], [6], [50], [1, 2]],
  );
});

test("idle waits for everything that was asked for", async () => {
  const { batch, trips } = slow(1);
  await batch.idle();
  const done: string[] = [];
  const calls = [batch(1), batch(2)].map((call) => call.then((value) => done.push(String(value))));
  const idle = batch.idle().then(() => done.push("idle"));
  for (let index = 0; index < 2; index++) {
    await turns(4);
    trips[index]?.end();
  }
  await Promise.all([...calls, idle]);
  assert.deepEqual(done, ["2", "4", "idle"]);
});
