/** The embedding models of the generation that serves, for indexes that outlive it. */
import type { EmbeddingModelV3 } from "@ai-sdk/provider";
import type { Uses } from "../../lib/uses.ts";
import type { Models } from "../../models/models.ts";

interface Source {
  readonly models: Models;
  /** Counts what is at work with these models. */
  readonly uses: Uses;
}

interface FollowingEmbeddings {
  embedding(name: string): EmbeddingModelV3;
  /** From now on calls go to these models; those under way end on what they began with. */
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
