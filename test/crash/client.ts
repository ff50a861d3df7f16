/** One client of the crash test: it sends one request after another and keeps what was acknowledged. */
import type { Dispatcher } from "undici";
import type { Conversation, Operation, Outcome } from "./model.ts";
import { chooseOperation, type Scene } from "./operations.ts";

/** It works on the last so many of its conversations: they grow, but not without end. */
const RECENT = 12;

export class Client {
  readonly name: string;
  /** What was acknowledged, by conversation. */
  readonly state = new Map<string, Conversation>();
  /** Conversations of its own in the order of their making; some are gone. */
  readonly #made: string[] = [];
  /** Conversations that others write into too. */
  #shared: readonly string[] = [];
  /** Since the last check. */
  readonly touched = new Set<string>();
  /** Sent, and neither acknowledged nor refused when the server died. */
  pending: Operation | null = null;
  acknowledged = 0;
  readonly #random: () => number;
  #counter = 0;

  constructor(name: string, random: () => number) {
    this.name = name;
    this.#random = random;
  }

  /** From the next request on this one writes into these conversations, as others do, and no more into those before. */
  join(shared: ReadonlyMap<string, Conversation>): void {
    this.#shared = [...shared.keys()];
    for (const [id, conversation] of shared) this.state.set(id, conversation);
  }

  /** Sends until the connection breaks, which is an error unless `killed()`. Refused requests are errors too. */
  async work(pool: Dispatcher, round: number, killed: () => boolean): Promise<void> {
    while (!killed()) {
      const operation = chooseOperation(this.#scene(round));
      for (const id of operation.outcomes.at(-1)!.keys()) this.touched.add(id);
      this.pending = operation;
      try {
        await send(pool, operation);
      } catch (error) {
        if (killed() && !(error instanceof Refused)) return;
        throw error;
      }
      this.acknowledged += 1;
      this.settle(operation.outcomes.at(-1)!);
    }
  }

  /** Makes an outcome the state: it was acknowledged, or is what the crash has left. */
  settle(outcome: Outcome): void {
    for (const [id, conversation] of outcome) {
      if (conversation === null) {
        this.state.delete(id);
        continue;
      }
      if (!this.state.has(id)) this.#made.push(id);
      this.state.set(id, conversation);
    }
    this.pending = null;
  }

  #scene(round: number): Scene {
    const known = (ids: readonly string[]) => {
      return ids.flatMap((id) => (this.state.has(id) ? [[id, this.state.get(id)!] as const] : []));
    };
    const last = [...new Set(this.#made.slice(-RECENT))];
    return {
      client: this.name,
      round,
      own: known(last),
      gone: last.filter((id) => !this.state.has(id)),
      shared: known(this.#shared),
      random: this.#random,
      next: () => {
        this.#counter += 1;
        return this.#counter;
      },
    };
  }
}

/** A reply that no client should get from a server in good health. */
class Refused extends Error {
  override readonly name = "Refused";
}

/** Resolves once the whole reply is there. */
export async function send(pool: Dispatcher, operation: Omit<Operation, "outcomes">): Promise<void> {
  const { name, method, path, body, ends } = operation;
  const headers = body === undefined ? {} : { "content-type": "application/json" };
  const reply = await pool.request({
    method,
    path,
    headers,
    body: body === undefined ? null : JSON.stringify(body),
  });
  const text = await reply.body.text();
  if (reply.statusCode >= 300) throw new Refused(`${name}: ${method} ${path} is ${reply.statusCode}: ${text}`);
  if (ends !== undefined && !text.includes(ends)) throw new Refused(`${name}: the stream has no ${ends}: ${text}`);
}
