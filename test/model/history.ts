/** What clients of a store asked for and were told, as data: a history is written by one process and judged by another. */
import type { Commit, Range, Row, Store, Tail } from "../../core/storage/store.ts";

/** What a client asks of the port. An expectation carries the value that its revision stands for; null: absent. */
export type Call =
  | {
      readonly kind: "commit";
      readonly commit: Commit;
      readonly expected: readonly (readonly [string, string | null])[];
    }
  | { readonly kind: "get"; readonly keys: readonly string[] }
  | { readonly kind: "scan"; readonly range: Range }
  | { readonly kind: "tail"; readonly tail: Tail };

/** What it was told. `failed`: the store was unavailable, and nothing has happened. `unknown`: a commit may have happened. */
export type Reply =
  | { readonly kind: "committed"; readonly revision: number }
  | { readonly kind: "conflict"; readonly keys: readonly string[] }
  | { readonly kind: "refused"; readonly message: string }
  | { readonly kind: "failed" | "unknown"; readonly message: string }
  | { readonly kind: "rows"; readonly rows: readonly (Row | null)[] }
  | { readonly kind: "joined"; readonly text: string; readonly first: string | null; readonly other: Row | null };

/** `begin` and `end` are places in one order of all beginnings and ends. An operation whose process died has no end and no reply. */
export interface Operation {
  readonly id: number;
  readonly call: Call;
  readonly begin: number;
  end: number;
  reply: Reply | null;
}

export class History {
  readonly operations: Operation[] = [];
  #moment = 0;
  readonly #told: (operation: Operation) => void;

  /** @param told hears of the beginning and of the end of every operation */
  constructor(told: (operation: Operation) => void = () => undefined) {
    this.#told = told;
  }

  begin(call: Call): Operation {
    const id = this.operations.length;
    const operation: Operation = { id, call, begin: this.#moment++, end: Number.POSITIVE_INFINITY, reply: null };
    this.operations.push(operation);
    this.#told(operation);
    return operation;
  }

  end(operation: Operation, reply: Reply): void {
    operation.end = this.#moment++;
    operation.reply = reply;
    this.#told(operation);
  }
}

/** Makes a call of the port, and writes it down. */
export async function record(history: History, store: Store, call: Call): Promise<Reply> {
  const operation = history.begin(call);
  const reply = await perform(store, call);
  history.end(operation, reply);
  return reply;
}

/** Never rejects. */
async function perform(store: Store, call: Call): Promise<Reply> {
  try {
    switch (call.kind) {
      case "commit":
        return { kind: "committed", revision: await store.commit(call.commit) };
      case "get":
        return { kind: "rows", rows: (await store.getMany(call.keys)).map((row) => row ?? null) };
      case "scan":
        return { kind: "rows", rows: await store.scan(call.range) };
      case "tail": {
        const joined = await store.tail(call.tail);
        if (joined === null) return { kind: "refused", message: "the tail is too large" };
        const { text, first, other = null } = joined;
        return { kind: "joined", text: Buffer.from(text as string).toString(), first, other };
      }
    }
  } catch (error) {
    // By name: the engine may be a copy of the source, with classes of its own.
    const { name, kind, keys = [], message } = error as Error & { kind?: string; keys?: readonly string[] };
    if (name === "CommitConflict") return { kind: "conflict", keys };
    if (kind !== "unavailable") return { kind: "refused", message };
    return { kind: /may have happened/.test(message) ? "unknown" : "failed", message };
  }
}
