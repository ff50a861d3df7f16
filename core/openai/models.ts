/** Agents as models: `GET /v1/models`; and the models of `POST /v1/embeddings`. */
import type { EmbeddingRequest, PluginChoice } from "../../generated/types.ts";
import type { Agent } from "../agents/agent.ts";
import { invalid, quoted } from "../lib/errors.ts";
import { nextTurn } from "../lib/event-loop-turns.ts";
import { EmbeddingRefused } from "../memory/embedding/embedding.ts";
import type { Memory } from "../memory/scoped.ts";
import { classifyFailure, providerFailed } from "../models/failure.ts";
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

/** Vectors that are written as JSON in one turn of the event loop. */
const VECTORS_PER_TURN = 8;

/** JSON of the vectors of the embedding of a memory, as OpenAI's. What the tokens are is known to its provider alone. */
export async function embed(memories: Iterable<Memory>, body: EmbeddingRequest, signal: AbortSignal) {
  const { model, input, dimensions, encoding_format } = body;
  const embedding = [...memories].find(({ settings }) => nameOf(settings.semantic?.embedding) === model)?.semantic
    ?.embedding;
  if (embedding === undefined) throw unknownModel(model, "the embeddings of memories");
  const own = embedding.dimensions;
  // Before the provider is asked, and paid.
  if ((dimensions ?? own) !== own)
    throw unsupported(
      "dimensions",
      own === null ? "must be absent: those of the provider are not known" : `must be ${own}, or absent`,
    );
  const vectors = await embedding.embed([input].flat(), signal).catch((cause) => {
    if (cause instanceof EmbeddingRefused) throw invalid("input could not be embedded", { cause });
    throw providerFailed(classifyFailure(cause), cause);
  });
  const rows: string[] = [];
  for (const [index, vector] of vectors.entries()) {
    if (index % VECTORS_PER_TURN === VECTORS_PER_TURN - 1) await nextTurn();
    const numbers =
      encoding_format === "base64" ? Buffer.from(Float32Array.from(vector).buffer).toString("base64") : [...vector];
    rows.push(JSON.stringify({ object: "embedding", index, embedding: numbers }));
  }
  const rest = JSON.stringify({ model, usage: { prompt_tokens: 0, total_tokens: 0 } });
  return `{"object":"list","data":[${rows.join()}],${rest.slice(1)}`;
}

const nameOf = (choice: PluginChoice | undefined) => (typeof choice === "object" ? choice.use : choice);
