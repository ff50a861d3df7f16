/** What the service expects of every index of vectors. Run it against an empty one. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import type { VectorHit, Vectors } from "../../core/plugin/plugin.ts";

/** Of length 1, in the plane: similarity to `at(0)` is the cosine of the angle. */
const at = (degrees: number): Float32Array => {
  const radians = (degrees * Math.PI) / 180;
  return Float32Array.of(Math.cos(radians), Math.sin(radians), 0, 0);
};
const ids = (hits: readonly VectorHit[]) => hits.map(({ message }) => message);
const entry = (owner: string, conversation: string, message: string, degrees: number) => ({
  owner,
  conversation,
  message,
  vector: at(degrees),
});
const ALL = { limit: 100, threshold: -1 };
/** Ids that keys, paths and queries of a database might stumble over. */
const HOSTILE = [
  "a/b",
  "a",
  "a/",
  "%2f",
  "é",
  "日本",
  "'; --",
  '"',
  "\\",
  " ",
  "a\u0000b",
  "__proto__",
  "x".repeat(256),
  "*",
  "?",
];

/** @param make an empty index for each test */
export function vectorsSuite(name: string, make: (test: TestContext) => Promise<Vectors>): void {
  describe(`vectors ${name}`, () => {
    test("search gives the most similar first, with the cosine as score", async (context) => {
      const vectors = await make(context);
      await vectors.put([entry("u", "c", "far", 80), entry("u", "c", "near", 10), entry("u", "c", "middle", 45)]);
      const hits = await vectors.search({ vector: at(0), owner: "u", ...ALL });
      assert.deepEqual(ids(hits), ["near", "middle", "far"]);
      for (const [index, degrees] of [10, 45, 80].entries()) {
        assert.ok(Math.abs(hits[index]!.score - Math.cos((degrees * Math.PI) / 180)) < 1e-5, `${hits[index]!.score}`);
      }
      assert.equal(hits[0]!.owner, "u");
      assert.equal(hits[0]!.conversation, "c");
    });

    test("search of an empty index, and of an unknown owner, finds nothing", async (context) => {
      const vectors = await make(context);
      assert.deepEqual(await vectors.search({ vector: at(0), owner: "u", ...ALL }), []);
      await vectors.put([entry("u", "c", "m", 0)]);
      assert.deepEqual(await vectors.search({ vector: at(0), owner: "v", ...ALL }), []);
      assert.deepEqual(await vectors.search({ vector: at(0), owner: "u", conversation: "d", ...ALL }), []);
    });

    test("search keeps to limit and threshold; a score equal to the threshold counts", async (context) => {
      const vectors = await make(context);
      await vectors.put([0, 20, 40, 60, 90, 180].map((degrees) => entry("u", "c", `m${degrees}`, degrees)));
      const search = (limit: number, threshold: number) =>
        vectors.search({ vector: at(0), owner: "u", limit, threshold }).then(ids);
      assert.deepEqual(await search(2, -1), ["m0", "m20"]);
      assert.deepEqual(await search(100, 0.7), ["m0", "m20", "m40"]);
      assert.deepEqual(await search(100, -1), ["m0", "m20", "m40", "m60", "m90", "m180"]);
      assert.deepEqual(await search(1, 1), ["m0"]);
      assert.deepEqual(await search(0, -1), []);
    });

    test("search sees one owner, one conversation, or everybody", async (context) => {
      const vectors = await make(context);
      await vectors.put([
        entry("u", "c1", "a", 0),
        entry("u", "c2", "b", 1),
        entry("v", "c1", "c", 2),
        entry("uu", "c1", "d", 3),
      ]);
      const search = async (scope: { owner?: string; conversation?: string }) =>
        ids(await vectors.search({ vector: at(0), ...scope, ...ALL }));
      assert.deepEqual(await search({ owner: "u" }), ["a", "b"]);
      assert.deepEqual(await search({ owner: "u", conversation: "c1" }), ["a"]);
      assert.deepEqual(await search({ owner: "v" }), ["c"]);
      assert.deepEqual(await search({}), ["a", "b", "c", "d"]);
    });

    test("what put has resolved for is found, by an owner who has searched before too", async (context) => {
      const vectors = await make(context);
      for (let count = 1; count <= 20; count++) {
        await vectors.put([entry("u", "c", `m${count}`, count)]);
        const hits = await vectors.search({ vector: at(0), owner: "u", ...ALL });
        assert.equal(hits.length, count);
      }
    });

    test("put replaces the vector in the same place", async (context) => {
      const vectors = await make(context);
      await vectors.put([entry("u", "c", "m", 0), entry("u", "d", "m", 0)]);
      assert.equal((await vectors.search({ vector: at(0), owner: "u", limit: 10, threshold: 0.9 })).length, 2);
      await vectors.put([entry("u", "c", "m", 90)]);
      const hits = await vectors.search({ vector: at(0), owner: "u", limit: 10, threshold: 0.9 });
      assert.deepEqual(
        hits.map(({ conversation }) => conversation),
        ["d"],
      );
      assert.equal((await vectors.search({ vector: at(0), owner: "u", ...ALL })).length, 2);
    });

    test("delete takes a message, or a whole conversation, and leaves the others", async (context) => {
      const vectors = await make(context);
      const rows = ["a", "b"].flatMap((owner) =>
        ["c", "cc"].flatMap((conversation) => ["m", "n"].map((message) => entry(owner, conversation, message, 0))),
      );
      await vectors.put(rows);
      const left = async () =>
        (await vectors.search({ vector: at(0), ...ALL }))
          .map(({ owner, conversation, message }) => `${owner} ${conversation} ${message}`)
          .sort();
      assert.equal((await left()).length, 8);
      await vectors.delete([{ owner: "a", conversation: "c", message: "m" }]);
      assert.deepEqual(await left(), ["a c n", "a cc m", "a cc n", "b c m", "b c n", "b cc m", "b cc n"]);
      await vectors.delete([{ owner: "b", conversation: "c" }]);
      assert.deepEqual(await left(), ["a c n", "a cc m", "a cc n", "b cc m", "b cc n"]);
      await vectors.delete([
        { owner: "a", conversation: "cc" },
        { owner: "a", conversation: "c", message: "n" },
      ]);
      assert.deepEqual(await left(), ["b cc m", "b cc n"]);
    });

    test("put and delete may be repeated, and what is not there may be deleted", async (context) => {
      const vectors = await make(context);
      await vectors.delete([
        { owner: "u", conversation: "c" },
        { owner: "u", conversation: "c", message: "m" },
      ]);
      await vectors.put([entry("u", "c", "m", 0)]);
      await vectors.put([entry("u", "c", "m", 0)]);
      assert.equal((await vectors.search({ vector: at(0), owner: "u", ...ALL })).length, 1);
      for (let time = 0; time < 2; time++) await vectors.delete([{ owner: "u", conversation: "c", message: "m" }]);
      assert.deepEqual(await vectors.search({ vector: at(0), owner: "u", ...ALL }), []);
      await vectors.put([]);
      await vectors.delete([]);
    });

    test("any string is an id, and no two are taken for one another", async (context) => {
      const vectors = await make(context);
      await vectors.put(HOSTILE.map((id) => entry(id, id, id, 0)));
      for (const id of HOSTILE) {
        const hits = await vectors.search({ vector: at(0), owner: id, conversation: id, ...ALL });
        assert.deepEqual(
          hits.map(({ owner, conversation, message }) => [owner, conversation, message]),
          [[id, id, id]],
        );
      }
      await vectors.delete([{ owner: "a", conversation: "a" }]);
      assert.equal((await vectors.search({ vector: at(0), ...ALL })).length, HOSTILE.length - 1);
    });

    test("clear deletes everything, and the index goes on", async (context) => {
      const vectors = await make(context);
      await vectors.put([entry("u", "c", "m", 0), entry("v", "c", "m", 0)]);
      assert.equal((await vectors.search({ vector: at(0), owner: "u", ...ALL })).length, 1);
      await vectors.clear();
      assert.deepEqual(await vectors.search({ vector: at(0), owner: "u", ...ALL }), []);
      assert.deepEqual(await vectors.search({ vector: at(0), ...ALL }), []);
      await vectors.put([entry("u", "c", "n", 0)]);
      assert.deepEqual(ids(await vectors.search({ vector: at(0), owner: "u", ...ALL })), ["n"]);
    });

    test("puts at once are all there, and searches meanwhile give whole vectors", async (context) => {
      const vectors = await make(context);
      const puts = Array.from({ length: 100 }, (_, count) =>
        vectors.put([entry("u", `c${count % 7}`, `m${count}`, count)]),
      );
      const searches = Array.from({ length: 10 }, () => vectors.search({ vector: at(0), owner: "u", ...ALL }));
      for (const hits of await Promise.all(searches)) {
        for (const { message, score } of hits) {
          const cosine = Math.cos((Number(message.slice(1)) * Math.PI) / 180);
          assert.ok(Math.abs(score - cosine) < 1e-5, `${message} ${score}`);
        }
      }
      await Promise.all(puts);
      assert.equal((await vectors.search({ vector: at(0), owner: "u", ...ALL })).length, 100);
    });
  });
}
