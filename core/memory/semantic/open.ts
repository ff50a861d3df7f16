/** Opens the semantic indexes of a manifest's memories, and checks that they fit the configured embeddings. */
import type { SemanticMemoryManifest } from "../../../generated/types.ts";
import { messageOf } from "../../lib/errors.ts";
import type { Problem } from "../../lib/problem.ts";
import type { Manifest } from "../../manifest/manifest.ts";
import { createInstance } from "../../registry/create.ts";
import { guarded } from "../../registry/guarded.ts";
import type { Store } from "../../storage/store.ts";
import type { VectorTables } from "../../storage/vector-tables.ts";
import type { NamedEmbedding } from "../embedding/embedding.ts";
import { type EmbeddingSource, openEmbedding } from "../embedding/open.ts";
import { createExactVectors } from "./exact.ts";
import { createSemanticIndex } from "./index.ts";
import { ALL_VECTORS, createLayout, type IndexLayout, OBSOLETE_ROWS } from "./layout.ts";
import { createPluginVectors } from "./plugin-vectors.ts";
import { createEmbeddingQueue } from "./queue.ts";
import { readVector } from "./rows.ts";
import type { Semantic } from "./semantic.ts";
import { type IndexSettings, IndexState } from "./state.ts";
import { createVectorCache, type VectorCache } from "./vector-cache.ts";
import type { VectorIndex } from "./vector-index.ts";

export interface SemanticSource extends EmbeddingSource {
  store: Store;
  /** The models have problems that are reported already, so that an unknown provider of an embedding is not reported again. */
  modelsFailed?: boolean;
  /** `server.limits.vectors`; default: 192 MiB. */
  vectorBytes?: number;
}

interface OpenedSemantics {
  /** The usable indexes, by the memory's name. */
  semantics: Map<string, Semantic>;
  /** An `error` stops the boot. */
  problems: Problem[];
  /** How many bytes of vectors are in memory. */
  vectorBytes(): number;
  /** Goes on with the texts that an earlier process left in the queue. Called once, when the service starts. */
  start(): void;
}

/** Opens the index of every memory that has `semantic`. Errors are returned as problems of the manifest. */
export async function openSemantics(
  manifest: Pick<Manifest, "memory">,
  source: SemanticSource,
): Promise<OpenedSemantics> {
  const semantics = new Map<string, Semantic>();
  const problems: Problem[] = [];
  const embeddings = createEmbeddings(source);
  const cache = createVectorCache(source.vectorBytes);
  await markGaps(manifest, source.store);
  await removeObsolete(source.store);
  for (const [name, { semantic }] of Object.entries(manifest.memory)) {
    const path = ["memory", name, "semantic"];
    if (semantic === undefined) continue;
    const opened = await openIndex(name, semantic, source, embeddings, cache).catch(
      (error): OpenedIndex => ({ problem: messageOf(error), at: "embedding" }),
    );
    if ("problem" in opened) {
      if (source.modelsFailed && isModelName(semantic.embedding, source)) continue;
      problems.push({ path: [...path, opened.at], message: opened.problem, severity: "error" });
      continue;
    }
    if (opened.gaps) {
      const message = "messages saved while this memory had no semantic search are not found: run penstock reindex";
      problems.push({ path, message, severity: "warning" });
    }
    semantics.set(name, opened.semantic);
  }
  return {
    semantics,
    problems,
    vectorBytes: () => cache.bytes,
    start() {
      for (const semantic of semantics.values()) semantic.committed();
    },
  };
}

/** Notes of the memories without semantic search that an index which they once had will lack messages. */
export async function markGaps({ memory }: Pick<Manifest, "memory">, store: Store): Promise<void> {
  for (const [name, { semantic }] of Object.entries(memory))
    if (semantic === undefined) await IndexState.markGaps(store, createLayout(name).state);
}

async function removeObsolete(store: Store): Promise<void> {
  const found = await Promise.all(OBSOLETE_ROWS.map((prefix) => store.scan({ prefix, limit: 1, longest: 0 })));
  if (found.flat().length > 0) await store.commit({ clear: OBSOLETE_ROWS });
}

