/** The embedding models of indexes that outlive a generation. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { EmbeddingModelV3 } from "@ai-sdk/provider";
import { followingEmbeddings } from "../../../core/app/stages/memories.ts";
import { Uses } from "../../../core/lib/uses.ts";
import type { Models } from "../../../core/models/models.ts";

test("an index asks the models of the newest generation, and a call that is under way ends on those it began with", async () => {
  const source = (value: number) => {
    const waiting: (() => void)[] = [];
    const model = {
      specificationVersion: "v3",
      provider: "p",
      modelId: "m",
      maxEmbeddingsPerCall: value,
      supportsParallelCalls: true,
      async doEmbed() {
        await new Promise<void>((resolve) => waiting.push(resolve));
        return { embeddings: [[value]], warnings: [] };
      },
    } as unknown as EmbeddingModelV3;
    return { models: { embedding: () => model } as unknown as Models, uses: new Uses(), waiting };
  };
  const [first, second] = [source(1), source(2)];
  const following = followingEmbeddings(first);
  const model = following.embedding("p/m");
  const before = model.doEmbed({ values: ["x"] });
  following.follow(second);
  const after = model.doEmbed({ values: ["x"] });
  assert.deepEqual([first.uses.count, second.uses.count, await model.maxEmbeddingsPerCall], [1, 1, 2]);
  for (const { waiting } of [first, second]) for (const go of waiting) go();
  assert.deepEqual((await before).embeddings, [[1]]);
  assert.deepEqual((await after).embeddings, [[2]]);
  assert.deepEqual([first.uses.count, second.uses.count], [0, 0]);
});
