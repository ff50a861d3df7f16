/** The embedding models of the current generation, for indexes that outlive it. */
import type { EmbeddingModelV3 } from "@ai-sdk/provider";
import type { Uses } from "../../lib/uses.ts";
import type { Models } from "../../models/models.ts";

interface Source {
  readonly models: Models;
  /** Counts the calls in progress that use these models. */
  readonly uses: Uses;
}

interface FollowingEmbeddings {
  embedding(name: string): EmbeddingModelV3;
  /** Uses these models from now on; calls in progress finish with those that they started with. */
  follow(source: Source): void;
}

export function followingEmbeddings(first: Source): FollowingEmbeddings {
  let { models, uses } = first;
  return {
    embedding(name) {
      const { specificationVersion, provider, modelId } = models.embedding(name);
      return {
        specificationVersion,
        provider,
        modelId,
        get maxEmbeddingsPerCall() {
          return models.embedding(name).maxEmbeddingsPerCall;
        },
        get supportsParallelCalls() {
          return models.embedding(name).supportsParallelCalls;
        },
        async doEmbed(call) {
          const begun = uses;
          begun.enter();
          try {
            return await models.embedding(name).doEmbed(call);
          } finally {
            begun.leave();
          }
        },
      };
    },
    follow(source) {
      ({ models, uses } = source);
    },
  };
}
