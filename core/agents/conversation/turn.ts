/**
 * One turn of a conversation: what the model is told of the conversation before the run, and what is stored of the run
 * while it goes on and when it is over. The last part of the run waits for `finish`, so that a client that has seen it
 * knows that the turn is stored.
 */
import type { LanguageModelV3Message } from "@ai-sdk/provider";
import { messageOf } from "../../lib/errors.ts";
import { jsonBytes } from "../../lib/size.ts";
import type { Discarded, NewMessage, TurnPlace } from "../../memory/memory.ts";
import type { Memory, MemoryAccess } from "../../memory/scoped.ts";
import { MEMORY_SPANS, memoryAttributes, type Span, spanned } from "../../observability/span.ts";
import { isStoreUnavailable, whileAway } from "../../storage/away.ts";
import type { JoinedChanges } from "../../storage/joined.ts";
import { NO_CALLS, questionsIn, withDenied } from "../prompt/awaited-calls.ts";
import type { RunCall } from "../run/caller.ts";
import type { RunRecord } from "../run/journal.ts";
import type { MemorySettings } from "../run/options.ts";
import type { Finish, PartSink, StoredIds } from "../run/parts.ts";
import { type Conversation, MESSAGES_OF_TURN, type RecalledContext, recall, type Summarizer } from "./recall.ts";
import { conversationDeleted } from "./turn-claims.ts";
import { type CompletedMessage, parseTurnInput, type TurnInput } from "./turn-input.ts";
import { TurnMessage } from "./turn-message.ts";
import type { TurnQueue, TurnTicket } from "./turn-queue.ts";

/** When a turn is stored while it goes on: one write at a time, and one more for what came during it. */
class Checkpoints {
  readonly #write: () => Promise<void>;
  readonly #failed: (error: unknown) => void;
  #timer: NodeJS.Timeout | null = null;
  #writing: Promise<void> | null = null;
  #again = false;
  #ended = false;

  /** @param failed is told of a failed write; a later one makes up for it */
  constructor(write: () => Promise<void>, failed: (error: unknown) => void) {
    this.#write = write;
    this.#failed = failed;
  }

  get ended(): boolean {
    return this.#ended;
  }

  /** The write that is under way; null when there is none. */
  get writing(): Promise<void> | null {
    return this.#writing;
  }

  /** Writes after so many milliseconds at the latest. */
  within(delay: number): void {
    if (delay === 0) this.now();
    else this.#timer ??= setTimeout(() => this.now(), delay);
  }

