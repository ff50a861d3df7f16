/** What the service expects of every store. Each test opens an empty one. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import fc from "fast-check";
import { CommitConflict } from "../../core/lib/errors.ts";
import { createSequence } from "../../core/storage/sequence.ts";
import { EXCERPT_CHARACTERS, type Range, type Store, type Tail } from "../../core/storage/store.ts";
import { crowd, judged, sceneOf } from "../model/cases.ts";
import { createNumbers, play } from "../model/clients.ts";
import { ModelStore } from "./store-model.ts";

interface StoreUnderTest {
  /** An empty store, closed when the test ends. */
  open(t: TestContext): Promise<Store>;
  /** Why it cannot be tested here. */
  skip?: string | false;
  /** How many runs the property tests make; default 100. */
  runs?: number;
  /** Whether reads of large rows are tried too, which takes some seconds. Default: yes. */
  largeReads?: boolean;
}

const keysOf = async (store: Store, range: Range) => (await store.scan(range)).map(({ key }) => key);
const valuesOf = async (store: Store, keys: string[]) => (await store.getMany(keys)).map((row) => row?.value);
const puts = (keys: readonly string[]) => keys.map((key): [string, string] => [key, JSON.stringify(key)]);

/** In the order of their bytes. Between them everything that is special to somebody: SQL, LIKE, JSON, regular expressions. */
const SPECIAL = [
  "a/!",
  'a/"',
  "a/$",
  "a/%",
  "a/%%",
  "a/%a",
  "a/'",
  "a/*",
  "a/-",
  "a/0",
  "a/9",
  "a/A",
  "a/Z",
  "a/[x]",
  "a/\\",
  "a/\\u0041",
  "a/_",
  "a/_a",
  "a/a",
  "a/a/b",
  "a/z",
  "a/{",
  "a/~",
];

