/** A memory for one principal: who may do what is settled here, the rest is done by the files beside. */
import type { Conversation, Message, SearchResults, WorkingMemory } from "../../generated/types.ts";
import { invalid, ServiceError, unavailable } from "../errors.ts";
import { Serialized, type Text } from "../http/route.ts";
import { cloneConversation } from "./clone.ts";
import { conversationIn, conversationText, type Snapshot } from "./conversation.ts";
import { Gone } from "./conversations.ts";
import { createConversation } from "./create.ts";
import type { Domain } from "./domain.ts";
import { findByMeaning, findSimilar, searchable } from "./find.ts";
import { listConversations } from "./list.ts";
import type {
  ListQuery,
  Memory,
  MemoryAccess,
  MessageQuery,
  NewConversation,
  NewMessage,
  Principal,
  SimilarQuery,
} from "./memory.ts";
import { messagesOf, type PreparedMessage, prepareMessage } from "./message.ts";
import { checkNoteOwner, readNote, rulesFor, shownNote, writeNote } from "./note.ts";
import type { NoteRules } from "./note-content.ts";
import { actingUser, mayAccess, noConversation } from "./ownership.ts";
import { messagePage } from "./pages.ts";
import { deleteConversation, deleteMessages } from "./remove.ts";
import type { Batch, Saver } from "./save.ts";
import type { Semantic } from "./semantic/semantic.ts";
import { updateConversation } from "./update.ts";

/** What is known of one memory beside its conversations. */
export interface Named {
  readonly name: string;
  readonly settings: Memory["settings"];
  readonly domain: Domain;
  readonly saver: Saver;
  /** Undefined without working memory. */
  readonly notes: NoteRules | undefined;
  readonly semantic: Semantic | undefined;
}

type NoteOptions = Parameters<MemoryAccess["workingMemory"]>[1];
type SaveEntries = Parameters<MemoryAccess["save"]>[0];

/** Messages for one conversation, and the users in whose name they are saved. */
interface Group {
  readonly users: Set<string | undefined>;
  readonly messages: PreparedMessage[];
}

/** Times that a conversation may be deleted and made anew while one call works on it. */
const MOST_LIVES = 5;
const LONGEST_TITLE = 80;
const TOO_LARGE = "these messages are larger than 64 MiB together: ask for fewer with limit";

export class Access implements MemoryAccess {
  readonly #memory: Named;
  readonly #principal: Principal;

  constructor(memory: Named, principal: Principal) {
    this.#memory = memory;
    this.#principal = principal;
  }