  now(): void {
    this.#stopTimer();
    if (this.#ended) return;
    if (this.#writing !== null) {
      this.#again = true;
      return;
    }
    this.#writing = this.#write()
      .catch(this.#failed)
      .then(() => {
        this.#writing = null;
        if (!this.#again) return;
        this.#again = false;
        this.now();
      });
  }

  /** No more of them. Resolves when the last one is written. */
  async end(): Promise<void> {
    this.#ended = true;
    this.#stopTimer();
    await this.#writing;
  }

  #stopTimer(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
  }
}

interface TurnOptions {
  readonly memory: Memory;
  readonly access: MemoryAccess;
  readonly conversation: Conversation;
  /** The agent, to which a conversation that begins here belongs. */
  readonly resourceId: string;
  readonly settings: MemorySettings;
  readonly input: unknown;
  /** Id of the assistant's message. */
  readonly messageId: string;
  /** Whether the client is sent that id: then the message must be stored under it. */
  readonly clientKnowsMessageId: boolean;
  /** Of a run that goes on after a crash, so that what it has stored until then is stored a second time; null for others. */
  readonly record: RunRecord | null;
  readonly call: RunCall;
  readonly queue: TurnQueue;
  /** Null for a turn that only reads. */
  readonly ticket: TurnTicket | null;
}

export class Turn {
  /** The span of the run, once it has begun; null when it is not traced. */
  span: Span | null = null;
  readonly #options: TurnOptions;
  readonly #input: TurnInput;
  readonly #startedAt: number;
  /** What the turn takes the place of; it is removed when the turn is stored. */
  #discarded: Discarded | null = null;
  /** The assistant's message that the run continues. */
  #continued: TurnInput["continued"];
  /** Whether it completes a stored answer, and its results are refused once they are stored. */
  #completesCalls = false;
  /**
   * What is stored before the messages of the turn, once: what the client has put into the last answer, or has in the place of what is
   * discarded (answers that it keeps under ids of its own, or that failed), or all that a conversation begins with. Null before that is known.
   */
  #branch: readonly NewMessage[] | null = null;
  #recalled: RecalledContext["ids"] = new Map();
  /** Calls of the last message that wait for approval. */
  asked = NO_CALLS;
  /** The ids under which its messages are stored. */
  ids: StoredIds = {};
  /** Id of the oldest message that the model was told of this conversation. */
  #firstTold: string | undefined;
  #message: TurnMessage | null = null;
  /** The user's message until it is stored. */
  #user: NewMessage | null;
  /** When the assistant's message was first stored, by the memory's clock. */
  #answeredAt: number | undefined;
  /** Whether this turn chooses the ids of its messages, so that it can store them again. */
  #choosesIds: boolean;
  readonly #checkpoints = new Checkpoints(
    () => this.#write(null),
    (error) => this.#logFailure(error),
  );

  constructor(options: TurnOptions) {
    this.#options = options;
    this.#startedAt = options.memory.now();
    this.#input = parseTurnInput(options.input);
    this.#user = this.#input.user;
    const { summary } = options.memory.settings;
    this.#continued = this.#input.continued;
    const { clientKnowsMessageId } = options;
    this.#choosesIds = clientKnowsMessageId || this.#isRepeated || this.#continued !== null || summary !== undefined;
  }

  /** Whether the run may write to the conversation. */
  get writable(): boolean {
    return !this.#options.settings.readOnly;
  }

  /** Waits for other turns of the conversation; undefined where there are none. Throws like `TurnQueue.enter`. */
  begin(): Promise<void> | undefined {
    const { queue, ticket } = this.#options;
    return ticket === null ? undefined : queue.enter(ticket);
  }

  /** Lets the next turn of the conversation begin. Never throws; a second call does nothing more. */
  leave(): Promise<void> | undefined {
    const { queue, ticket } = this.#options;
    return ticket === null ? undefined : queue.leave(ticket);
  }

  /**
   * @throws ServiceError `not_found` when the conversation is another user's, `too_large` when its user has no room for more, `unavailable`
   *   when the store fails
   */
  async recall(): Promise<RecalledContext> {
    const span = this.#span(MEMORY_SPANS.recall);
    const request = { ...this.#options, input: this.#input, own: this.#own };
    const recalled = await spanned(span, recall({ ...request, lasting: (read) => this.#lasting(read) }, span));
    const stored = this.#options.record?.storedIn(this.#options.memory.name);
    if (stored != null) await this.#heedDeleted(stored, recalled.isNew);
    this.#discarded = recalled.discarded;
    if (recalled.continued !== null) {
      this.#continued = recalled.continued;
      this.#choosesIds = true;
    }
    this.#completesCalls = recalled.continued !== null || this.#input.results.alone.size > 0;
    if (recalled.isNew) this.#beginAnew();
    else if (recalled.discarded !== null) this.#branch = this.#input.since(recalled.last!);
    else this.#branch = recalled.answered === null ? [] : [newMessage(recalled.answered)];
    this.#recalled = recalled.ids;
    this.asked = recalled.asked;
    const { access, conversation } = this.#options;
    const room =
      this.writable && !this.#isRepeated
        ? access.requireRoom(conversation.userId, () => jsonBytes([this.#branch, this.#user]))
        : undefined;
    if (room !== undefined) await room;
    return recalled;
  }

  /** What was deleted while the run waited is not stored again. */
  async #heedDeleted(stored: StoredIds, isGone: boolean): Promise<void> {
    if (isGone) throw conversationDeleted();
    const { access, conversation, ticket } = this.#options;
    for (const id of Object.values(stored)) {
      const read = () => access.earlier(conversation.id, { limit: 0, posted: [id] }, conversation.userId);
      if ((await this.#lasting(read)).last === undefined) ticket?.drop([id]);
    }
  }

  /** Calls of the answer before this turn will not run: what is stored says so with the turn. @param endings why, by question */
  async deny(endings: ReadonlyMap<string, string>): Promise<void> {
    const { access, conversation } = this.#options;
    const posted = this.#branch ?? [];
    const asks = (message: Pick<NewMessage, "parts">) =>
      questionsIn(message).some(({ approvalId }) => endings.has(approvalId));
    // The client may have posted it again.
    const limit = posted.some(asks) ? 0 : MESSAGES_OF_TURN + 1;
    const { messages } = await access.earlier(conversation.id, { limit }, conversation.userId);
    const asking = messages.filter(asks).map((message) => newMessage(message as CompletedMessage));
    this.#branch = [...asking, ...posted].map((message) => {
      const { parts } = message;
      return parts === undefined ? message : { ...message, parts: withDenied(parts, endings) };
    });
  }

  /** A greeting, or a history from elsewhere: stored with the conversation. */
  #beginAnew(): void {
    const saidAt = this.#startedAt;
    this.#branch = this.#input.history().map((message) => ({ ...message, saidAt }));
  }

  /** Whether the run began before a crash. */
  get #isRepeated(): boolean {
    return this.#options.record?.journal.isRepeated === true;
  }

  /** Messages that an earlier try of the run may have stored. */
  get #own(): ReadonlySet<string> | null {
    const { messageId } = this.#options;
    return this.#isRepeated ? new Set([messageId, `${messageId}_user`]) : null;
  }

  /** Takes note of the prompt of the first call, from which messages may have been left out. */
  told(prompt: readonly LanguageModelV3Message[]): void {
    if (this.#recalled.size === 0) return;
    const first = prompt.find((message) => this.#recalled.has(message));
    if (first !== undefined) this.#firstTold = this.#recalled.get(first);
    this.#recalled = new Map();
  }

  /** After the turn is stored: sums up what the model was not told, if it is time. Never rejects. */
  async summarize(summarizer: Summarizer): Promise<void> {
    const { access, conversation, messageId, call } = this.#options;
    const own = this.#input.user?.id ?? (this.#input.user === null ? this.#continued?.id : `${messageId}_user`);
    const before = this.#firstTold ?? own;
    if (this.writable && before !== undefined) await summarizer.catchUp(access, conversation, before, call);
  }

  /** Wraps the sink of the run, so that its parts are stored as well. */
  record(sink: PartSink): PartSink {
    if (!this.writable) return sink;
    const { mode, debounceMs, flushOnToolResult } = this.#options.settings.conversationPersistence;
    this.#message = new TurnMessage(sink, this.#continued?.parts ?? [], (reason) => {
      if (mode !== "step" || this.#isStoredAtOnce) return;
      if (reason === "step") this.#checkpoints.within(debounceMs);
      else if (flushOnToolResult) this.#checkpoints.now();
    });
    return this.#message;
  }

  /** Updates the working memory. A new conversation is stored first. */
  async updateWorkingMemory(
    content: string | Record<string, unknown>,
    mode: "replace" | "append",
    parent: Span | null = null,
  ): Promise<void> {
    const { memory, access, conversation } = this.#options;
    await this.#checkpoints.writing;
    if (this.#branch === null && (await access.earlier(conversation.id, { limit: 0 }, conversation.userId)).isNew)
      this.#beginAnew();
    await this.#write(null);
    const { scope } = memory.settings.workingMemory!;
    const update = access.updateWorkingMemory(conversation.id, content, mode, { scope, userId: conversation.userId });
    await spanned(this.#span(MEMORY_SPANS.workingMemory, parent), update);
  }

  /**
   * Stores the whole turn.
   *
   * @param last how the run ended
   * @param joined the end of a kept run: it happens with the turn, unless there is nothing to store
   * @throws ServiceError `unavailable` when that fails: the run must not report success then; what `joined` throws
   */
  async finish(last: Finish, joined?: JoinedChanges): Promise<void> {
    if (!this.writable || this.#checkpoints.ended) return;
    await this.#checkpoints.end();
    const { queue, ticket, settings } = this.#options;
    const metadata = metadataOfRun(last, settings.messageMetadataPersistence);
    let isDoubtful = false;
    await this.#lasting(async () => {
      try {
        await this.#write("completed", { metadata, joined });
      } catch (error) {
        // The commit before, whose answer was lost, has ended the turn.
        const isLost = ticket !== null && error === ticket.withdrawn && isStoreUnavailable(error);
        if (isDoubtful && isLost && joined === undefined && !(await queue.isTaken(ticket))) return;
        isDoubtful = true;
        throw error;
      }
    });
    // Before the client has read the last part: the next turn does not wait for that.
    const left = this.leave();
    if (left !== undefined) await left;
  }

  /**
   * Stores what was said before the run failed or was stopped, if anything was: a message without an answer is not kept, and an
   * answer that fails does not take the place of another. Results of calls can be posted again: the calls stay open. Never rejects: the
   * client is told of the failure of the run.
   */
  async abandon(status: "error" | "cancelled"): Promise<void> {
    if (!this.writable || this.#checkpoints.ended) return;
    await this.#checkpoints.end();
    if (this.#completesCalls || (status === "error" && this.#discarded !== null)) return;
    if ((this.#message?.parts("failed") ?? null) === null) return;
    try {
      await this.#write("failed", { metadata: { status } });
    } catch (error) {
      this.#logFailure(error);
    }
  }

  /** A run that outlives its process waits while the store is away: nobody would ask for it again. */
  async #lasting<T>(work: () => Promise<T>): Promise<T> {
    const { record, call, ticket } = this.#options;
    if (record?.isKept !== true) return work();
    return work().catch((failure) => {
      const isOver = () => call.signal.aborted || ticket?.withdrawn != null;
      return whileAway(failure, work, { report: (error) => record.away(error), isOver });
    });
  }

  /** A turn that takes the place of messages, or completes one, does so all at once, when it has an answer. */
  get #isStoredAtOnce(): boolean {
    return this.#discarded !== null || this.#completesCalls;
  }

  /** Stores what was said so far: the run waits, and goes on as a turn with the same messages. Never rejects. */
  async pause(): Promise<void> {
    if (!this.writable || this.#checkpoints.ended) return;
    await this.#checkpoints.end();
    const {
      record,
      memory: { name },
    } = this.#options;
    const stored = () => record?.journal.note(["stored", { ...record.storedIn(name), ...this.ids }, name]);
    await this.#write(null).then(stored, (error) => this.#logFailure(error));
  }

  /** @param ended whether the run is over, and how */
  async #write(
    ended: "completed" | "failed" | null,
    { metadata, joined }: { metadata?: Record<string, unknown> | undefined; joined?: JoinedChanges | undefined } = {},
  ): Promise<void> {
    const { memory, access, conversation, resourceId, messageId, queue, ticket, record } = this.#options;
    if (ended === null || (record?.isKept === true && joined === undefined)) this.#choosesIds = true;
    const begun = { id: conversation.id, userId: conversation.userId, resourceId, title: this.#input.title };
    const append = (said: readonly NewMessage[], place?: TurnPlace) => {
      const save = () => {
        const dropped = ticket?.dropped;
        const messages = dropped == null ? said : said.filter(({ id }) => id === undefined || !dropped.has(id));
        const guard = ticket === null ? undefined : queue.guard(ticket, ended !== null);
        // What fails for good goes first.
        const all = [joined, guard].filter((each) => each !== undefined);
        return access.append(begun, messages, place, all.length === 0 ? undefined : all);
      };
      if (ticket === null) return save();
      const again = async (error: unknown): Promise<void> => {
        if (!(await queue.renew(ticket))) throw error;
        return save().catch(again);
      };
      return ticket.write(() => (ticket.claim === null ? save() : save().catch(again)));
    };
    if (ended === null && this.#isStoredAtOnce) return append([]);
    const branch = this.#branch;
    const messages = (branch ?? []).map((message, index) =>
      this.#choosesIds ? { ...message, id: message.id ?? `${messageId}_${index}` } : message,
    );
    const user = this.#user;
    if (user !== null) messages.push(this.#withIdAndTime(user, "userMessageId", this.#startedAt, `${messageId}_user`));
    const parts = this.#message?.parts(ended) ?? null;
    const answerId = this.#continued?.id ?? messageId;
    if (parts !== null) {
      this.#answeredAt ??= memory.now();
      const answer: NewMessage = { role: "assistant", parts };
      if (metadata !== undefined) answer.metadata = metadata;
      messages.push(this.#withIdAndTime(answer, "messageId", this.#answeredAt, answerId));
    }
    const place = ended !== null || user !== null ? this.#place(answerId, ended === "failed") : undefined;
    await spanned(this.#span(MEMORY_SPANS.save), append(messages, place));
    if (this.#user === user) this.#user = null;
    if (this.#branch === branch) this.#branch = [];
  }

  /** Undefined for a turn that comes after all that is stored, under ids that nobody else has. */
  #place(answer: string, yields: boolean): TurnPlace | undefined {
    const { user } = this.#input;
    const answers = this.#continued === null ? user?.id : undefined;
    const discarded = this.#discarded;
    return answers === undefined && discarded === null ? undefined : { answers, answer, discarded, yields };
  }

  /** A message that is stored only once gets its id from the store: such ids take less space. */
  #withIdAndTime(message: NewMessage, key: keyof StoredIds, saidAt: number, id: string): NewMessage {
    const named = (given: string) => {
      this.ids[key] = given;
    };
    const stored: NewMessage = { ...message, saidAt, named };
    if (this.#choosesIds) stored.id ??= id;
    return stored;
  }

  #span(name: string, parent = this.span): Span | null {
    if (parent === null) return null;
    const { memory, conversation } = this.#options;
    const span = parent.child(name, 0);
    span.set(memoryAttributes(memory.name, conversation.id));
    return span;
  }

  #logFailure(error: unknown): void {
    const { call, conversation, ticket } = this.#options;
    if (error === ticket?.withdrawn) return;
    call.logger.warn(
      { err: error, conversationId: conversation.id },
      `a turn could not be stored: ${messageOf(error)}`,
    );
  }
}

/** What a stored answer says of its run, where that is wanted. */
function metadataOfRun(
  { totalUsage: usage, finishReason }: Finish,
  wanted: MemorySettings["messageMetadataPersistence"],
): Record<string, unknown> | undefined {
  if (wanted === undefined || wanted === false) return undefined;
  const { usage: withUsage, finishReason: withReason } = wanted === true ? { usage: true, finishReason: true } : wanted;
  return { ...(withUsage && { usage }), ...(withReason && { finishReason }) };
}

const newMessage = ({ id, role, parts, metadata }: CompletedMessage): NewMessage => ({
  id,
  role,
  parts,
  ...(metadata !== undefined && { metadata }),
});
