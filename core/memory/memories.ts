/** Creates the memories of a manifest over one store. */
import type { Logger } from "pino";
import { type Clock, risingClock, storedTime } from "../lib/clock.ts";
import { Copies } from "../lib/copies.ts";
import { messageOf } from "../lib/errors.ts";
import { Interval } from "../lib/interval.ts";
import { createSchemaCompiler, type SchemaCompiler } from "../lib/json-schema.ts";
import { createKeyedMutex } from "../lib/keyed-mutex.ts";
import type { Manifest, MemoryManifest } from "../manifest/manifest.ts";
import { CONVERSATION_SEQUENCE, CONVERSATIONS, OWN_CONVERSATION_IDS } from "../storage/keys.ts";
import { excessBytes } from "../storage/memory-shares.ts";
import { createSequence } from "../storage/sequence.ts";
import { isVolatile, openIdSpaces, type Store } from "../storage/store.ts";
import { deleteConversation, discardUnfinishedCopies } from "./conversations/create.ts";
import type { Domain, OnDelete } from "./domain.ts";
import { RecentMessages } from "./messages/recent.ts";
import { createSaver } from "./messages/save.ts";
import type { Stored } from "./records/conversation.ts";
import { ConversationGone, Conversations } from "./records/directory.ts";
import { asMemory, type Memory } from "./scoped.ts";
import type { Semantic } from "./semantic/semantic.ts";
import { createWorkingMemoryRules, type WorkingMemoryRules } from "./working-memory/content.ts";

// Conversations in a store that ends with the process: they have a bounded room, which those that changed least recently make.

/** How much is freed at once. */
const ROOM_BYTES = 1024 * 1024;
/** Removals before other work gets its turn. */
const REMOVALS_PER_TURN = 100;

class VolatileConversations {
  readonly #store: Store;
  readonly #logger: Logger | undefined;
  /** Conversations by number, the least recently changed first. */
  readonly #used = new Map<number, Stored>();
  #isMakingRoom = false;
  #hasWarned = false;

  constructor(store: Store, logger?: Logger) {
    this.#store = store;
    this.#logger = logger;
  }

  /** Called for every conversation that changes, or is read from the store. */
  use(domain: Domain, { memory, number, id, ownId, userId, resourceId, updatedAt, revision }: Stored): void {
    this.#used.delete(number);
    this.#used.set(number, { memory, number, id, ownId, userId, resourceId, updatedAt, revision });
    this.makeRoom(domain);
  }

  /** In the background, where conversations take more than their room. */
  makeRoom(domain: Domain): void {
    if (this.#isMakingRoom || this.#excess() <= 0) return;
    this.#isMakingRoom = true;
    this.#removeOldest(domain)
      .catch((error) => this.#logger?.warn({ err: error }, `conversations cannot make room: ${messageOf(error)}`))
      .finally(() => {
        this.#isMakingRoom = false;
      });
  }

  forget(number: number): void {
    this.#used.delete(number);
  }

  async #removeOldest(domain: Domain): Promise<void> {
    this.#warn();
    let removed = 0;
    for (const used of this.#used.values()) {
      // The one that changed last is somebody's at this moment.
      if (this.#used.size === 1 || this.#excess() <= -ROOM_BYTES) return;
      try {
        await deleteConversation(domain, used);
      } catch (error) {
        if (!(error instanceof ConversationGone)) throw error;
      }
      this.#used.delete(used.number);
      if (++removed % REMOVALS_PER_TURN === 0) await new Promise(setImmediate);
    }
  }

  #warn(): void {
    if (this.#hasWarned) return;
    this.#hasWarned = true;
    this.#logger?.warn(
      "the conversations in memory: take as much as they may; from now on those that changed least recently are removed",
    );
  }

  #excess(): number {
    return excessBytes(this.#store, "conversations");
  }
}

export interface MemoriesOptions {
  /** The semantic indexes by the name of the memory. */
  semantic?: ReadonlyMap<string, Semantic>;
  /** Whether ids belong to users. Default: they do not. */
  isolated?: boolean;
  logger?: Logger;
  onDelete?: OnDelete;
  /** A clock in milliseconds since 1970, for tests. */
  now?: Clock;
}

/** What all memories over one store share. The memories of several manifests may use it at the same time. */
export interface MemoryDomain {
  /**
   * All memories of the manifest by name, ready for use.
   *
   * @throws Error naming `memory.NAME.workingMemory.schema` when that schema does not compile
   */
  memories(manifest: Pick<Manifest, "memory">): Promise<Map<string, Memory>>;
  /** In `memory:`, conversations that nobody uses make room for other rows as well. */
  start(): void;
  close(): Promise<void>;
}

/** Between two looks at the room that other rows have left. */
const ROOM_INTERVAL_MS = 250;

/** Nothing is read before the first memory. */
export function openDomain(store: Store, options: MemoriesOptions): MemoryDomain {
  let opened: Promise<{ domain: Domain; saver: ReturnType<typeof createSaver> }> | undefined;
  const open = async () => {
    const domain = await createDomain(store, options);
    await discardUnfinishedCopies(domain);
    return { domain, saver: createSaver(domain) };
  };
  const room = isVolatile(store)
    ? new Interval(
        ROOM_INTERVAL_MS,
        async () => (await opened)?.domain.makeRoom?.(),
        (error) => options.logger?.warn({ err: error }, `conversations cannot make room: ${messageOf(error)}`),
      )
    : null;
  return {
    start: () => room?.start(),
    close: async () => room?.stop(),
    async memories(manifest) {
      const memories = new Map<string, Memory>();
      const settings = Object.entries(manifest.memory ?? {});
      if (settings.length === 0) return memories;
      opened ??= open();
      opened.catch(() => {
        opened = undefined;
      });
      const { domain, saver } = await opened;
      const compiler = createSchemaCompiler();
      for (const [name, memory] of settings) {
        const workingMemoryRules = compileWorkingMemoryRules(name, memory, compiler);
        const semantic = domain.semantic.get(name);
        memories.set(name, asMemory({ name, settings: memory, domain, saver, workingMemoryRules, semantic }));
      }
      return memories;
    },
  };
}

async function createDomain(
  store: Store,
  { isolated = false, semantic = new Map(), logger, onDelete, now }: MemoriesOptions,
): Promise<Domain> {
  const spaces = await openIdSpaces(store, isolated, OWN_CONVERSATION_IDS);
  const recent = new RecentMessages(store);
  const bound = isVolatile(store) ? new VolatileConversations(store, logger) : undefined;
  const usage = bound && {
    use: (stored: Stored) => bound.use(domain, stored),
    forget: (number: number) => bound.forget(number),
  };
  const domain: Domain = {
    store: recent.store,
    spaces,
    conversations: new Conversations(store, spaces, usage),
    recent,
    mutex: createKeyedMutex(),
    copies: new Copies(),
    numbers: await createSequence(store, CONVERSATION_SEQUENCE, [CONVERSATIONS]),
    semantic,
    onDelete,
    makeRoom: bound && (() => bound.makeRoom(domain)),
    now: now === undefined ? storedTime : risingClock(() => Math.max(0, now())),
  };
  return domain;
}

function compileWorkingMemoryRules(
  name: string,
  { workingMemory }: MemoryManifest,
  compiler: SchemaCompiler,
): WorkingMemoryRules | undefined {
  if (workingMemory === undefined) return undefined;
  try {
    return createWorkingMemoryRules(workingMemory, compiler);
  } catch (error) {
    throw new Error(`memory.${name}.workingMemory.schema: ${error instanceof Error ? error.message : String(error)}`);
  }
}
