/** `provider/model`: the embedding models of providers. */
import type { EmbeddingModelV3 } from "@ai-sdk/provider";
import { caught, messageOf } from "../../lib/errors.ts";
import { EmbeddingRefused, type NamedEmbedding } from "./embedding.ts";

/** Most texts per call; a model may allow fewer. */
const MAX_TEXTS_PER_CALL = 96;
/** Statuses of the provider after which a retry would fail again. */
const REFUSAL_STATUSES = new Set([400, 413, 422]);

export function createModelEmbedding(name: string, model: EmbeddingModelV3): NamedEmbedding {
  const slash = name.indexOf("/");
  return {
    provider: name.slice(0, slash),
    model: name.slice(slash + 1),
    dimensions: null,
    async embed(texts, signal) {
      const limit = Math.max(1, Math.min((await model.maxEmbeddingsPerCall) ?? MAX_TEXTS_PER_CALL, MAX_TEXTS_PER_CALL));
      const vectors: Float32Array[] = [];
      for (let start = 0; start < texts.length; start += limit) {
        vectors.push(...(await call(name, model, texts.slice(start, start + limit), signal)));
      }
      return vectors;
    },
  };
}

async function call(
  name: string,
  model: EmbeddingModelV3,
  values: string[],
  abortSignal?: AbortSignal,
): Promise<Float32Array[]> {
  let embeddings: number[][];
  try {
    ({ embeddings } = await model.doEmbed({ values, abortSignal }));
  } catch (thrown) {
    const error = caught(thrown);
    if (abortSignal?.aborted) throw error;
    const message = `${name}: ${messageOf(error)}`;
    const { statusCode } = (error ?? {}) as { statusCode?: unknown };
    if (typeof statusCode === "number" && REFUSAL_STATUSES.has(statusCode)) {
      throw new EmbeddingRefused(message, { cause: error });
    }
    throw new Error(message, { cause: error });
  }
  if (embeddings.length !== values.length) {
    throw new Error(`${embeddings.length} vectors came back for ${values.length} texts`);
  }
  return embeddings.map((embedding) => Float32Array.from(embedding));
}
