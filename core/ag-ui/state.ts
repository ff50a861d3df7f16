/** The state that an agent and its client share: the working memory of the conversation, if it is JSON. */
import { isDeepStrictEqual } from "node:util";
import type { AgUiEvent } from "../../generated/types.ts";
import { UPDATE_WORKING_MEMORY } from "../agents/conversation/agent-memory.ts";
import { ANONYMOUS, actingUser, type Principal } from "../identity/principal.ts";
import { isObject } from "../lib/is-object.ts";
import type { Memory } from "../memory/scoped.ts";

type State = Record<string, unknown>;

/** Whether an agent with this memory keeps the state of its clients. */
export function keepsState({ settings: { workingMemory } }: Memory): boolean {
  return workingMemory?.format === "json" && workingMemory.scope === "conversation";
}

export class SharedState {
  readonly #read: () => Promise<State | null>;
  readonly #stored: State | null;
  /** The state as the client has edited it, which is stored before the run; undefined when it is unchanged. */
  readonly edited: State | undefined;

  private constructor(read: () => Promise<State | null>, stored: State | null, given: unknown) {
    this.#read = read;
    this.#stored = stored;
    // A new client has an empty state, even if the conversation has one.
    const isEdited = isObject(given) && Object.keys(given).length > 0 && !isDeepStrictEqual(given, stored);
    this.edited = isEdited ? given : undefined;
  }

  /** @param given the state that the client sent */
  static async open(memory: Memory, principal: Principal, threadId: string, given: unknown): Promise<SharedState> {
    const conversation = { id: threadId, userId: actingUser(principal, undefined) ?? ANONYMOUS };
    const access = memory.for(principal);
    const read = async () => parsed((await access.workingMemoryIfAny(conversation))?.content ?? null);
    return new SharedState(read, await read(), given);
  }

  /** Whether a tool of this name has changed it. */
  isChangedBy(toolName: string): boolean {
    return toolName === UPDATE_WORKING_MEMORY;
  }

  /** The events at the start of the run. */
  begun(): AgUiEvent[] {
    return snapshot(this.edited ?? this.#stored);
  }

  /** The events after a change. */
  async changed(): Promise<AgUiEvent[]> {
    return snapshot(await this.#read());
  }
}

const snapshot = (state: State | null): AgUiEvent[] =>
  state === null ? [] : [{ type: "STATE_SNAPSHOT", snapshot: state }];

/** @param content JSON text from the memory */
function parsed(content: string | null): State | null {
  return content === null ? null : JSON.parse(content);
}
