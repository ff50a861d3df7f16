/** Stages: what the memories share, including the indexes of semantic search, and the memories of the manifest. */

import type { EmbeddingModelV3 } from "@ai-sdk/provider";
import type { ApprovalRecord } from "../../approvals/record.ts";
import { approvalPlace } from "../../approvals/rows.ts";
import { ANONYMOUS, isIsolated } from "../../identity/principal.ts";
import { messageOf } from "../../lib/errors.ts";
import type { Uses } from "../../lib/uses.ts";
import type { Manifest } from "../../manifest/manifest.ts";
import type { OnDelete } from "../../memory/domain.ts";
import { openDomain } from "../../memory/memories.ts";
import { markGaps, openSemantics } from "../../memory/semantic/open.ts";
import type { Semantic } from "../../memory/semantic/semantic.ts";
import type { Models } from "../../models/models.ts";
import { runAgentId } from "../../workflows/journal/record.ts";
import type { Stage } from "./stage.ts";

type DomainNeeds = "manifest" | "approvals" | "store" | "registry" | "host" | "models" | "uses" | "meters" | "options";

export const memoryDomain: Stage<DomainNeeds, "memoryDomain"> = async (
  { manifest, approvals, store, registry, host, models, uses, meters, options },
  failed,
) => {
  const isolated = isIsolated(manifest);
  const { logger } = options;
  // Those of agents with another memory are about another conversation of the same id. A sub-agent asks in that of the agent above it.
  const isOf = (memory: string, { agentId = "", stepAgentId = agentId, runId, workflowId = "" }: ApprovalRecord) => {
    const id = runId === undefined ? stepAgentId : runAgentId(workflowId);
    return [memory, false, undefined].includes(manifest.agents[id]?.memory);
  };
  const onDelete: OnDelete = ({ memory, id, userId }) =>
    approvals.withdrawAt(
      approvalPlace("conversation", id),
      "conversation_deleted",
      (asked) => (asked.owner || ANONYMOUS) === userId && isOf(memory, asked),
    );
  const opened = (semantic?: ReadonlyMap<string, Semantic>) => {
    const memoryDomain = openDomain(store, { isolated, logger, onDelete, ...(semantic && { semantic }) });
    return { parts: { memoryDomain }, begin: () => memoryDomain.start(), end: () => memoryDomain.close() };
  };
  if (options.semantic === false) return opened();
  const embeddings = followingEmbeddings({ models, uses });
  const vectorBytes = manifest.server.limits.vectors;
  try {
    const source = { store, registry, host, models: embeddings, modelsFailed: failed, vectorBytes };
    const declared = options.vectors === "exact" ? withExactVectors(manifest) : manifest;
    const { semantics, problems, vectorBytes: used, start } = await openSemantics(declared, source);
    meters.limits.measure("server.limits.vectors", used);
    const { begin, ...built } = opened(semantics);
    return {
      ...built,
      problems,
      begin: async () => {
        await start();
        begin();
      },
      adopt: (next) => ({
        begin: () => markGaps(next.manifest, store),
        apply: () => embeddings.follow(next),
      }),
    };
  } catch (error) {
    return { ...opened(), problems: [unreadable(error)] };
  }
};

/** The manifest with all vectors kept beside the messages, because the index of a plugin may be outside the process. */
const withExactVectors = ({ memory }: Manifest): Pick<Manifest, "memory"> => ({
  memory: Object.fromEntries(
    Object.entries(memory).map(([name, { semantic, ...rest }]) => [
      name,
      { ...rest, ...(semantic && { semantic: { ...semantic, vectors: "exact" } }) },
    ]),
  ),
});

export const memories: Stage<"manifest" | "memoryDomain", "memories"> = async ({ manifest, memoryDomain }) => {
  try {
    return { parts: { memories: await memoryDomain.memories(manifest) } };
  } catch (error) {
    return { parts: { memories: new Map() }, problems: [unreadable(error)] };
  }
};

/** The problem when a memory or an index cannot read its data in the store. */
const unreadable = (error: unknown) => ({ path: ["store"], message: messageOf(error) });

// The embedding models of the current generation, for indexes that outlive it.

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
