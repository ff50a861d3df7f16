/** An execution is read in several reads: what comes of them is how it was at one moment, or they end. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { executionKey, journalKey, openExecutionKey } from "../../../core/storage/keys.ts";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import type { Store } from "../../../core/storage/store.ts";
import { entriesText, type JournalEntry, openRowText, recordRowText } from "../../../core/workflows/journal/entries.ts";
import { loadExecution, loadWhole, readEntries, readExecution } from "../../../core/workflows/journal/load.ts";
import { at, SUSPENDED, startOf } from "../../support/journals.ts";

const START = startOf({ number: 7 });
const textOf = (entries: readonly JournalEntry[]) => entriesText(entries.map((entry) => JSON.stringify(entry)));

/** Suspended, with two entries in each of two journal rows, the last two beside the record. */
async function suspended(rows = 2): Promise<Store> {
  const store = createMemoryStore();
  const rest = recordRowText(
    { text: "{}", repeats: [] },
    JSON.stringify(START),
    "[]",
    rows,
    textOf(SUSPENDED.slice(4)),
  );
  await store.commit({
    put: [
      [executionKey(7), rest],
      [journalKey(7, 0), textOf(SUSPENDED.slice(0, 2))],
      [journalKey(7, 1), textOf(SUSPENDED.slice(2, 4))],
    ],
  });
  return store;
}

const RESUME: JournalEntry = ["resume", "ask", at(100), { approved: true }];

test("one that is resumed between two reads is what it was when its record was read", async () => {
  const store = await suspended();
  const found = (await readExecution(store, 7))!;
  await store.commit({
    put: [
      [openExecutionKey(7), openRowText("p", JSON.stringify(START), [])],
      [journalKey(7, 2), textOf([...SUSPENDED.slice(4), RESUME])],
    ],
  });
  const loaded = (await loadExecution(store, found))!;
  assert.deepEqual(loaded.entries, SUSPENDED);
  assert.deepEqual([loaded.state.status, loaded.rows], ["suspended", 2]);
});

test("rows behind those that the record counts do not matter, however long they stay", async () => {
  const store = await suspended();
  await store.commit({ put: [[journalKey(7, 2), textOf([RESUME])]] });
  const record = await loadWhole(store, () => readExecution(store, 7));
  assert.deepEqual(record?.loaded.entries, SUSPENDED);
});

test("rows that are missing for good end the reads with an error that says so", async () => {
  const store = await suspended(3);
  const isIncomplete = {
    name: "ServiceError",
    kind: "internal",
    message: "the journal of the execution is not complete",
  };
  await assert.rejects(
    loadWhole(store, () => readExecution(store, 7)),
    isIncomplete,
  );
  const whole = await suspended();
  assert.deepEqual(await readEntries(whole, START, 5), SUSPENDED.slice(0, 5));
  await assert.rejects(readEntries(whole, START, 7), isIncomplete);
});

test("one that is removed between two reads is not there", async () => {
  const store = await suspended(3);
  let reads = 0;
  const read = async () => (++reads < 3 ? readExecution(store, 7) : null);
  assert.equal(await loadWhole(store, read), null);
  await assert.rejects(readEntries(createMemoryStore(), START, 1), { kind: "unavailable" });
});
