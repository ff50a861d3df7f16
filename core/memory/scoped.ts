/** A memory for one principal: checks what the principal may do, and delegates the rest to the neighbouring files. */
import type { Conversation, Message, SearchResults, WorkingMemory } from "../../generated/types.ts";
import { conversationNotFound, type Principal, permittedUser } from "../identity/principal.ts";
import { invalid, ServiceError, unavailable } from "../lib/errors.ts";
import { between, Serialized, SerializedStream } from "../lib/serialized.ts";
import type { MemoryManifest } from "../manifest/manifest.ts";
import type { JoinedChanges } from "../storage/joined.ts";
import { conversationKey, conversationWorkingMemoryKey, userWorkingMemoryKey } from "../storage/keys.ts";
import {
  cloneConversation,
  conversationIdTaken,
  createConversation,
  deleteConversation,
  deleteMessages,
  isTaken,
} from "./conversations/create.ts";
import { listConversations } from "./conversations/list.ts";
import type { Domain } from "./domain.ts";
import { ConversationLookup, MAX_LOOKUPS } from "./lookup.ts";
import type {
  CloneOptions,
  ConversationListQuery,
  Earlier,
  EarlierQuery,
  MessageQuery,
  NewConversation,
  NewMessage,
  SimilarQuery,
  TurnPlace,
  WorkingMemoryScope,
} from "./memory.ts";
import { earlierMessages, messagePage } from "./messages/pages.ts";
import { type SaveBatch, type Saver, unsummarized, writeSummary } from "./messages/save.ts";
import {
  changeConversation,
  conversationFromSnapshot,
  conversationHead,
  isRowOf,
  type PreparedMessage,
  prepareMessage,
  type Snapshot,
  type Target,
} from "./records/conversation.ts";
import { ConversationGone, retryOnConflict } from "./records/directory.ts";
import { findByMeaning, findSimilar, requireSemantic } from "./semantic/find.ts";
import { createDraft, type Semantic } from "./semantic/semantic.ts";
import type { WorkingMemoryRules } from "./working-memory/content.ts";

/** One named memory, as the API and the agents use it. */
export interface Memory {
  /** The name in the manifest. */
  readonly name: string;
  readonly settings: MemoryManifest;
  /** Its semantic search, if it has that. */
  readonly semantic: Semantic | undefined;
  /** Milliseconds since 1970; never goes backwards. */
  readonly now: () => number;
  for(principal: Principal): MemoryAccess;
}

/** What it is made of. */
interface NamedMemory extends Pick<Memory, "name" | "settings" | "semantic"> {
  readonly domain: Domain;
  readonly saver: Saver;
  /** Undefined when the memory has no working memory. */
  readonly workingMemoryRules: WorkingMemoryRules | undefined;
}

interface WorkingMemoryOptions {
  scope?: WorkingMemoryScope | undefined;
  userId?: string | undefined;
}

/** Messages to be saved, by conversation id and by the user that the entry names. */
type MessageGroups = Map<string, Map<string | undefined, PreparedMessage[]>>;

const MAX_TITLE_CHARACTERS = 80;

/**
 * A memory for one principal. Methods reject with ServiceError: `not_found` for a conversation that does not exist or belongs to
 * somebody else, `conflict` for a duplicate id, `invalid_input` for invalid input, and for an id that several users have if
 * `userId` does not say whose is meant.
 */
export class MemoryAccess {
  readonly #memory: NamedMemory;
  readonly #principal: Principal;
  readonly #lookup: ConversationLookup;

  constructor(memory: NamedMemory, principal: Principal) {
    this.#memory = memory;
    this.#principal = principal;
    this.#lookup = new ConversationLookup(memory.name, memory.domain, principal);
  }

