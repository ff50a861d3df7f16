/** How the tool calls of one run are called: each by an id of its own, and its tool by the name that the manifest has. */
import type { LanguageModelV3Message } from "@ai-sdk/provider";
import { ownToolName, type ToolSet } from "./tool-set.ts";

/**
 * Some models count their calls anew in every step, or in every answer (`call_0`). Clients, stored messages and providers tell
 * calls by their ids alone, so that a call whose id is taken gets another.
 */
export class RunCalls {
  readonly #tools: ToolSet;
  readonly #prompt: readonly LanguageModelV3Message[];
  /** By the ids of the model; null at ids that are taken otherwise. Made when the first call comes: most runs have none. */
  #calls: Map<string, LatestCall | null> | null = null;
  #step = 0;

  constructor(tools: ToolSet, prompt: readonly LanguageModelV3Message[]) {
    this.#tools = tools;
    this.#prompt = prompt;
  }

  /** The id of a call that the model begins to write. */
  begin(id: string): string {
    const call = this.#add(id);
    call.begunIn = this.#step;
    return call.own;
  }

  /** The id of a call that the model has written. */
  complete(id: string): string {
    const begun = this.#calls?.get(id);
    if (begun?.begunIn !== this.#step) return this.#add(id).own;
    begun.begunIn = 0;
    return begun.own;
  }

  /** The id of the call that was the last to begin under this id of the model's. */
  idOf(id: string): string {
    return this.#calls?.get(id)?.own ?? id;
  }

  /** Forgets calls that were begun in an earlier step and never completed. */
  nextStep(): void {
    this.#step++;
  }

  /** The name of the tool that the model means. */
  toolName(name: string): string {
    return ownToolName(this.#tools, name);
  }

  isForClient(toolName: string): boolean {
    return this.#tools.byName.get(toolName)?.clientInput !== undefined;
  }

  #add(id: string): LatestCall {
    this.#calls ??= callsOf(this.#prompt);
    let count = this.#calls.get(id)?.count ?? 1;
    let own = id;
    while (own === "" || this.#calls.has(own)) own = `${id || "call"}_${++count}`;
    const call = { own, count, begunIn: 0 };
    if (own !== id) this.#calls.set(own, null);
    this.#calls.set(id, call);
    return call;
  }
}

/** The latest call with an id of the model's. */
interface LatestCall {
  /** What it is called here. */
  readonly own: string;
  /** How often the id has been given out, so that the next free one need not be looked for. */
  readonly count: number;
  /** The step in which it has begun, while it is not complete; 0 otherwise. */
  begunIn: number;
}

function callsOf(prompt: readonly LanguageModelV3Message[]): Map<string, null> {
  const calls = new Map<string, null>();
  for (const { role, content } of prompt) {
    if (role !== "assistant") continue;
    for (const part of content) if (part.type === "tool-call") calls.set(part.toolCallId, null);
  }
  return calls;
}
