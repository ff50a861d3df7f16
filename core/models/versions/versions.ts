/** The versions of the AI SDK's provider interface that the core supports. It uses v3 itself. */
import type {
  EmbeddingModelV2,
  EmbeddingModelV3,
  EmbeddingModelV3Result,
  LanguageModelV2,
  LanguageModelV3,
} from "@ai-sdk/provider";
import type { StreamingModel } from "../part-source.ts";
import { languageModelV2 } from "./v2.ts";
import { type LanguageModelV4, languageModelV4 } from "./v4.ts";

/** A model from a package or a plugin, which may have been made for any version. */
export type AnyLanguageModel = LanguageModelV2 | LanguageModelV3 | (LanguageModelV4 & { specificationVersion: "v4" });

export const VERSIONS: readonly unknown[] = ["v2", "v3", "v4"];

/** @throws Error for any other version, which is found at boot unless a request computes the model */
export function toStreamingModel(model: AnyLanguageModel): StreamingModel {
  switch (model.specificationVersion) {
    case "v2":
      return languageModelV2(model);
    case "v3":
      return model as StreamingModel;
    case "v4":
      return languageModelV4(model);
    default:
      throw new Error("its version of the AI SDK's model interface is not known");
  }
}

/** Embedding models of v4 differ from v3 only in the version number; those of v2 have no warnings. */
export function toEmbeddingModel(model: EmbeddingModelV2<string> | EmbeddingModelV3): EmbeddingModelV3 {
  if (model.specificationVersion !== "v2") return model;
  return {
    specificationVersion: "v3",
    provider: model.provider,
    modelId: model.modelId,
    maxEmbeddingsPerCall: model.maxEmbeddingsPerCall,
    supportsParallelCalls: model.supportsParallelCalls,
    doEmbed: async (options) => {
      const answer = await model.doEmbed(options as Parameters<typeof model.doEmbed>[0]);
      return { ...(answer as Omit<EmbeddingModelV3Result, "warnings">), warnings: [] };
    },
  };
}
