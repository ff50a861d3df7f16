/** Records of one kind and the rows that lead to them: what is written, what is left over, what is due. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { CommitConflict } from "../../../core/lib/errors.ts";
import { Collection } from "../../../core/storage/collection.ts";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import type { Commit } from "../../../core/storage/store.ts";

interface Parcel {
  readonly state: "open" | "sent" | "lost";
  readonly city?: string;
  readonly at: number;
  readonly shelf?: string;
  readonly weight?: number;
}

/** Parcels in lists by state, and by city and state, and on shelves; with the commits that they make. */
function parcels() {
  const inner = createMemoryStore();
  const commits: Commit[] = [];
  const store = {
    ...inner,
    commit(commit: Commit) {
      commits.push(commit);
      return inner.commit(commit);
    },
  };
  const rows = new Collection<Parcel>(store, {
    prefix: "pa/",
    times: "pt/",
    timeOf: ({ at, state }) => ({ open: at, sent: at + 100, lost: Number.POSITIVE_INFINITY })[state],
    factsOf: ({ weight }) => (weight === undefined ? [] : [weight]),
    lists: [
      ["ps/", "state"],
      ["pc/", "city", "state"],
    ],
    orderOf: ({ at }) => at,
    placesOf: ({ shelf }) => (shelf === undefined ? [] : [`pl/${shelf}/`]),
  });
  const keys = async () => (await inner.scan({ prefix: "p", limit: 100 })).map(({ key }) => key);
  return { rows, store: inner, commits, keys };
}
const PAGE = { limit: 10, offset: 0, order: "asc" } as const;
const T = (time: number) => time.toString(36).padStart(9, "0");

test("a record in a collection has a row, one of its time, one in each of its lists and one for each of its places", async () => {
  const { rows, keys } = parcels();
  await rows.write("a", undefined, { state: "open", city: "Köln/Süd", at: 5, shelf: "x" });
  await rows.write("b", undefined, { state: "open", at: 6 });
  assert.deepEqual(await keys(), [
    "pa/a",
    "pa/b",
    `pc/K%c3%b6ln%2fS%c3%bcd/open/${T(5)}/a`,
    "pl/x/a",
    `ps/open/${T(5)}/a`,
    `ps/open/${T(6)}/b`,
    `pt/${T(5)}/a`,
    `pt/${T(6)}/b`,
  ]);
});

test("a change of a record writes the rows that are new, removes those that no longer lead to it, and leaves the others alone", async () => {
  const { rows, commits, keys } = parcels();
  await rows.write("a", undefined, { state: "open", at: 5, shelf: "x" });
  await rows.write("a", await rows.read("a"), { state: "open", at: 5, shelf: "y" });
  const { put, delete: removed } = commits.at(-1)!;
  assert.deepEqual([put!.map(([key]) => key), removed], [["pa/a", "pl/y/a"], ["pl/x/a"]]);
  await rows.write("a", await rows.read("a"), { state: "sent", at: 5 });
  assert.deepEqual(await keys(), ["pa/a", `ps/sent/${T(5)}/a`, `pt/${T(105)}/a`]);
  await rows.write("a", await rows.read("a"), undefined);
  assert.deepEqual(await keys(), []);
});

test("of two changes of a record that was read once, one is a conflict that leaves nothing behind, and so is a second creation", async () => {
  const { rows, keys } = parcels();
  await rows.write("a", undefined, { state: "open", at: 5 });
  await assert.rejects(rows.write("a", undefined, { state: "open", at: 6, shelf: "x" }), CommitConflict);
  const found = await rows.read("a");
  await rows.write("a", found, { state: "sent", at: 5 });
  await assert.rejects(rows.write("a", found, { state: "open", at: 7, shelf: "x" }), CommitConflict);
  await assert.rejects(rows.write("a", found, undefined), CommitConflict);
  assert.deepEqual(await keys(), ["pa/a", `ps/sent/${T(5)}/a`, `pt/${T(105)}/a`]);
});

test("a collection lists and counts by what a filter names, in either order and from any place", async () => {
  const { rows } = parcels();
  for (const [id, state, city] of [
    ["a", "open", "Ulm"],
    ["b", "sent", "Ulm"],
    ["c", "open", "Bonn"],
    ["d", "open", undefined],
  ] as const)
    await rows.write(id, undefined, { state, city, at: id.charCodeAt(0) });
  const times = async (filter: Partial<Parcel>, page = {}) =>
    (await rows.list(filter, { ...PAGE, ...page })).map(({ at }) => String.fromCharCode(at)).join("");
  assert.equal(await times({ state: "open" }), "acd");
  assert.equal(await times({ state: "open", city: undefined }, { order: "desc" }), "dca");
  assert.equal(await times({ state: "open" }, { offset: 1, limit: 1 }), "c");
  assert.equal(await times({ state: "open", city: "Ulm" }), "a");
  assert.deepEqual([await rows.count({ state: "open" }), await rows.count({ state: "sent", city: "Bonn" })], [3, 0]);
});

test("records of a collection are due in the order of their times, and those before a time are removed with a row that leads to them", async () => {
  const { rows, store } = parcels();
  for (const at of [3, 1, 2]) await rows.write(`r${at}`, undefined, { state: "open", at });
  assert.deepEqual(
    (await rows.due(2)).map(({ id, time }) => [id, time.key]),
    [1, 2].map((at) => [`r${at}`, `pt/${T(at)}/r${at}`]),
  );
  await rows.removeBefore(3, new AbortController().signal);
  assert.deepEqual(
    (await store.scan({ prefix: "pa/", limit: 10 })).map(({ key }) => key),
    ["pa/r3"],
  );
  assert.equal(await rows.read("r1"), undefined);
});

test("rows of the time and the lists of a record say what its kind tells of it, and are written again when only that changes", async () => {
  const { rows, commits, store } = parcels();
  const record = { state: "open", at: 5, shelf: "x", weight: 1 } as const;
  await rows.write("a", undefined, record);
  await rows.write("a", await rows.read("a"), { ...record, weight: 2 });
  const { put, delete: removed } = commits.at(-1)!;
  assert.deepEqual(put!.slice(1), [
    [`pt/${T(5)}/a`, "[2]"],
    [`ps/open/${T(5)}/a`, "[2]"],
  ]);
  assert.deepEqual(removed, []);
  assert.equal((await store.get("pl/x/a"))?.value, "");
});

test("a record whose time never comes has no row of it, and is not due", async () => {
  const { rows, keys } = parcels();
  await rows.write("a", undefined, { state: "lost", at: 5 });
  assert.deepEqual(await keys(), ["pa/a", `ps/lost/${T(5)}/a`]);
  assert.deepEqual(await rows.due(Date.now()), []);
  await rows.write("a", await rows.read("a"), { state: "open", at: 5 });
  assert.deepEqual(await keys(), ["pa/a", `ps/open/${T(5)}/a`, `pt/${T(5)}/a`]);
  await rows.write("a", await rows.read("a"), { state: "lost", at: 5 });
  assert.deepEqual(await keys(), ["pa/a", `ps/lost/${T(5)}/a`]);
});
