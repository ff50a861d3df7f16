/** How the tool calls of one run are called: each by an id of its own, and its tool by the name that the manifest has. */
import type { LanguageModelV3Message } from "@ai-sdk/provider";
import type { ToolSet } from "./tool-set.ts";

/**
 * Some models count their calls anew in every step, or in every answer (`call_0`). Clients, stored messages and providers tell
 * calls by their ids alone, so that a call whose id is taken gets another.
 */
export class RunCalls {
  readonly #tools: ToolSet;
  readonly #prompt: readonly LanguageModelV3Message[];
  /** Ids of the calls of the run and of its prompt. Collected when the first call comes: most runs have none. */
  #taken: Set<string> | null = null;
  /** What the latest call with an id of the model's is called here. */
  readonly #own = new Map<string, string>();
  /** Ids of the model's whose call has begun but is not complete. */
  readonly #begun = new Set<string>();

  constructor(tools: ToolSet, prompt: readonly LanguageModelV3Message[]) {
    this.#tools = tools;
    this.#prompt = prompt;
  }

  /** The id of a call that the model begins to write. */
  begin(id: string): string {
    this.#begun.add(id);
    return this.#add(id);
  }

  /** The id of a call that the model has written. */
  complete(id: string): string {
    return this.#begun.delete(id) ? this.idOf(id) : this.#add(id);
  }

  /** The id of the call that has begun, or was complete, last under this id of the model's. */
  idOf(id: string): string {
    return this.#own.get(id) ?? id;
  }

  /** Forgets calls that were begun in an earlier step and never completed. */
  nextStep(): void {
    this.#begun.clear();
  }

  /** The name of the tool that the model means. */
  toolName(name: string): string {
    return this.#tools.namesForModels?.get(name) ?? name;
  }

  #add(id: string): string {
    this.#taken ??= callIds(this.#prompt);
    let own = id;
    for (let count = 2; own === "" || this.#taken.has(own); count++) own = `${id || "call"}_${count}`;
    this.#taken.add(own);
    this.#own.set(id, own);
    return own;
  }
}

function callIds(prompt: readonly LanguageModelV3Message[]): Set<string> {
  const ids = new Set<string>();
  for (const { role, content } of prompt) {
    if (role !== "assistant") continue;
    for (const part of content) if (part.type === "tool-call") ids.add(part.toolCallId);
  }
  return ids;
}
