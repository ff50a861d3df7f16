/** Stage: the memories of the manifest, and the indexes of those that have semantic search. */
import { messageOf } from "../../lib/errors.ts";
import { createMemories } from "../../memory/memories.ts";
import { openSemantics } from "../../memory/semantic/open.ts";
import type { Stage } from "./stage.ts";

type MemoryNeeds = "manifest" | "store" | "registry" | "host" | "models" | "options";

export const memories: Stage<MemoryNeeds, "memories"> = async (
  { manifest, store, registry, host, models, options },
  failed,
) => {
  try {
    if (options.semantic === false) return { parts: { memories: await createMemories(manifest, store) } };
    const vectorBytes = manifest.server.limits.vectors;
    const source = { store, registry, host, models, modelsFailed: failed, vectorBytes };
    const { semantics, problems, start } = await openSemantics(manifest, source);
    return {
      parts: { memories: await createMemories(manifest, store, { semantic: semantics }) },
      problems,
      begin: start,
    };
  } catch (error) {
    // Memories and indexes read what they left in the store.
    return { parts: { memories: new Map() }, problems: [{ path: ["store"], message: messageOf(error) }] };
  }
};