export function storeSuite(name: string, under: StoreUnderTest): void {
  const { open, skip = false, runs = 100, largeReads = true } = under;
  const testLarge = largeReads ? test : () => undefined;

  describe(`store ${name}`, { skip }, () => {
    test("a row that was put is there with the revision of its commit, and what was not put is undefined", async (t) => {
      const store = await open(t);
      const revision = await store.commit({ put: [["a/1", '{"a":1}']] });
      assert.deepEqual(await store.get("a/1"), { key: "a/1", value: '{"a":1}', revision });
      assert.equal(await store.get("a/2"), undefined);
      assert.equal(await store.get("A/1"), undefined);
      assert.equal(await store.get("a/1 ".trim()).then((row) => row?.value), '{"a":1}');
    });

    test("getMany gives rows in the order of the keys, duplicates and absent ones included", async (t) => {
      const store = await open(t);
      await store.commit({ put: puts(["a/1", "a/2", "a/3"]) });
      assert.deepEqual(await valuesOf(store, ["a/3", "a/9", "a/1", "a/3"]), ['"a/3"', undefined, '"a/1"', '"a/3"']);
      assert.deepEqual(await store.getMany([]), []);
      const keys = Array.from({ length: 3_000 }, (_, index) => `m/${index}`);
      await store.commit({ put: puts(keys) });
      assert.deepEqual(
        await valuesOf(store, keys),
        keys.map((key) => JSON.stringify(key)),
      );
    });

    testLarge(
      "values that are larger together than one result may be come whole, or as excerpts with their sizes",
      async (t) => {
        const store = await open(t);
        const textOf = (index: number) => JSON.stringify(`${index} ${"ü".repeat(500_000)} ${index}`);
        const keys = Array.from({ length: 40 }, (_, index) => `big/${String(index).padStart(2, "0")}`);
        for (const [index, key] of keys.entries()) await store.commit({ put: [[key, textOf(index)]] });
        await store.commit({ put: [["big/small", "1"]], add: [["big/count", 2]] });
        const size = Buffer.byteLength(textOf(7));
        const range = { prefix: "big/", limit: 100 };
        const [whole, ...some] = await Promise.all([
          store.scan(range),
          ...[1, 2, 3].map(() => store.scan({ ...range, limit: 3, reverse: true, longest: size + 2 })),
        ]);
        assert.deepEqual(
          whole.map(({ key, size }) => [key, size]),
          [...keys, "big/count", "big/small"].map((key) => [key, undefined]),
        );
        assert.ok(keys.every((_, index) => whole[index]!.value === textOf(index)));
        for (const rows of some)
          assert.deepEqual(
            rows.map(({ value }) => value),
            ["1", "2", textOf(39)],
          );
        const [cut, small, none, again] = await store.getMany([keys[7]!, "big/small", "big/none", keys[7]!], size - 1);
        const { revision } = whole[7]!;
        const value = textOf(7).slice(0, EXCERPT_CHARACTERS) + textOf(7).slice(-EXCERPT_CHARACTERS);
        assert.deepEqual([cut, small?.value, none], [{ key: keys[7], value, revision, size }, "1", undefined]);
        assert.deepEqual(again, cut);
        assert.deepEqual((await store.scan({ prefix: keys[7]!, limit: 1, longest: 100 }))[0], cut);
        const tail = { prefix: "big/", before: "big/count", otherKey: "big/small" };
        const [all, two, less] = await Promise.all([
          store.tail({ ...tail, limit: 40 }),
          store.tail({ ...tail, limit: 2 }),
          store.tail({ ...tail, limit: 2, most: size }),
        ]);
        // An engine that copies nothing may give more.
        assert.ok(all === null || Buffer.from(all.text as string).length > 40 * size - 100);
        assert.equal(less, null);
        assert.equal(String(Buffer.from(two!.text as string)), `${textOf(38)},${textOf(39)}`);
      },
    );

    testLarge("large rows that are written while they are read come as they were at one moment", async (t) => {
      const store = await open(t);
      const text = "x".repeat(400_000);
      const keys = Array.from({ length: 90 }, (_, index) => `w/${String(index).padStart(2, "0")}`);
      const write = (n: number) => store.commit({ put: keys.map((key) => [key, JSON.stringify(`${n} ${text}`)]) });
      await write(0);
      const writing = (async () => {
        for (let n = 1; n < 4; n++) await write(n);
      })();
      for (let count = 0; count < 3; count++) {
        const rows = await store.scan({ prefix: "w/", limit: 100 });
        assert.equal(rows.length, keys.length);
        assert.equal(new Set(rows.map(({ value }) => value)).size, 1);
      }
      await writing;
    });

    test("reads that are asked for together are answered each with its own", async (t) => {
      const store = await open(t);
      await store.commit({ put: puts(SPECIAL) });
      const rows = await Promise.all(SPECIAL.map((key) => store.get(key)));
      assert.deepEqual(
        rows.map((row) => row?.key),
        SPECIAL,
      );
      const pages = await Promise.all([
        keysOf(store, { prefix: "a/", limit: 2 }),
        keysOf(store, { prefix: "a/", limit: 2, after: "a/%" }),
        keysOf(store, { prefix: "a/a", limit: 2 }),
        keysOf(store, { prefix: "nothing", limit: 2 }),
        keysOf(store, { prefix: "a/", limit: 2, reverse: true }),
        keysOf(store, { prefix: "a/", limit: 2, reverse: true, before: "a/_" }),
        keysOf(store, { prefix: "a/", limit: 2, skip: 1 }),
      ]);
      assert.deepEqual(pages, [
        ["a/!", 'a/"'],
        ["a/%%", "a/%a"],
        ["a/a", "a/a/b"],
        [],
        ["a/~", "a/{"],
        ["a/\\u0041", "a/\\"],
        ['a/"', "a/$"],
      ]);
    });

    test("values come back as they were: any text of JSON, long ones too", async (t) => {
      const store = await open(t);
      const values = [
        "",
        "é",
        "日本語 🎉",
        "'; DROP TABLE rows; --",
        "\\u0000",
        "\u2028",
        "\ud800",
        "%s ?1 $1 :a",
        "x".repeat(300_000),
      ];
      const texts = [
        ...values.map((value) => JSON.stringify({ value })),
        "[]",
        "null",
        "12",
        "-3.5e7",
        ' {\n\t"a": 1 }',
      ];
      await store.commit({ put: texts.map((text, index) => [`v/${index}`, text]) });
      assert.deepEqual(
        await valuesOf(
          store,
          texts.map((_, index) => `v/${index}`),
        ),
        texts,
      );
      for (const [index, text] of texts.entries()) assert.equal((await store.get(`v/${index}`))?.value, text);
      assert.equal((await store.scan({ prefix: "v/", limit: 100 })).length, texts.length);
    });

    test("scan gives the keys of a prefix alone, in the order of their bytes, whatever characters they have", async (t) => {
      const store = await open(t);
      const others = ["a", "a!", "a.", "a0", "aa/x", "A/x", "b/x", "%/x", "_/x"];
      await store.commit({ put: puts([...SPECIAL, ...others].reverse()) });
      assert.deepEqual(await keysOf(store, { prefix: "a/", limit: 100 }), SPECIAL);
      assert.deepEqual(await keysOf(store, { prefix: "a/", limit: 100, reverse: true }), [...SPECIAL].reverse());
      assert.deepEqual(await keysOf(store, { prefix: "a/%", limit: 100 }), ["a/%", "a/%%", "a/%a"]);
      assert.deepEqual(await keysOf(store, { prefix: "a/_", limit: 100 }), ["a/_", "a/_a"]);
      assert.deepEqual(await keysOf(store, { prefix: "a/a", limit: 100 }), ["a/a", "a/a/b"]);
      assert.deepEqual(await keysOf(store, { prefix: "a/~~", limit: 100 }), []);
      assert.deepEqual(await keysOf(store, { prefix: "_/", limit: 100 }), ["_/x"]);
    });

    test("keys may be numbers, or what members of every object are called", async (t) => {
      const store = await open(t);
      const keys = ["10", "9", "__proto__", "constructor", "n/toString"];
      await store.commit({ put: puts(keys), add: [["7", 1]] });
      await store.commit({ add: [["7", 2]], delete: ["9", "constructor"] });
      assert.deepEqual(await valuesOf(store, ["7", ...keys]), [
        "3",
        '"10"',
        undefined,
        '"__proto__"',
        undefined,
        '"n/toString"',
      ]);
      assert.deepEqual(await keysOf(store, { prefix: "_", limit: 100 }), ["__proto__"]);
    });

    test("scan keeps to its bounds, which are exclusive, and to limit and skip in both directions", async (t) => {
      const store = await open(t);
      const keys = Array.from({ length: 50 }, (_, index) => `k/${String(index).padStart(2, "0")}`);
      await store.commit({ put: puts(keys) });
      for (const reverse of [false, true]) {
        const ordered = reverse ? [...keys].reverse() : keys;
        const scan = (range: Omit<Range, "prefix" | "limit" | "reverse"> & { limit?: number }) =>
          keysOf(store, { limit: 100, ...range, prefix: "k/", reverse });
        const between = ordered.filter((key) => key > "k/10" && key < "k/20");
        assert.deepEqual(await scan({ after: "k/10", before: "k/20" }), between);
        assert.deepEqual(await scan({ after: "k/10", before: "k/20", limit: 3 }), between.slice(0, 3));
        assert.deepEqual(await scan({ after: "k/10", before: "k/20", limit: 3, skip: 4 }), between.slice(4, 7));
        assert.deepEqual(await scan({ after: "k/101", before: "k/1" }), []);
        assert.deepEqual(
          await scan({ after: "k/45" }),
          ordered.filter((key) => key > "k/45"),
        );
        assert.deepEqual(
          await scan({ before: "k/05" }),
          ordered.filter((key) => key < "k/05"),
        );
        assert.deepEqual(await scan({ after: "a/", before: "z/" }), ordered);
        assert.deepEqual(await scan({ after: "z/" }), []);
        assert.deepEqual(await scan({ before: "a/" }), []);
        assert.deepEqual(await scan({ limit: 0 }), []);
        assert.deepEqual(await scan({ skip: 49 }), ordered.slice(49));
        assert.deepEqual(await scan({ skip: 50 }), []);
      }
    });

    test("tail gives the last values as one text, where they begin if there may be more, and one other row", async (t) => {
      const store = await open(t);
      // From some limit on engines may give bytes.
      for (const count of [5, 500]) {
        const keys = Array.from({ length: count }, (_, index) => `t${count}/${String(index).padStart(3, "0")}`);
        const otherKey = `t${count}`;
        const values = keys.map((key, index) =>
          JSON.stringify(`${key} é 日本 😀, ]${index % 7 === 0 ? "x".repeat(2_000) : ""}`),
        );
        const revision = await store.commit({
          put: [[otherKey, "[1]"], ...keys.map((key, index): [string, string] => [key, values[index]!])],
          add: [["t/counter", count]],
        });
        const tail = async (bounds: Partial<Tail> & { limit: number }) => {
          const joined = await store.tail({ prefix: `t${count}/`, otherKey, ...bounds });
          assert.ok(joined !== null);
          const text = Buffer.from(joined.text as string).toString();
          return { values: JSON.parse(`[${text}]`), first: joined.first, other: joined.other };
        };
        const row = { key: otherKey, value: "[1]", revision };
        const whole = { values: values.map((value) => JSON.parse(value)), first: null, other: row };
        assert.deepEqual(await tail({ limit: count + 1 }), whole);
        assert.deepEqual(await tail({ limit: count }), { ...whole, first: keys[0] });
        assert.deepEqual(await tail({ limit: 3 }), { values: whole.values.slice(-3), first: keys.at(-3), other: row });
        const bounds = { after: keys[0]!, before: keys[4]! };
        assert.deepEqual(await tail({ limit: 40, ...bounds }), { ...whole, values: whole.values.slice(1, 4) });
        assert.deepEqual(await tail({ limit: 2, ...bounds }), {
          values: whole.values.slice(2, 4),
          first: keys[2],
          other: row,
        });
        const none = { values: [], first: null, other: undefined };
        assert.deepEqual(await tail({ limit: 40, before: keys[0]!, otherKey: "none" }), none);
        // Many at once, of several limits.
        const limits = Array.from({ length: 40 }, (_, index) => 1 + (index % 7));
        for (const [index, { values: found }] of (
          await Promise.all(limits.map((limit) => tail({ limit })))
        ).entries()) {
          assert.deepEqual(found, whole.values.slice(-limits[index]!));
        }
      }
    });

    test("a value that grows or shrinks is read, expected and deleted like any other, whole and as an excerpt", async (t) => {
      const store = await open(t);
      const sizes = [20, 300, 950, 975, 976, 977, 978, 1_000, 3_000, 70_000];
      const keys = sizes.map((_, index) => `g/${index}`);
      let expect: [string, number | null][] = keys.map((key) => [key, null]);
      for (let shift = 0; shift <= sizes.length; shift++) {
        const values = keys.map((_, index) =>
          JSON.stringify(String(shift).padEnd(sizes[(index + shift) % sizes.length]!, "é")),
        );
        const put = keys.map((key, index): [string, string] => [key, values[index]!]);
        const revision = await store.commit({ put, expect });
        await assert.rejects(store.commit({ put, expect }), CommitConflict);
        expect = keys.map((key) => [key, revision]);
        const whole = put.map(([key, value]) => ({ key, value, revision }));
        assert.deepEqual(await store.getMany(keys), whole);
        assert.deepEqual(await store.scan({ prefix: "g/", limit: 100, reverse: true }), [...whole].reverse());
        const some = whole.map((row) => {
          const size = Buffer.byteLength(row.value);
          const { value } = row;
          const [first, last] = [value.slice(0, EXCERPT_CHARACTERS), value.slice(-EXCERPT_CHARACTERS)];
          return size <= 1_500 ? row : { ...row, value: first + last, size };
        });
        assert.deepEqual(await store.getMany(keys, 1_500), some);
        assert.deepEqual(await store.scan({ prefix: "g/", limit: 100, longest: 1_500 }), some);
        const tail = await store.tail({ prefix: "g/", limit: 4, otherKey: keys[0]! });
        assert.equal(Buffer.from(tail!.text as string).toString(), values.slice(-4).join());
        assert.deepEqual(tail!.other, whole[0]);
        await assert.rejects(store.commit({ add: [[keys[shift % keys.length]!, 1]] }));
      }
      await store.commit({ delete: keys.slice(0, 5), clear: ["g/5", "g/6", "g/7"] });
      assert.deepEqual(await keysOf(store, { prefix: "g/", limit: 100 }), keys.slice(8));
      await store.commit({ delete: keys.slice(8), add: [["g/0", 1]] });
      assert.deepEqual(
        (await store.scan({ prefix: "g/", limit: 100 })).map(({ value }) => value),
        ["1"],
      );
    });

    test("pages by the last key see every row once, however many there are", async (t) => {
      const store = await open(t);
      const keys = Array.from({ length: 5_000 }, (_, index) => `p/${String((index * 7_919) % 5_000).padStart(5, "0")}`);
      await store.commit({ put: puts(keys) });
      const seen: string[] = [];
      for (let after: string | undefined; ; after = seen.at(-1)) {
        const page = await keysOf(store, { prefix: "p/", limit: 190, ...(after === undefined ? {} : { after }) });
        if (page.length === 0) break;
        seen.push(...page);
      }
      assert.deepEqual(seen, [...keys].sort());
    });

    test("a commit does all of its parts, clear and delete before put and add", async (t) => {
      const store = await open(t);
      await store.commit({ put: puts(["a/1", "a/2", "b/1", "c/1"]), add: [["n/a", 5]] });
      await store.commit({
        clear: ["a/", "n/"],
        delete: ["b/1", "b/none"],
        put: puts(["a/2", "b/1"]),
        add: [["n/a", 2]],
      });
      assert.deepEqual(await keysOf(store, { prefix: "a/", limit: 9 }), ["a/2"]);
      assert.deepEqual(await valuesOf(store, ["b/1", "c/1", "n/a"]), ['"b/1"', '"c/1"', "2"]);
    });

    test("what a commit deletes or clears does not count for its additions, whatever it was", async (t) => {
      const store = await open(t);
      await store.commit({ put: [["t/1", '"text"'], ...puts(["t/2"])], add: [["t/n", 5]] });
      await store.commit({
        delete: ["t/1"],
        clear: ["t/2"],
        add: [
          ["t/1", 3],
          ["t/2", 4],
        ],
      });
      assert.deepEqual(await valuesOf(store, ["t/1", "t/2", "t/n"]), ["3", "4", "5"]);
      const results = await Promise.allSettled([
        store.commit({ put: puts(["t/3"]) }),
        store.commit({ delete: ["t/3"], add: [["t/3", 1]] }),
      ]);
      assert.deepEqual(
        results.map(({ status }) => status),
        ["fulfilled", "fulfilled"],
      );
      assert.deepEqual(await valuesOf(store, ["t/3"]), ["1"]);
    });

    test("clear deletes what begins with the prefix and nothing else", async (t) => {
      const store = await open(t);
      await store.commit({ put: puts(["a/_/1", "a/x/1", "a/%/1", "a/_", "a/_0", "A/_/1"]) });
      await store.commit({ clear: ["a/_/"] });
      assert.deepEqual(await keysOf(store, { prefix: "a/", limit: 9 }), ["a/%/1", "a/_", "a/_0", "a/x/1"]);
      await store.commit({ clear: ["a/%", "nothing/"] });
      assert.deepEqual(await keysOf(store, { prefix: "a/", limit: 9 }), ["a/_", "a/_0", "a/x/1"]);
      assert.equal((await keysOf(store, { prefix: "A/", limit: 9 })).length, 1);
    });

    test("an expectation that does not hold names its keys, and nothing of the commit happens", async (t) => {
      const store = await open(t);
      const revision = await store.commit({ put: puts(["e/1", "e/2"]), add: [["e/n", 1]] });
      const lost = store.commit({
        put: puts(["e/3"]),
        delete: ["e/2"],
        clear: ["e/1"],
        add: [["e/n", 1]],
        expect: [
          ["e/1", revision],
          ["e/2", null],
          ["e/9", revision],
        ],
      });
      await assert.rejects(lost, (error) => {
        assert.ok(error instanceof CommitConflict);
        assert.deepEqual([...error.keys].sort(), ["e/2", "e/9"]);
        return true;
      });
      assert.deepEqual(await valuesOf(store, ["e/1", "e/2", "e/3", "e/n"]), ['"e/1"', '"e/2"', undefined, "1"]);
    });

    test("a revision can be expected once; absence can be expected until the row is there, and again when it is gone", async (t) => {
      const store = await open(t);
      const first = await store.commit({ put: [["e/1", "1"]], expect: [["e/1", null]] });
      await assert.rejects(store.commit({ put: [["e/1", "2"]], expect: [["e/1", null]] }), CommitConflict);
      const second = await store.commit({ put: [["e/1", "2"]], expect: [["e/1", first]] });
      await assert.rejects(store.commit({ put: [["e/1", "3"]], expect: [["e/1", first]] }), CommitConflict);
      await store.commit({ delete: ["e/1"], expect: [["e/1", second]] });
      await assert.rejects(store.commit({ put: [["e/1", "4"]], expect: [["e/1", second]] }), CommitConflict);
      const again = await store.commit({ put: [["e/1", "1"]], expect: [["e/1", null]] });
      assert.ok(again !== first && again !== second, "a row that came back has a revision of its own");
      await store.commit({
        expect: [
          ["e/1", again],
          ["e/none", null],
        ],
      });
    });

    test("a commit that is made again, as by a caller who got no answer, happens once if it expects what it changes", async (t) => {
      const store = await open(t);
      const first = await store.commit({ put: puts(["d/1", "d/2"]) });
      const again = [
        { put: puts(["d/3"]), add: [["d/n", 1]], expect: [["d/3", null]] },
        { put: puts(["d/1"]), add: [["d/n", 1]], expect: [["d/1", first]] },
        { delete: ["d/2"], add: [["d/n", 1]], expect: [["d/2", first]] },
      ] as const;
      for (const commit of again) {
        await store.commit(commit);
        await assert.rejects(store.commit(commit), CommitConflict);
      }
      // Also while the first try is still under way.
      const commit = { put: puts(["d/4"]), add: [["d/n", 1]], expect: [["d/4", null]] } as const;
      const results = await Promise.allSettled([store.commit(commit), store.commit(commit), store.commit(commit)]);
      assert.equal(results.filter(({ status }) => status === "fulfilled").length, 1);
      assert.deepEqual(await valuesOf(store, ["d/n"]), ["4"]);
    });

    test("the revision of a counter can be expected until somebody adds to it", async (t) => {
      const store = await open(t);
      await store.commit({ add: [["c/n", 1]] });
      const row = await store.get("c/n");
      await store.commit({ put: puts(["c/1"]), expect: [["c/n", row!.revision]] });
      await store.commit({ add: [["c/n", 1]], expect: [["c/n", row!.revision]] });
      await assert.rejects(store.commit({ add: [["c/n", 1]], expect: [["c/n", row!.revision]] }), CommitConflict);
      assert.deepEqual(await valuesOf(store, ["c/n"]), ["2"]);
    });

    test("of commits that each expect absent what the other puts, one happens", async (t) => {
      const store = await open(t);
      for (let round = 0; round < 10; round++) {
        const [a, b] = [`k/${round}/a`, `k/${round}/b`];
        const results = await Promise.allSettled([
          store.commit({ put: puts([a]), expect: [[b, null]] }),
          store.commit({ put: puts([b]), expect: [[a, null]] }),
        ]);
        assert.deepEqual(results.map(({ status }) => status).sort(), ["fulfilled", "rejected"]);
        assert.equal((await keysOf(store, { prefix: `k/${round}/`, limit: 9 })).length, 1);
      }
    });

    test("a commit that changes nothing is refused as well when its expectation is false", async (t) => {
      const store = await open(t);
      const revision = await store.commit({ put: puts(["f/1"]) });
      await store.commit({
        expect: [
          ["f/1", revision],
          ["f/2", null],
        ],
      });
      await assert.rejects(store.commit({ expect: [["f/1", null]] }), CommitConflict);
      await assert.rejects(store.commit({ expect: [["f/2", revision]] }), CommitConflict);
    });

    test("expecting a row that is not there leaves nothing in its place", async (t) => {
      const store = await open(t);
      await store.commit({ put: puts(["x/2"]), expect: [["x/1", null]] });
      await assert.rejects(
        store.commit({
          put: puts(["x/2"]),
          expect: [
            ["x/3", 1],
            ["x/4", null],
          ],
        }),
        CommitConflict,
      );
      assert.deepEqual(await keysOf(store, { prefix: "x/", limit: 9 }), ["x/2"]);
      assert.equal(await store.get("x/1"), undefined);
    });

    test("a row that a commit puts twice has the last value", async (t) => {
      const store = await open(t);
      const revision = await store.commit({
        put: [
          ["l/1", "1"],
          ["l/2", "2"],
          ["l/1", "3"],
        ],
      });
      assert.deepEqual(await store.get("l/1"), { key: "l/1", value: "3", revision });
    });

    test("of many that expect the same revision at once, one wins", async (t) => {
      const store = await open(t);
      for (let round = 0; round < 20; round++) {
        const row = await store.get("hot");
        const attempts = Array.from({ length: 10 }, (_, index) =>
          store.commit({
            put: [["hot", String(index)]],
            add: [["wins", 1]],
            expect: [["hot", row?.revision ?? null]],
          }),
        );
        const results = await Promise.allSettled(attempts);
        assert.equal(results.filter(({ status }) => status === "fulfilled").length, 1);
        for (const result of results)
          if (result.status === "rejected") assert.ok(result.reason instanceof CommitConflict);
      }
      assert.deepEqual(await valuesOf(store, ["wins"]), ["20"]);
    });

    test("a lost expectation does not take down those who commit at the same moment", async (t) => {
      const store = await open(t);
      await store.commit({ put: puts(["l/taken"]) });
      const results = await Promise.allSettled(
        Array.from({ length: 60 }, (_, index) =>
          store.commit({ put: puts([`l/${index}`]), ...(index % 3 === 0 ? { expect: [["l/taken", null]] } : {}) }),
        ),
      );
      assert.deepEqual(
        results.map(({ status }) => status),
        results.map((_, index) => (index % 3 === 0 ? "rejected" : "fulfilled")),
      );
      assert.equal((await keysOf(store, { prefix: "l/", limit: 100 })).length, 41);
    });

    test("commits of one moment see what those before them did", async (t) => {
      const store = await open(t);
      const revision = await store.commit({ put: puts(["g/a", "g/b", "g/c/1"]) });
      const results = await Promise.allSettled([
        store.commit({ delete: ["g/a"] }),
        store.commit({ put: [["g/a", "1"]], expect: [["g/a", null]] }),
        store.commit({ put: [["g/a", "2"]], expect: [["g/a", null]] }),
        store.commit({ put: [["g/b", "1"]] }),
        store.commit({ put: [["g/b", "2"]], expect: [["g/b", revision]] }),
        store.commit({ clear: ["g/c/"] }),
        store.commit({ put: [["g/c/1", "1"]], expect: [["g/c/1", revision]] }),
        store.commit({ put: [["g/c/1", "2"]], expect: [["g/c/1", null]] }),
        store.commit({ add: [["g/n", 3]] }),
        store.commit({ delete: ["g/n"] }),
        store.commit({ add: [["g/n", 4]] }),
        store.commit({ put: [["g/m", "10"]] }),
        store.commit({ add: [["g/m", -4]] }),
      ]);
      const won = results.map(({ status }) => (status === "fulfilled" ? 1 : 0)).join("");
      assert.equal(won, "1101010111111");
      assert.deepEqual(await valuesOf(store, ["g/a", "g/b", "g/c/1", "g/n", "g/m"]), ["1", "1", "2", "4", "6"]);
    });

    test("of two commits of one moment that put the same row, the revision of the last is the row's", async (t) => {
      const store = await open(t);
      const [first, second] = await Promise.all([
        store.commit({ put: puts(["r/1", "r/2"]) }),
        store.commit({ put: puts(["r/1"]) }),
      ]);
      assert.deepEqual(
        (await store.getMany(["r/1", "r/2"])).map((row) => row?.revision),
        [second, first],
      );
      await assert.rejects(store.commit({ delete: ["r/1"], expect: [["r/1", first as number]] }), CommitConflict);
      await store.commit({
        delete: ["r/1", "r/2"],
        expect: [
          ["r/1", second as number],
          ["r/2", first as number],
        ],
      });
    });

    test("counters count from 0, in both directions, from many at once, and losers do not count", async (t) => {
      const store = await open(t);
      await Promise.allSettled(
        Array.from({ length: 200 }, (_, index) =>
          store.commit({
            add: [
              ["n/all", 3],
              ["n/all", -1],
              [`n/${index % 2}`, -1],
            ],
            ...(index % 10 === 0 ? { expect: [["n/none", 1]] as const } : {}),
          }),
        ),
      );
      assert.deepEqual(await valuesOf(store, ["n/all", "n/0", "n/1"]), ["360", "-80", "-100"]);
      assert.deepEqual(
        (await store.scan({ prefix: "n/", limit: 9 })).map(({ value }) => value),
        ["-80", "-100", "360"],
      );
      await store.commit({ put: [["n/all", "5"]] });
      await store.commit({ add: [["n/all", 2 ** 40]] });
      assert.deepEqual(await valuesOf(store, ["n/all"]), [String(5 + 2 ** 40)]);
    });

    test("a commit that adds to a row that is not a counter fails alone", async (t) => {
      const store = await open(t);
      await store.commit({ put: puts(["x/text"]) });
      const results = await Promise.allSettled([
        store.commit({ put: puts(["x/1"]) }),
        store.commit({ put: puts(["x/2"]), add: [["x/text", 1]] }),
        store.commit({ put: puts(["x/3"]) }),
      ]);
      assert.deepEqual(
        results.map(({ status }) => status),
        ["fulfilled", "rejected", "fulfilled"],
      );
      assert.deepEqual(await keysOf(store, { prefix: "x/", limit: 9 }), ["x/1", "x/3", "x/text"]);
      assert.deepEqual(await valuesOf(store, ["x/text"]), ['"x/text"']);
    });

    test("a row that was given out stays as it was", async (t) => {
      const store = await open(t);
      await store.commit({ put: [["s/1", "1"]] });
      const row = await store.get("s/1");
      const [scanned] = await store.scan({ prefix: "s/", limit: 1 });
      await store.commit({ put: [["s/1", "2"]] });
      assert.deepEqual([row?.value, scanned?.value], ["1", "1"]);
    });

    test("what was committed is seen by every read that begins afterwards", async (t) => {
      const store = await open(t);
      const writer = async (name: number) => {
        for (let round = 0; round < 25; round++) {
          await store.commit({ put: [[`w/${name}`, String(round)]] });
          const [row, [scanned]] = await Promise.all([
            store.get(`w/${name}`),
            store.scan({ prefix: `w/${name}`, limit: 1 }),
          ]);
          assert.deepEqual([row?.value, scanned?.value], [String(round), String(round)]);
        }
      };
      await Promise.all(Array.from({ length: 10 }, (_, index) => writer(10 + index)));
    });

    test("a commit is seen whole or not at all", async (t) => {
      const store = await open(t);
      const pair = ["t/1", "t/2", "t/3"];
      let over = false;
      const writing = (async () => {
        for (let round = 0; round < 60; round++) await store.commit({ put: pair.map((key) => [key, String(round)]) });
        over = true;
      })();
      while (!over) {
        assert.equal(new Set((await store.scan({ prefix: "t/", limit: 9 })).map(({ value }) => value)).size <= 1, true);
        assert.equal(new Set(await valuesOf(store, pair)).size, 1);
      }
      await writing;
    });

    test("the values of a tail and its other row are of one moment, whatever is written meanwhile", async (t) => {
      const store = await open(t);
      const keys = Array.from({ length: 40 }, (_, index) => `m/${String(index).padStart(2, "0")}`);
      let over = false;
      const writing = (async () => {
        for (let round = 0; round < 40; round++) {
          await store.commit({ clear: ["m/"], put: [...keys, "m"].map((key) => [key, String(round)]) });
        }
        over = true;
      })();
      while (!over) {
        const joined = await store.tail({ prefix: "m/", limit: 100, otherKey: "m" });
        if (joined!.other === undefined) continue;
        const values = Buffer.from(joined!.text as string).toString();
        assert.equal(values, keys.map(() => joined!.other!.value).join(","));
      }
      await writing;
    });

    test("what many clients are told, whatever they do at once, can be explained by an order of their calls", async (t) => {
      const store = await open(t);
      for (let seed = 1; seed <= 15; seed++) {
        const scene = sceneOf(seed, {});
        await play({ ...scene, numbers: createNumbers(), calls: 8, stores: crowd([store], scene.random) });
        assert.equal(await judged(scene, store), null, `seed ${seed}`);
      }
    });

    test("invalid keys, values and bounds are refused before anything happens", async (t) => {
      const store = await open(t);
      for (const key of ["", "a b", "ä", "a\0", "a\n", "x".repeat(513)]) {
        await assert.rejects(
          async () =>
            store.commit({
              put: [
                ["ok", "1"],
                [key, "1"],
              ],
            }),
          TypeError,
        );
        await assert.rejects(async () => store.get(key), TypeError);
      }
      await assert.rejects(async () => store.commit({ put: [["ok", "\0"]] }), TypeError);
      await assert.rejects(async () => store.commit({ add: [["ok", 0.5]] }), TypeError);
      await assert.rejects(async () => store.commit({ clear: [""] }), TypeError);
      await assert.rejects(async () => store.scan({ prefix: "a/", limit: -1 }), TypeError);
      await assert.rejects(async () => store.scan({ prefix: "a/", limit: 1, skip: 1e9 }), TypeError);
      await assert.rejects(async () => store.tail({ prefix: "a/", limit: 0, otherKey: "a" }), TypeError);
      await assert.rejects(async () => store.tail({ prefix: "a/", limit: 1, otherKey: "" }), TypeError);
      assert.equal(await store.get("ok"), undefined);
      await store.commit({ put: puts(["x".repeat(512)]) });
      assert.deepEqual(await keysOf(store, { prefix: "x", limit: 2 }), ["x".repeat(512)]);
    });

    test("an empty commit succeeds", async (t) => {
      const store = await open(t);
      await store.commit({});
      await store.commit({ put: [], delete: [], clear: [], add: [], expect: [] });
      assert.equal(await store.problem(), null);
    });

    test("a sequence gives rising numbers, each once, also to several that share a store", async (t) => {
      const store = await open(t);
      const sequences = await Promise.all([1, 2, 3].map(() => createSequence(store, "s/test", [], 16)));
      const given = await Promise.all(
        sequences.map(async (sequence) => {
          const numbers: number[] = [];
          for (let count = 0; count < 100; count++) numbers.push(await sequence.next());
          return numbers;
        }),
      );
      for (const numbers of given)
        assert.deepEqual(
          numbers,
          [...numbers].sort((a, b) => a - b),
        );
      assert.equal(new Set(given.flat()).size, 300);
      const later = await createSequence(store, "s/test", [], 16);
      assert.ok((await later.next()) > Math.max(...given.flat()));
    });

    test("any commits, many at once, come to what they come to one after the other", async (t) => {
      const store = await open(t);
      let run = 0;
      const groups = fc.array(fc.array(commits, { minLength: 1, maxLength: 8 }), { minLength: 1, maxLength: 5 });
      await fc.assert(
        fc.asyncProperty(groups, async (rounds) => {
          const model = new ModelStore(store, `q/${run++}/`);
          for (const round of rounds) await model.play(round);
        }),
        { numRuns: runs },
      );
    });
  });
}

const name = fc.constantFrom("a", "a/1", "a/2", "a/_", "a/_x", "b", "b/1", "b/%", "c");
const counter = fc.constantFrom("n", "n/1");
/** Also around the length from which on SQLite keeps values apart from their keys. */
const text = fc.oneof(
  fc.string(),
  fc.integer({ min: 960, max: 990 }).map((length) => "x".repeat(length)),
);
const some = <T>(item: fc.Arbitrary<T>, maxLength: number) => fc.array(item, { maxLength });

/** Commits of `ModelStore`. */
const commits = fc.record({
  put: some(fc.tuple(name, text), 3),
  delete: some(fc.oneof(name, counter), 2),
  clear: some(fc.constantFrom("a/", "a/_", "b", "n"), 1),
  add: some(fc.tuple(counter, fc.integer({ min: -5, max: 5 })), 2),
  expect: some(
    fc.tuple(fc.oneof(name, counter), fc.constantFrom("now" as const, "now" as const, "absent" as const)),
    2,
  ),
});