  async list(query: ListQuery): Promise<Serialized> {
    const { name, domain } = this.#memory;
    const userId = actingUser(this.#principal, query.userId);
    const { userId: _, ...rest } = query;
    return listConversations(domain.store, name, userId === undefined ? rest : { ...rest, userId });
  }

  async get(id: string): Promise<Conversation> {
    const { name, domain } = this.#memory;
    return conversationIn(this.#checked(id, await domain.conversations.fresh(name, id), undefined));
  }

  async create(conversation: NewConversation): Promise<Conversation> {
    const { name, domain } = this.#memory;
    const userId = this.#newOwner(conversation.userId);
    return createConversation(domain, name, { ...conversation, userId });
  }

  update(id: string, change: { title?: string; metadata?: Record<string, unknown> }): Promise<Conversation> {
    return this.#change(id, undefined, (found) => updateConversation(this.#memory.domain, found, change));
  }

  delete(id: string): Promise<void> {
    return this.#change(id, undefined, (found) => deleteConversation(this.#memory.domain, found));
  }

  clone(id: string, options: Parameters<MemoryAccess["clone"]>[1]) {
    return this.#change(id, undefined, (found) => cloneConversation(this.#memory.domain, found, options));
  }

  async messages(id: string, query: MessageQuery): Promise<Serialized> {
    const page = await this.#read(id, query);
    if (page === undefined) throw noConversation(id);
    return new Serialized(`{"conversation":${page.conversation},"messages":[`, ...page.messages, "]}");
  }

  async save(entries: SaveEntries): Promise<number> {
    const groups = new Map<string, Group>();
    for (const { conversationId, userId, message } of entries) {
      const group = groups.get(conversationId) ?? { users: new Set(), messages: [] };
      groups.set(conversationId, group);
      group.users.add(actingUser(this.#principal, userId));
      group.messages.push(prepareMessage(message, this.#memory.semantic !== undefined));
    }
    if (groups.size === 0) return 0;
    await this.#again(async () => {
      const batches = await Promise.all([...groups].map(([id, group]) => this.#batch(id, group)));
      await this.#memory.saver.save(batches);
    });
    return entries.length;
  }

  deleteMessages(id: string, messageIds: readonly string[], userId?: string): Promise<number> {
    return this.#change(id, userId, (found) => deleteMessages(this.#memory.domain, found, messageIds));
  }

  async workingMemory(id: string, options: NoteOptions): Promise<WorkingMemory> {
    const { name, domain, notes } = this.#memory;
    const rules = rulesFor(name, notes, options.scope);
    const conversation = this.#checked(id, await domain.conversations.fresh(name, id), undefined);
    checkNoteOwner(this.#principal, conversation, options);
    return readNote(domain, rules, conversation);
  }

  updateWorkingMemory(
    id: string,
    content: string | Record<string, unknown>,
    mode: "replace" | "append",
    options: NoteOptions,
  ): Promise<void> {
    return this.#change(id, undefined, async (found) => {
      const { name, domain, notes } = this.#memory;
      const rules = rulesFor(name, notes, options.scope);
      checkNoteOwner(this.#principal, found, options);
      await writeNote(domain, rules, found, content, mode === "append");
    });
  }

  async search(query: Parameters<MemoryAccess["search"]>[0]): Promise<SearchResults> {
    const { name, domain, settings } = this.#memory;
    const semantic = searchable(name, this.#memory.semantic);
    const { text, conversationId, limit, threshold = settings.semantic!.threshold } = query;
    const userId = actingUser(this.#principal, query.userId);
    const conversation =
      conversationId === undefined
        ? undefined
        : this.#checked(conversationId, await domain.conversations.fresh(name, conversationId), userId);
    const owner = conversation?.userId ?? userId;
    return findByMeaning(domain, semantic, { text, owner, conversation, limit, threshold });
  }

  async similar({ id, userId }: { id: string; userId: string }, query: SimilarQuery): Promise<Message[]> {
    const { name, domain } = this.#memory;
    const semantic = searchable(name, this.#memory.semantic);
    const owner = actingUser(this.#principal, userId)!;
    const conversation = await this.#ownedIfAny(id, owner);
    return findSimilar(domain, semantic, { memory: name, owner, conversation }, query);
  }

  async recent(id: string, limit: number, userId?: string): Promise<Message[]> {
    const page = await this.#read(id, { limit, ...(userId !== undefined && { userId }) });
    return page === undefined ? [] : messagesOf(page.messages);
  }

  async note({ id, userId }: { id: string; userId: string }): Promise<WorkingMemory | null> {
    const { name, domain, notes } = this.#memory;
    if (notes === undefined) return null;
    const owner = actingUser(this.#principal, userId)!;
    const conversation = await this.#ownedIfAny(id, owner);
    if (conversation !== undefined) return readNote(domain, notes, conversation);
    if (notes.settings.scope === "conversation") return shownNote(notes, undefined);
    return readNote(domain, notes, { memory: name, number: 0, userId: owner });
  }

  async append(conversation: NewConversation & { id: string }, messages: readonly NewMessage[]): Promise<void> {
    const { name, domain, saver, semantic } = this.#memory;
    const userId = this.#newOwner(conversation.userId);
    const { id, title = "" } = conversation;
    const prepared = messages.map((message) => prepareMessage(message, semantic !== undefined));
    await this.#again(async () => {
      const found = await this.#ownedIfAny(id, userId);
      if (found !== undefined) {
        if (prepared.length > 0) await saver.save([{ conversation: found, messages: prepared }]);
        else await domain.conversations.current(found, true);
        return;
      }
      const wanted = { ...conversation, userId, title: [...title].slice(0, LONGEST_TITLE).join("") };
      await createConversation(domain, name, wanted, prepared).catch((error: unknown) => {
        // Another call has just made it.
        throw error instanceof ServiceError && error.kind === "conflict" ? new Gone() : error;
      });
    });
  }

  async #batch(id: string, { users, messages }: Group): Promise<Batch> {
    let conversation: Snapshot | undefined;
    for (const userId of users) conversation = await this.#owned(id, userId);
    // Every entry names a user, if only as undefined.
    return { conversation: conversation!, messages };
  }

  /**
   * The conversation, maybe not as it is by now.
   *
   * @throws ServiceError `not_found` unless it is there, and this caller's, and that user's
   */
  async #owned(id: string, userId: string | undefined): Promise<Snapshot> {
    const found = await this.#ownedIfAny(id, userId);
    if (found === undefined) throw noConversation(id);
    return found;
  }

  /** The same; undefined when there is none. */
  async #ownedIfAny(id: string, userId: string | undefined): Promise<Snapshot | undefined> {
    const { name, domain } = this.#memory;
    const found = await domain.conversations.find(name, id);
    if (found === undefined || mayAccess(this.#principal, found.userId, userId)) return found;
    // Another process may have deleted that one, and this caller made one of the same id.
    const fresh = await domain.conversations.fresh(name, id);
    return fresh === undefined ? undefined : this.#checked(id, fresh, userId);
  }

  /** @throws ServiceError `not_found` unless it is there, and this caller's, and that user's */
  #checked(id: string, found: Snapshot | undefined, userId: string | undefined): Snapshot {
    if (found === undefined || !mayAccess(this.#principal, found.userId, userId)) throw noConversation(id);
    return found;
  }

  /** The owner of what this caller makes. */
  #newOwner(userId: string): string {
    const owner = actingUser(this.#principal, userId)!;
    if (owner === "" && !this.#principal.isolated) throw invalid("userId must not be empty");
    return owner;
  }

  #change<T>(id: string, userId: string | undefined, work: (found: Snapshot) => Promise<T>): Promise<T> {
    return this.#again(async () => {
      const acting = userId === undefined ? undefined : actingUser(this.#principal, userId);
      return work(await this.#owned(id, acting));
    });
  }

  /** Looks again when the conversation that was known is gone: it does not exist any more, or is another one. */
  async #again<T>(work: () => Promise<T>): Promise<T> {
    for (let life = 1; ; life++) {
      try {
        return await work();
      } catch (error) {
        if (!(error instanceof Gone)) throw error;
        if (life === MOST_LIVES)
          throw unavailable("the conversation is deleted and made again all the time, try again");
      }
    }
  }

  /**
   * The conversation and its messages as texts; undefined when there is none. Both are one read: whose they are is known
   * before anything of them is told.
   *
   * @throws ServiceError `invalid_input` when they are too large together
   */
  async #read(
    id: string,
    query: MessageQuery,
  ): Promise<{ conversation: string; messages: readonly Text[] } | undefined> {
    const { name, domain } = this.#memory;
    const { conversations, store } = domain;
    const userId = query.userId === undefined ? undefined : actingUser(this.#principal, query.userId);
    for (let life = 1; life <= MOST_LIVES; life++) {
      const number = await conversations.place(name, id);
      if (number === undefined) return undefined;
      const { conversation, messages } = await messagePage(store, number, query);
      if (conversation !== undefined) {
        this.#checked(id, conversations.found(name, id, number, conversation), userId);
        if (messages === null) throw invalid(TOO_LARGE);
        return { conversation: conversationText(conversation.value), messages };
      }
      conversations.forget({ memory: name, id, number });
    }
    return undefined;
  }
}

/** The memory as the API and the agents get it. */
export const asMemory = (named: Named): Memory => ({
  name: named.name,
  settings: named.settings,
  now: named.domain.now,
  for: (principal) => new Access(named, principal),
});