  /** A `ConversationList` as JSON text, made from the rows without parsing them. */
  async list(query: ConversationListQuery): Promise<Serialized> {
    const { name, domain } = this.#memory;
    const userId = permittedUser(this.#principal, query.userId);
    return listConversations(domain.store, [{ memory: name, resourceId: query.resourceId }], { ...query, userId });
  }

  async get(id: string, userId?: string): Promise<Conversation> {
    return conversationFromSnapshot(await this.#lookup.fresh(id, userId));
  }

  async create(conversation: NewConversation): Promise<Conversation> {
    const { name, domain } = this.#memory;
    const userId = this.#newOwner(conversation.userId);
    const { id } = conversation;
    if (id !== undefined && domain.spaces.owned && (await isTaken(domain, name, id, userId)))
      throw conversationIdTaken(id);
    return createConversation(domain, name, { ...conversation, userId });
  }

  /** Merges metadata key by key; null deletes a key. */
  update(
    id: string,
    change: { title?: string; metadata?: Record<string, unknown> },
    userId?: string,
  ): Promise<Conversation> {
    return this.#change(id, userId, (found) => updateConversation(this.#memory.domain, found, change));
  }

  delete(id: string, userId?: string): Promise<void> {
    return this.#change(id, userId, (found) => deleteConversation(this.#memory.domain, found));
  }

  clone(id: string, options: CloneOptions, userId?: string) {
    return this.#change(id, userId, (found) => cloneConversation(this.#memory.domain, found, options));
  }

  /**
   * `{conversation, messages}` as JSON text: the newest `limit` messages that match, in order. Rows are not parsed.
   *
   * @param shown changes the text of the conversation
   */
  async messages(id: string, query: MessageQuery, shown?: (conversation: string) => string): Promise<Serialized> {
    const page = await this.#lookup.page(id, query.userId, (number) => messagePage(this.#memory.domain, number, query));
    if (page === undefined) throw conversationNotFound(id);
    const { conversation, messages, problem } = page;
    if (problem !== undefined) throw invalid(problem);
    const begin = `{"conversation":${shown?.(conversation) ?? conversation},"messages":[`;
    if (Symbol.asyncIterator in messages) return new SerializedStream(between(begin, messages, "]}"));
    return new Serialized(begin, ...messages, "]}");
  }

  /**
   * Saves the whole batch, which may span conversations, in one commit. Returns how many were saved. A message whose id exists replaces
   * that message in place.
   */
  async save(entries: readonly { conversationId: string; userId?: string; message: NewMessage }[]): Promise<number> {
    const groups: MessageGroups = new Map();
    for (const { conversationId, userId, message } of entries) {
      const user = permittedUser(this.#principal, userId);
      const group = groups.get(conversationId) ?? new Map<string | undefined, PreparedMessage[]>();
      groups.set(conversationId, group);
      const messages = group.get(user) ?? [];
      group.set(user, messages);
      messages.push(prepareMessage(message, this.#memory.semantic !== undefined));
    }
    if (groups.size === 0) return 0;
    await this.#retryWhenGone(async () => {
      await this.#memory.saver.save(await this.#batches(groups));
    });
    return entries.length;
  }

  deleteMessages(id: string, messageIds: readonly string[], userId?: string): Promise<number> {
    return this.#change(id, userId, (found) => deleteMessages(this.#memory.domain, found, messageIds));
  }

  async workingMemory(id: string, options: WorkingMemoryOptions): Promise<WorkingMemory> {
    const { name, domain, workingMemoryRules } = this.#memory;
    const rules = workingMemoryRulesFor(name, workingMemoryRules, options.scope);
    const conversation = await this.#lookup.fresh(id, undefined, options.userId);
    checkWorkingMemoryOwner(this.#principal, conversation, options);
    return readWorkingMemory(domain, rules, conversation);
  }

  updateWorkingMemory(
    id: string,
    content: string | Record<string, unknown>,
    mode: "replace" | "append",
    options: WorkingMemoryOptions,
  ): Promise<void> {
    return this.#retryWhenGone(async () => {
      const found = await this.#lookup.owned(id, undefined, options.userId);
      const { name, domain, workingMemoryRules } = this.#memory;
      const rules = workingMemoryRulesFor(name, workingMemoryRules, options.scope);
      checkWorkingMemoryOwner(this.#principal, found, options);
      await writeWorkingMemory(domain, rules, found, content, mode === "append");
    });
  }

  /** @throws ServiceError `invalid_input` when the memory has no embedding and vectors */
  async search(query: {
    text: string;
    conversationId?: string;
    userId?: string;
    limit: number;
    /** Default: the memory's. */
    threshold?: number | undefined;
  }): Promise<SearchResults> {
    const { name, domain, settings } = this.#memory;
    const semantic = requireSemantic(name, this.#memory.semantic);
    const { text, conversationId, limit, threshold = settings.semantic!.threshold } = query;
    const userId = permittedUser(this.#principal, query.userId);
    const conversation = conversationId === undefined ? undefined : await this.#lookup.fresh(conversationId, userId);
    const owner = conversation?.userId ?? userId;
    return findByMeaning(domain, semantic, { text, owner, conversation, limit, threshold });
  }

  // The rest is for generation.

  /** Earlier messages with a similar meaning, in chronological order. */
  async similar({ id, userId }: { id: string; userId: string }, query: SimilarQuery): Promise<Message[]> {
    const { name, domain } = this.#memory;
    const semantic = requireSemantic(name, this.#memory.semantic);
    const owner = permittedUser(this.#principal, userId)!;
    const conversation = await this.#lookup.ownedIfAny(id, owner);
    return findSimilar(domain, semantic, { memory: name, owner, conversation }, query);
  }

  /** The last `limit` messages before the posted ones. Empty when the conversation does not exist yet. */
  async earlier(id: string, query: EarlierQuery, userId?: string): Promise<Earlier> {
    const page = await this.#lookup.page(id, userId, (number) => {
      const { domain, settings } = this.#memory;
      return earlierMessages(domain, number, query, settings.summary !== undefined);
    });
    if (page === undefined)
      return { messages: [], before: undefined, discarded: null, last: undefined, summary: undefined, isNew: true };
    return page;
  }

  /** Messages before the one with that id that are not in the summary. Null when that message no longer exists. */
  async unsummarized({ id, userId }: { id: string; userId: string }, before: string, limit: number) {
    const owner = permittedUser(this.#principal, userId)!;
    const conversation = await this.#lookup.ownedIfAny(id, owner);
    return conversation === undefined ? null : unsummarized(this.#memory.domain, conversation, before, limit);
  }

  /** Replaces the summary of the conversation with one up to a position. */
  summarize({ id, userId }: { id: string; userId: string }, text: string, through: string): Promise<void> {
    return this.#change(id, userId, (found) => writeSummary(this.#memory.domain, found, { text, through }));
  }

  /** Like `workingMemory`, but also while the conversation does not exist yet. Null when the memory has no working memory. */
  async workingMemoryIfAny({ id, userId }: { id: string; userId: string }): Promise<WorkingMemory | null> {
    const { name, domain, workingMemoryRules } = this.#memory;
    if (workingMemoryRules === undefined) return null;
    const owner = permittedUser(this.#principal, userId)!;
    const conversation = await this.#lookup.ownedIfAny(id, owner);
    if (conversation !== undefined) return readWorkingMemory(domain, workingMemoryRules, conversation);
    if (workingMemoryRules.settings.scope === "conversation") return formatWorkingMemory(workingMemoryRules, undefined);
    return readWorkingMemory(domain, workingMemoryRules, { memory: name, number: 0, id, userId: owner });
  }

  /** Before the turn begins: as `Store.requireRoom`. */
  requireRoom(userId: string, bytes: () => number): Promise<void> | undefined {
    return this.#memory.domain.store.requireRoom?.(permittedUser(this.#principal, userId), bytes);
  }

  /**
   * Creates the conversation if it does not exist (title at most 80 characters) and saves the messages, in one commit. Without messages
   * it only ensures that the conversation exists and belongs to the user.
   *
   * @param conversation its title may be made when it is needed
   * @param joined what happens in the same commit, if there is one
   * @throws what `lost` of those gives
   */
  async append(
    conversation: Omit<NewConversation, "title"> & { id: string; title?: string | (() => string) },
    messages: readonly NewMessage[],
    place?: TurnPlace,
    joined?: readonly JoinedChanges[],
  ): Promise<void> {
    const { name, domain, saver, semantic } = this.#memory;
    const userId = this.#newOwner(conversation.userId);
    const { id, title = "" } = conversation;
    const prepared = messages.map((message) => prepareMessage(message, semantic !== undefined));
    await this.#retryWhenGone(async () => {
      const found = await this.#lookup.ownedIfAny(id, userId);
      if (found !== undefined) {
        if (prepared.length > 0)
          await saver.save([{ conversation: found, messages: prepared, place, joined, begun: true }]);
        else await domain.conversations.current(found, true);
        return;
      }
      const { isolated, owned } = domain.spaces;
      if (owned && !isolated && (await isTaken(domain, name, id, userId))) throw conversationNotFound(id);
      const given = typeof title === "string" ? title : title();
      const wanted = { ...conversation, userId, title: [...given].slice(0, MAX_TITLE_CHARACTERS).join("") };
      await createConversation(domain, name, wanted, { messages: prepared, joined }).catch((error: unknown) => {
        // Another call has just created it.
        throw error instanceof ServiceError && error.kind === "conflict" ? new ConversationGone() : error;
      });
    });
  }

  /** One batch per conversation, even if entries name it with different users. */
  async #batches(groups: MessageGroups): Promise<SaveBatch[]> {
    const wanted = [...groups].flatMap(([id, group]) => [...group].map((entry) => [id, ...entry] as const));
    const found = await Promise.all(wanted.map(([id, userId]) => this.#lookup.owned(id, userId)));
    const batches = new Map<number, SaveBatch>();
    found.forEach((conversation, index) => {
      const [, , messages] = wanted[index]!;
      const known = batches.get(conversation.number);
      const joined = known === undefined ? messages : [...known.messages, ...messages];
      batches.set(conversation.number, { conversation, messages: joined });
    });
    return [...batches.values()];
  }

  /** The owner of a conversation that this caller creates. */
  #newOwner(userId: string): string {
    const owner = permittedUser(this.#principal, userId)!;
    if (owner === "" && !this.#principal.isolated) throw invalid("userId must not be empty");
    return owner;
  }

  #change<T>(id: string, userId: string | undefined, work: (found: Snapshot) => Promise<T>): Promise<T> {
    return this.#retryWhenGone(async () => {
      const acting = userId === undefined ? undefined : permittedUser(this.#principal, userId);
      return work(await this.#lookup.owned(id, acting));
    });
  }

  /** Looks the conversation up again when it turns out to be deleted: by then another one may have its id. */
  async #retryWhenGone<T>(work: () => Promise<T>): Promise<T> {
    for (let count = 1; ; count++) {
      try {
        return await work();
      } catch (error) {
        if (!(error instanceof ConversationGone)) throw error;
        if (count === MAX_LOOKUPS)
          throw unavailable("the conversation is deleted and created again all the time, try again");
      }
    }
  }
}

export const asMemory = (named: NamedMemory): Memory => ({
  name: named.name,
  settings: named.settings,
  semantic: named.semantic,
  now: named.domain.now,
  for: (principal) => new MemoryAccess(named, principal),
});

// Changing title and metadata of a conversation.

/** @throws ConversationGone when it has been deleted */
function updateConversation(
  domain: Domain,
  found: Snapshot,
  change: { title?: string; metadata?: Record<string, unknown> },
): Promise<Conversation> {
  return domain.mutex.run([found.number], () =>
    retryOnConflict(async (reload) => {
      const before = await domain.conversations.current(found, reload);
      const old = conversationFromSnapshot(before);
      const title = change.title ?? old.title;
      const metadata = mergeMetadata(old.metadata, change.metadata ?? {});
      const updatedAt = Math.max(domain.now(), before.updatedAt);
      const after = { ...before, updatedAt, head: conversationHead({ ...old, title, metadata }) };
      const draft = createDraft();
      changeConversation(draft, before, after);
      const revision = await domain.store.commit(draft);
      domain.conversations.remember({ ...after, revision });
      return conversationFromSnapshot(after);
    }),
  );
}

/** Merges key by key; null deletes a key. */
function mergeMetadata(old: Record<string, unknown>, change: Record<string, unknown>): Record<string, unknown> {
  const members = new Map(Object.entries(old));
  for (const [key, value] of Object.entries(change)) {
    if (value === null) members.delete(key);
    else members.set(key, value);
  }
  return Object.fromEntries(members);
}

// Reads and writes working memory: that of a conversation, or of a user in a memory.

/** @throws ServiceError `invalid_input` when the memory has no working memory, or one with another scope */
function workingMemoryRulesFor(
  name: string,
  rules: WorkingMemoryRules | undefined,
  scope: WorkingMemoryScope | undefined,
): WorkingMemoryRules {
  if (rules === undefined)
    throw invalid(`memory ${JSON.stringify(name)} has no working memory (memory.${name}.workingMemory)`);
  if (scope === undefined || scope === rules.settings.scope) return rules;
  throw invalid(`scope must be ${rules.settings.scope}: that is the one of this working memory`);
}

/** @throws ServiceError `invalid_input` when the request names another user, or none when it must name one */
function checkWorkingMemoryOwner(
  principal: Principal,
  { userId }: Target,
  request: { scope?: string; userId?: string },
): void {
  if (request.userId !== undefined && request.userId !== userId) {
    throw invalid("userId must be the owner of the conversation");
  }
  if (request.scope === "user" && request.userId === undefined && !principal.isolated) {
    throw invalid("userId is required with scope=user");
  }
}

/** With scope `user` the conversation need not exist. With the other scope it may be out of date: then nothing is found. */
async function readWorkingMemory(
  { store }: Domain,
  rules: WorkingMemoryRules,
  target: Target & Pick<Snapshot, "id">,
): Promise<WorkingMemory> {
  const key = workingMemoryKey(rules, target);
  if (rules.settings.scope === "user") return formatWorkingMemory(rules, (await store.get(key))?.value);
  const [row, conversation] = await store.getMany([key, conversationKey(target.number)]);
  const isOwn = conversation !== undefined && isRowOf(target, conversation);
  return formatWorkingMemory(rules, isOwn ? row?.value : undefined);
}

function formatWorkingMemory(rules: WorkingMemoryRules, stored: string | undefined): WorkingMemory {
  const { scope, format, template = null } = rules.settings;
  return { content: stored === undefined ? null : rules.toApi(stored), scope, format, template };
}

function workingMemoryKey(rules: WorkingMemoryRules, { memory, number, userId }: Target): string {
  return rules.settings.scope === "user" ? userWorkingMemoryKey(memory, userId) : conversationWorkingMemoryKey(number);
}

/** @throws ConversationGone when the conversation has been deleted */
function writeWorkingMemory(
  domain: Domain,
  rules: WorkingMemoryRules,
  conversation: Snapshot,
  content: string | Record<string, unknown>,
  append: boolean,
): Promise<void> {
  const key = workingMemoryKey(rules, conversation);
  return domain.mutex.run([conversation.number], () =>
    retryOnConflict(async (reload) => {
      const { memory, userId, number, revision } = await domain.conversations.current(conversation, reload);
      const before = append ? await domain.store.get(key) : undefined;
      const value = rules.next(content, before?.value);
      await domain.store.commit({
        put: [[key, value]],
        expect: [[conversationKey(number), revision], ...(append ? [[key, before?.revision ?? null] as const] : [])],
        of: [rules.settings.scope === "user" ? { memory, userId } : { memory, userId, number }],
      });
    }),
  );
}
