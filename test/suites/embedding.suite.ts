/** What the service expects of everything that makes vectors of texts. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { normalize, similarity } from "../../core/memory/semantic/matrix.ts";

interface EmbeddingUnderTest {
  embed(texts: readonly string[]): Promise<Float32Array[]>;
  /** Null where only the first vector tells. */
  dimensions: number | null;
}

const HOSTILE = [
  " ",
  "\n",
  ".",
  "🙂",
  "\ud800",
  "a\u0000b",
  "日本語のテキスト",
  "x".repeat(8_000),
  "word ".repeat(1_600),
];

/** @param make one that is closed after the test */
export function embeddingSuite(name: string, make: (test: TestContext) => Promise<EmbeddingUnderTest>): void {
  const cosine = (a: Float32Array, b: Float32Array) => similarity(normalize(a.slice()), normalize(b.slice()), 0);

  describe(`embedding ${name}`, () => {
    test(`embedding ${name} gives one vector of the same length for each text, in order`, async (context) => {
      const { embed, dimensions } = await make(context);
      const texts = Array.from({ length: 40 }, (_, count) => `text number ${count} of ${"abcdefgh"[count % 8]}`);
      const vectors = await embed(texts);
      assert.equal(vectors.length, texts.length);
      for (const vector of vectors) {
        assert.ok(vector instanceof Float32Array);
        assert.equal(vector.length, dimensions ?? vectors[0]!.length);
        assert.ok(vector.every(Number.isFinite));
      }
      const [alone] = await embed([texts[17]!]);
      assert.ok(cosine(alone!, vectors[17]!) > 0.999, "alone or among others, the vector is the same");
    });

    test(`embedding ${name} gives the same vector for the same text, and another for another`, async (context) => {
      const { embed } = await make(context);
      const [first, other, again] = await embed(["The invoice is late", "Whales sing", "The invoice is late"]);
      assert.ok(cosine(first!, again!) > 0.9999);
      assert.ok(cosine(first!, other!) < 0.9);
    });

    test("no texts are no vectors", async (context) => {
      const { embed } = await make(context);
      assert.deepEqual(await embed([]), []);
    });

    test(`embedding ${name} takes any text, and none spoils the next`, async (context) => {
      const { embed } = await make(context);
      for (const text of HOSTILE) {
        const [vector] = await embed([text]);
        assert.ok(vector!.every(Number.isFinite), JSON.stringify(text.slice(0, 10)));
      }
      const together = await embed([...HOSTILE, "The invoice is late"]);
      const [alone] = await embed(["The invoice is late"]);
      assert.ok(cosine(alone!, together[HOSTILE.length]!) > 0.999);
    });

    test("answers calls at once, each with its own", async (context) => {
      const { embed } = await make(context);
      const texts = Array.from(
        { length: 12 },
        (_, count) => `sentence about ${["cats", "ships", "tax"][count % 3]} ${count}`,
      );
      const each = await Promise.all(texts.map((text) => embed([text])));
      const all = await embed(texts);
      for (const [index, [vector]] of each.entries()) assert.ok(cosine(vector!, all[index]!) > 0.999, texts[index]);
    });
  });
}
