/** The thread in which vectors are compared, one for all memories of the service. The first search starts it. */
import { Worker } from "node:worker_threads";
import { messageOf } from "../../lib/errors.ts";
import { dotKernel } from "./dot-kernel.ts";

const WORKER = new URL("./scan-worker.js", import.meta.url);

/** Rows of vectors as they are stored, with their keys; or blocks, which have the keys of theirs inside. */
export type StoredVectors =
  | { readonly keys: readonly string[]; readonly rows: readonly string[] }
  | { readonly blocks: readonly string[] };

interface Scan {
  readonly owners: readonly string[];
  readonly query: Float32Array;
  /** What the keys that are found begin with. */
  readonly prefix: string;
  readonly limit: number;
  /** Least similarity. */
  readonly least: number;
}

interface Scanned {
  /** Best first. The key is that of the row without the owner's prefix. */
  readonly found: readonly { readonly owner: string; readonly key: string }[];
  /** Owners of whom the thread has nothing. */
  readonly missing: readonly string[];
}

interface Call {
  resolve(result: never): void;
  reject(error: Error): void;
}

export class ScanThread {
  #worker: Worker | null = null;
  readonly #calls = new Map<number, Call>();
  #lastCall = 0;
  #closed = false;
  readonly #onLost: () => void;

  /** @param onLost called when the thread has ended, and with it all that it kept */
  constructor(onLost: () => void) {
    this.#onLost = onLost;
  }

  /** @returns bytes of all that the thread has of the owner */
  add(owner: string, vectors: StoredVectors): Promise<number> {
    return this.#call("add", { owner, ...vectors });
  }

  remove(owner: string, keys: readonly string[]): Promise<void> {
    return this.#call("remove", { owner, keys });
  }

  async drop(owner: string): Promise<void> {
    if (this.#worker !== null) await this.#call("drop", { owner });
  }

  search(scan: Scan): Promise<Scanned> {
    return this.#call("search", scan);
  }

  /** The text of a block with the vectors of these rows. */
  pack(keys: readonly string[], rows: readonly string[]): Promise<string> {
    return this.#call("pack", { keys, rows });
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.terminate();
  }

  /** Ends the thread. The next call starts another one. */
  async terminate(): Promise<void> {
    const worker = this.#worker;
    this.#end("it was stopped");
    await worker?.terminate();
  }

  #call<T>(name: string, input: unknown): Promise<T> {
    return new Promise((resolve, reject) => {
      if (this.#closed) return reject(new Error("the thread that compares vectors is closed"));
      this.#worker ??= this.#start();
      const id = ++this.#lastCall;
      this.#calls.set(id, { resolve, reject });
      // A busy thread keeps the process alive, an idle one does not.
      this.#worker.ref();
      this.#worker.postMessage({ id, name, input });
    });
  }

  #start(): Worker {
    const worker = new Worker(WORKER, { execArgv: [], name: "vectors", workerData: { kernel: dotKernel() } });
    worker.on("message", ({ id, result, problem }: { id: number; result?: never; problem?: string }) => {
      const call = this.#calls.get(id);
      this.#calls.delete(id);
      if (this.#calls.size === 0) worker.unref();
      if (problem === undefined) call?.resolve(result as never);
      else call?.reject(new Error(`the thread that compares vectors failed: ${problem}`));
    });
    const lost = (reason: string) => {
      if (worker === this.#worker) this.#end(reason);
    };
    worker.on("error", (error) => lost(messageOf(error)));
    worker.on("exit", (code) => lost(`exit code ${code}`));
    return worker;
  }

  #end(reason: string): void {
    this.#worker = null;
    const calls = [...this.#calls.values()];
    this.#calls.clear();
    this.#onLost();
    for (const call of calls) call.reject(new Error(`the thread that compares vectors ended: ${reason}`));
  }
}
