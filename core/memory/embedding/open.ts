/** Opens the embedding that `memory.NAME.semantic.embedding` names. */
import type { EmbeddingModelV3 } from "@ai-sdk/provider";
import type { PluginChoice } from "../../../generated/types.ts";
import type { Host } from "../../plugin/plugin.ts";
import { createInstance } from "../../registry/create.ts";
import { guarded } from "../../registry/guarded.ts";
import type { Registry } from "../../registry/registry.ts";
import type { NamedEmbedding } from "./embedding.ts";
import { createHashEmbedding } from "./hash.ts";
import { createModelEmbedding } from "./model.ts";
import { createUseEmbedding } from "./use.ts";

export interface EmbeddingSource {
  registry: Registry;
  host: Host;
  /** The models of the manifest's providers. */
  models: { embedding(name: string): EmbeddingModelV3 };
}

/** @throws Error with a message for the author of the manifest */
export async function openEmbedding(choice: PluginChoice, source: EmbeddingSource): Promise<NamedEmbedding> {
  const { use, ...config } = typeof choice === "string" ? { use: choice } : choice;
  const plugin = source.registry.get("embedding", use);
  if (plugin !== undefined) {
    const { logger, env, signal, onClose, keyv } = source.host;
    const made = await createInstance(plugin, config, { logger, env, signal, onClose, keyv });
    const plugged = guarded(made, ["embed"]);
    const embed = async (texts: readonly string[], signal?: AbortSignal) =>
      checkVectors(await plugged.embed([...texts], { signal }), texts.length, use);
    return { provider: `plugin ${use}`, model: made.model ?? "", dimensions: made.dimensions, embed };
  }
  if (use === "local/hash") return createHashEmbedding();
  if (use === "local/use") return createUseEmbedding(source.host);
  return createModelEmbedding(use, source.models.embedding(use));
}

/** Validates the result of a plugin, because nothing enforces its types. */
function checkVectors(vectors: unknown, count: number, name: string): Float32Array[] {
  if (!Array.isArray(vectors) || vectors.length !== count) {
    throw new Error(`embedding ${name}: embed must give one vector for each text`);
  }
  return vectors.map((vector) => {
    if (vector instanceof Float32Array) return vector;
    if (Array.isArray(vector)) return Float32Array.from(vector as number[]);
    throw new Error(`embedding ${name}: a vector must be a Float32Array`);
  });
}
