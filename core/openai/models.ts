/** Agents as models: `GET /v1/models`; and the models of `POST /v1/embeddings`. */
import type { EmbeddingRequest, PluginChoice } from "../../generated/types.ts";
import type { Agent } from "../agents/agent.ts";
import { quoted, ServiceError } from "../lib/errors.ts";
import { EmbeddingRefused } from "../memory/embedding/embedding.ts";
import type { Memory } from "../memory/memory.ts";
import { OpenaiError, unsupported } from "./errors.ts";

type Agents = ReadonlyMap<string, Agent>;

/** @throws OpenaiError when there is no such agent */
export function agentOf(agents: Agents, model: string): Agent {
  const agent = agents.get(model);
  if (agent !== undefined) return agent;
  throw unknownModel(model, "the ids of agents");
}

function unknownModel(model: string, models: string): OpenaiError {
  const message = `the model ${quoted(model)} does not exist: models are ${models}`;
  return new OpenaiError("not_found", message, "model_not_found", "model");
}

/** `created` is 0, because the time at which an agent was written is unknown. */
export const modelOf = ({ id }: Agent) => ({ id, object: "model" as const, created: 0, owned_by: "penstock" });

export const modelList = (agents: Agents) => ({
  object: "list" as const,
  data: [...agents.values()].map(modelOf),
});

/** Vectors of the embedding of a memory, as OpenAI's. What the tokens are is known to its provider alone. */
export async function embed(memories: Iterable<Memory>, body: EmbeddingRequest, signal: AbortSignal) {
  const { model, input, dimensions, encoding_format } = body;
  const embedding = [...memories].find(({ settings }) => nameOf(settings.semantic?.embedding) === model)?.embedding;
  if (embedding === undefined) throw unknownModel(model, "the embeddings of memories");
  const vectors = await embedding.embed([input].flat(), signal).catch((cause) => {
    throw new ServiceError(
      cause instanceof EmbeddingRefused ? "invalid_input" : "provider_failed",
      "input could not be embedded",
      { cause },
    );
  });
  const { length } = vectors[0]!;
  if ((dimensions ?? length) !== length) throw unsupported("dimensions", `must be ${length}, or absent`);
  return {
    object: "list",
    data: vectors.map((vector, index) => ({
      object: "embedding",
      index,
      embedding:
        encoding_format === "base64" ? Buffer.from(Float32Array.from(vector).buffer).toString("base64") : [...vector],
    })),
    model,
    usage: { prompt_tokens: 0, total_tokens: 0 },
  };
}

const nameOf = (choice: PluginChoice | undefined) => (typeof choice === "object" ? choice.use : choice);
