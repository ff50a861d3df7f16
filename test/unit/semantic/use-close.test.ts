import assert from "node:assert/strict";
import { test } from "node:test";
import { createUseEmbedding } from "../../../core/memory/embedding/open.ts";

test("local/use: a stop while the encoder computes rejects what waits, and its late answer disturbs nobody", async () => {
  const closing: (() => void | Promise<void>)[] = [];
  const embedding = createUseEmbedding({ onClose: (callback) => void closing.push(callback) });
  await embedding.embed(["a first text, so that the encoder is loaded"]);
  const waiting = embedding.embed(
    // More than it can be through with, however late this thread comes to stop it.
    Array.from({ length: 1_600 }, (_, index) => `a text with number ${index} and some words`),
  );
  const refused = assert.rejects(waiting, /the service is stopping/);
  // The thread answers while it is being ended: what it says must not be taken for the answer to something else.
  await new Promise((resolve) => setTimeout(resolve, 1));
  await Promise.all(closing.map((close) => close()));
  await refused;
});
