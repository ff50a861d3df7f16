/**
 * One turn of a conversation: what the run is told of it before it begins, and what is stored of it while it goes on
 * and when it is over. Nothing is acknowledged that is not stored: the run's last part waits for `finish`.
 */
import { messageOf } from "../../lib/errors.ts";
import type { Memory, MemoryAccess, NewMessage } from "../../memory/memory.ts";
import { MEMORY_SPANS, memoryAttributes } from "../../observability/attributes.ts";
import type { Span } from "../../observability/span.ts";
import { spanned } from "../../observability/spans.ts";
import type { RunCall } from "../agent.ts";
import type { MemorySettings } from "../run/options.ts";
import type { PartSink } from "../run/parts.ts";
import { type Conversation, type Recalled, recall } from "./recall.ts";
import { type TurnInput, turnInput } from "./turn-input.ts";
import { TurnMessage } from "./turn-message.ts";

/** What a turn is about. */
export interface TurnFacts {
  readonly memory: Memory;
  readonly access: MemoryAccess;
  readonly conversation: Conversation;
  /** What a conversation that begins here belongs to: the agent. */
  readonly resourceId: string;
  readonly settings: MemorySettings;
  readonly input: unknown;
  /** Id of the assistant's message. */
  readonly messageId: string;
  /** Whether the client is told that id: then the message must have it in the store too. */
  readonly told: boolean;
  /** Whether the answer takes the place of an earlier one. */
  readonly regenerate: boolean;
  readonly call: RunCall;
}

export class Turn {
  /** Of the run, once it has begun; null when it is not traced. */
  span: Span | null = null;
  readonly #facts: TurnFacts;
  readonly #input: TurnInput;
  readonly #began: number;
  #replaced: readonly string[] = [];
  #message: TurnMessage | null = null;
  /** The user's message until it is stored. */
  #user: NewMessage | null;
  /** Since when the assistant speaks, by the memory's clock. */
  #spokeAt: number | undefined;
  /** Whether the messages are stored under ids of ours, so that they can be stored again. */
  #named: boolean;
  #timer: NodeJS.Timeout | null = null;
  #writing: Promise<void> | null = null;
  #again = false;
  #over = false;

  constructor(facts: TurnFacts) {
    this.#facts = facts;
    this.#began = facts.memory.now();
    this.#input = turnInput(facts.input);
    this.#user = this.#input.user;
    this.#named = facts.told || this.#input.continued !== null;
  }

  /** Whether the run may write. */
  get writable(): boolean {
    return !this.#facts.settings.readOnly;
  }

  /** @throws ServiceError `not_found` when the conversation is somebody else's, `unavailable` when the store fails. */
  async recall(): Promise<Recalled> {
    const { memory, access, conversation, settings, call, regenerate } = this.#facts;
    const span = this.#span(MEMORY_SPANS.recall);
    const found = recall(memory, access, conversation, settings, this.#input, call, span);
    const recalled = await spanned(span, found);
    if (regenerate) this.#replaced = recalled.replaced;
    return recalled;
  }

  /** The sink that the run speaks to: it remembers what is said to `sink`. */
  listen(sink: PartSink): PartSink {
    if (!this.writable) return sink;
    const { mode, debounceMs, flushOnToolResult } = this.#facts.settings.conversationPersistence;
    this.#message = new TurnMessage(sink, this.#input.continued?.parts ?? [], (heard) => {
      if (mode !== "step") return;
      if (heard === "answer") {
        if (flushOnToolResult) this.#checkpoint();
      } else if (debounceMs === 0) this.#checkpoint();
      else this.#timer ??= setTimeout(() => this.#checkpoint(), debounceMs);
    });
    return this.#message;
  }

  /** Writes the working memory. The conversation is there before its note is. `above` is the span that it is part of. */
  async note(
    content: string | Record<string, unknown>,
    mode: "replace" | "append",
    above: Span | null = null,
  ): Promise<void> {
    const { memory, access, conversation } = this.#facts;
    await this.#writing;
    await this.#write(false);
    const { scope } = memory.settings.workingMemory!;
    const noted = access.updateWorkingMemory(conversation.id, content, mode, { scope, userId: conversation.userId });
    await spanned(this.#span(MEMORY_SPANS.note, above), noted);
  }

  /** Stores the whole turn. @throws ServiceError `unavailable` when that fails: the turn must not be acknowledged then. */
  async finish(): Promise<void> {
    if (!this.writable || this.#over) return;
    await this.#end();
    await this.#write(true);
    if (this.#replaced.length === 0) return;
    const { access, conversation } = this.#facts;
    await access.deleteMessages(conversation.id, this.#replaced, conversation.userId);
  }

  /** Stores what was said before the run failed or was stopped. Never rejects: the failure itself is the answer. */
  async abandon(status: "error" | "cancelled"): Promise<void> {
    if (!this.writable || this.#over) return;
    await this.#end();
    try {
      await this.#write(true, { status });
    } catch (error) {
      this.#complain(error);
    }
  }

  async #end(): Promise<void> {
    this.#over = true;
    this.#stopTimer();
    await this.#writing;
  }

  #stopTimer(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
  }

  /** One write at a time; what comes while it goes on is one more. A failure shows at the end at the latest. */
  #checkpoint(): void {
    this.#stopTimer();
    if (this.#over) return;
    if (this.#writing !== null) {
      this.#again = true;
      return;
    }
    this.#writing = this.#write(false).then(
      () => this.#written(),
      (error) => {
        this.#complain(error);
        this.#written();
      },
    );
  }

  #written(): void {
    this.#writing = null;
    if (!this.#again) return;
    this.#again = false;
    this.#checkpoint();
  }

  async #write(last: boolean, metadata?: Record<string, unknown>): Promise<void> {
    const { memory, access, conversation, resourceId, messageId } = this.#facts;
    if (!last) this.#named = true;
    const messages: NewMessage[] = [];
    const user = this.#user;
    if (user !== null) messages.push(this.#dated(user, this.#began, `${messageId}_user`));
    const parts = this.#message?.parts(last) ?? null;
    if (parts !== null) {
      this.#spokeAt ??= memory.now();
      const answer: NewMessage = { role: "assistant", parts };
      if (metadata !== undefined) answer.metadata = metadata;
      messages.push(this.#dated(answer, this.#spokeAt, this.#input.continued?.id ?? messageId));
    }
    const { title } = this.#input;
    const begun = { id: conversation.id, userId: conversation.userId, resourceId };
    const saved = access.append(title === "" ? begun : { ...begun, title }, messages);
    await spanned(this.#span(MEMORY_SPANS.save), saved);
    if (this.#user === user) this.#user = null;
  }

  /** A message that is stored once gets its id from the store, which is cheaper to keep. */
  #dated(message: NewMessage, saidAt: number, id: string): NewMessage {
    const dated: NewMessage = { ...message, saidAt };
    if (this.#named) dated.id ??= id;
    return dated;
  }

  #span(name: string, above = this.span): Span | null {
    if (above === null) return null;
    const { memory, conversation } = this.#facts;
    const span = above.child(name, 0);
    span.set(memoryAttributes(memory.name, conversation.id));
    return span;
  }

  #complain(error: unknown): void {
    const { call, conversation } = this.#facts;
    call.logger.warn(
      { err: error, conversationId: conversation.id },
      `a turn could not be stored: ${messageOf(error)}`,
    );
  }
}
