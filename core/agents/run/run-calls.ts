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
  /** Made when the first call comes: most runs have none. */
  #ids: CallIds | null = null;

  constructor(tools: ToolSet, prompt: readonly LanguageModelV3Message[]) {
    this.#tools = tools;
    this.#prompt = prompt;
  }

  /** The id of a call that the model begins to write. */
  begin(id: string): string {
    const own = this.#add(id);
    this.#ids!.begun.add(id);
    return own;
  }

  /** The id of a call that the model has written. */
  complete(id: string): string {
    return this.#ids?.begun.delete(id) === true ? this.idOf(id) : this.#add(id);
  }

  /** The id of the call that was the last to begin under this id of the model's. */
  idOf(id: string): string {
    return this.#ids?.own.get(id) ?? id;
  }

  /** Forgets calls that were begun in an earlier step and never completed. */
  nextStep(): void {
    this.#ids?.begun.clear();
  }

  /** The name of the tool that the model means. */
  toolName(name: string): string {
    return ownToolName(this.#tools, name);
  }

  isForClient(toolName: string): boolean {
    return this.#tools.byName.get(toolName)?.clientInput !== undefined;
  }

  #add(id: string): string {
    this.#ids ??= { taken: callIds(this.#prompt), own: new Map(), counts: new Map(), begun: new Set() };
    const { taken, own, counts } = this.#ids;
    let count = counts.get(id) ?? 1;
    let free = id;
    while (free === "" || taken.has(free)) free = `${id || "call"}_${++count}`;
    counts.set(id, count);
    taken.add(free);
    own.set(id, free);
    return free;
  }
}

interface CallIds {
  /** Of the calls of the run and of its prompt. */
  readonly taken: Set<string>;
  /** What the latest call with an id of the model's is called here. */
  readonly own: Map<string, string>;
  /** How often an id has been given out, so that the next free one need not be looked for. */
  readonly counts: Map<string, number>;
  /** Ids of the model's whose call has begun but is not complete. */
  readonly begun: Set<string>;
}

function callIds(prompt: readonly LanguageModelV3Message[]): Set<string> {
  const ids = new Set<string>();
  for (const { role, content } of prompt) {
    if (role !== "assistant") continue;
    for (const part of content) if (part.type === "tool-call") ids.add(part.toolCallId);
  }
  return ids;
}