const isModelName = (embedding: SemanticMemoryManifest["embedding"], { registry }: SemanticSource) =>
  typeof embedding === "string" && !embedding.startsWith("local/") && !registry.names("embedding").includes(embedding);

type OpenedIndex =
  | { semantic: Semantic; gaps: boolean }
  | { problem: string; at: "embedding" | "vectors" | "pgvector" };

async function openIndex(
  name: string,
  settings: SemanticMemoryManifest,
  source: SemanticSource,
  embeddings: Embeddings,
  cache: VectorCache,
): Promise<OpenedIndex> {
  const { store, host } = source;
  const embedding = await embeddings(settings);
  const layout = createLayout(name);
  const state = await IndexState.open(store, layout.state, indexSettings(embedding, settings));
  if ("problem" in state) return { problem: state.problem, at: "embedding" };
  let index: VectorIndex;
  try {
    index = await openVectors(name, settings, layout, state, source, cache);
  } catch (error) {
    return { problem: messageOf(error), at: error instanceof PgvectorMissing ? "pgvector" : "vectors" };
  }
  const logger = host.logger.child({ memory: name });
  const queue = createEmbeddingQueue({ store, layout, state, index, embedding, logger, signal: host.signal });
  // The store closes after this callback: let the current writes finish first.
  host.onClose(async () => {
    await queue.idle();
    await index.idle();
  });
  return { semantic: createSemanticIndex({ layout, state, embedding, index, queue, logger }), gaps: state.gaps };
}

export type Embeddings = (settings: SemanticMemoryManifest) => Promise<NamedEmbedding>;

/** Memories with the same embedding share it. */
export function createEmbeddings(source: EmbeddingSource): Embeddings {
  const opened = new Map<string, Promise<NamedEmbedding>>();
  return ({ embedding }) => {
    const key = JSON.stringify(embedding);
    const made = opened.get(key) ?? openEmbedding(embedding, source);
    opened.set(key, made);
    return made;
  };
}

export const indexSettings = (embedding: NamedEmbedding, { vectors }: SemanticMemoryManifest): IndexSettings => ({
  provider: embedding.provider,
  model: embedding.model,
  dimensions: embedding.dimensions,
  vectors: typeof vectors === "string" ? vectors : vectors.use,
});

class PgvectorMissing extends Error {}

/** What the database compares the vectors with. Undefined: this process compares them. */
async function openTables({ pgvector }: SemanticMemoryManifest, { vectors }: Store): Promise<VectorTables | undefined> {
  if (pgvector === "off") return undefined;
  const opened = await vectors?.({ prefix: ALL_VECTORS, decode: (value) => readVector(value).vector });
  if (opened !== undefined && !("problem" in opened)) return opened;
  if (pgvector !== "required") return undefined;
  if (opened === undefined) throw new PgvectorMissing("cannot be required: the store is not PostgreSQL");
  throw new PgvectorMissing(`cannot be required of this database: ${opened.problem}`);
}

/** @throws Error with a message for the author of the manifest */
export async function openVectors(
  name: string,
  settings: SemanticMemoryManifest,
  layout: IndexLayout,
  state: IndexState,
  { store, registry, host }: SemanticSource,
  cache: VectorCache,
): Promise<VectorIndex> {
  const { use, ...config } = typeof settings.vectors === "string" ? { use: settings.vectors } : settings.vectors;
  const plugin = registry.get("vectors", use);
  const { env, signal, onClose, keyv } = host;
  const logger = host.logger.child({ memory: name });
  if (plugin === undefined) {
    if (use !== "exact") throw new Error(`no vectors plugin "${use}"`);
    const tables = await openTables(settings, store);
    return createExactVectors(store, layout, state, { cache, tables });
  }
  if (settings.pgvector === "required")
    throw new PgvectorMissing(`cannot be required of the plugin ${use}, but of exact alone`);
  const vectors = await createInstance(plugin, config, { name, logger, env, signal, onClose, keyv });
  return createPluginVectors(store, layout, state, guarded(vectors, ["put", "delete", "search", "clear"]));
}
