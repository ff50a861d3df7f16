import assert from "node:assert/strict";
import { test } from "node:test";
import { RingHistory } from "../../../core/agents/history/history.ts";
import { DEFAULT_SETTINGS } from "../../../core/agents/run/options.ts";
import { emptyRunResult } from "../../../core/agents/run/run.ts";
import { ServiceError } from "../../../core/lib/errors.ts";

const { memory } = DEFAULT_SETTINGS;

test("RingHistory keeps what a failure said when it is fit to be shown", () => {
  const history = new RingHistory("a", 32 * 1024 * 1024);
  history.end(
    history.begin("1", "x", memory),
    "error",
    emptyRunResult(),
    new ServiceError("provider_failed", "rate limited"),
  );
  history.end(history.begin("2", "x", memory), "error", emptyRunResult(), new Error("secret detail"));
  history.end(history.begin("3", "x", memory), "cancelled", emptyRunResult());
  assert.deepEqual(
    history.page(0, 10).entries.map(({ status, error }) => [status, error]),
    [
      ["cancelled", undefined],
      ["error", "internal error"],
      ["error", "rate limited"],
    ],
  );
});

test("RingHistory.page of one owner has its runs alone, in pages; an empty name means those of nobody", () => {
  const history = new RingHistory("a", 32 * 1024 * 1024);
  for (let index = 0; index < 9; index++)
    history.begin(`${index}`, "x", { ...memory, userId: ["ada", "bob", undefined][index % 3] });
  const idsOf = (page: number, owner: string) => history.page(page, 2, owner).entries.map(({ id }) => id);
  assert.deepEqual([idsOf(0, "ada"), idsOf(1, "ada"), idsOf(2, "ada")], [["6", "3"], ["0"], []]);
  assert.deepEqual([idsOf(0, "bob"), idsOf(0, ""), idsOf(0, "ad")], [["7", "4"], ["8", "5"], []]);
  assert.equal(history.page(1, 2, "ada").total, 3);
});

test("RingHistory keeps the last 1,000 runs, newest first, in pages", () => {
  const history = new RingHistory("a", 32 * 1024 * 1024);
  for (let index = 0; index < 2500; index++)
    history.end(history.begin(`${index}`, index, memory), "completed", emptyRunResult());
  const first = history.page(0, 3);
  assert.equal(first.total, 1000);
  assert.deepEqual(
    first.entries.map((entry) => entry.id),
    ["2499", "2498", "2497"],
  );
  assert.deepEqual(
    history.page(999, 1).entries.map((entry) => entry.id),
    ["1500"],
  );
  assert.deepEqual(history.page(10, 100).entries, []);
  assert.equal(history.page(1, 3).page, 1);
});

test("RingHistory forgets the oldest runs when their content fills the memory", () => {
  const history = new RingHistory("a", 32 * 1024 * 1024);
  const large = "x".repeat(1024 * 1024);
  for (let index = 0; index < 100; index++)
    history.end(history.begin(`${index}`, [large], memory), "completed", emptyRunResult());
  const { total, entries } = history.page(0, 1);
  assert.equal(entries[0]!.id, "99");
  assert.ok(total > 20 && total < 40, `${total} runs kept`);
});
