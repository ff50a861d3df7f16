/** What a run is told of its conversation: earlier messages, similar ones, and the working memory. */
import type { LanguageModelV3Message } from "@ai-sdk/provider";
import type { Message } from "../../../generated/types.ts";
import { messageOf, ServiceError } from "../../lib/errors.ts";
import type { Memory, MemoryAccess, SimilarQuery } from "../../memory/memory.ts";
import { searchesAllConversations } from "../../memory/semantic/find.ts";
import { MEMORY_SPANS } from "../../observability/attributes.ts";
import type { Span } from "../../observability/span.ts";
import { spanned } from "../../observability/spans.ts";
import type { RunCall } from "../agent.ts";
import { pushMessage } from "../prompt/input.ts";
import { repairPrompt } from "../prompt/repair.ts";
import type { MemorySettings } from "../run/options.ts";
import type { TurnInput } from "./turn-input.ts";

export interface Recalled {
  /** What stands between the instructions and the input. */
  readonly messages: LanguageModelV3Message[];
  /** The working memory's text, null when nothing is stored yet; undefined when the memory has none. */
  readonly note: string | null | undefined;
  /** Ids of messages that this request says anew. */
  readonly replaced: readonly string[];
}

export interface Conversation {
  readonly id: string;
  readonly userId: string;
}

/**
 * @throws ServiceError `not_found` when the conversation belongs to somebody else, `unavailable` when the store fails.
 */
export async function recall(
  memory: Memory,
  access: MemoryAccess,
  conversation: Conversation,
  settings: MemorySettings,
  input: TurnInput,
  call: RunCall,
  span: Span | null = null,
): Promise<Recalled> {
  const { id, userId } = conversation;
  const { contextLimit } = settings;
  const [recent, note] = await Promise.all([
    access.recent(id, contextLimit, userId),
    noteOf(memory, access, conversation),
  ]);
  const told = new Set([...recent.map((message) => message.id), ...input.known]);
  const whole = recent.length < contextLimit;
  const similar = await similarMessages(
    memory,
    access,
    conversation,
    settings,
    { text: input.text, told, whole },
    call,
    span,
  );
  const from = input.last === undefined ? -1 : recent.findIndex((message) => message.id === input.last);
  const later = from === -1 ? [] : recent.slice(from + 1).filter((message) => !input.known.has(message.id));
  const earlier = (from === -1 ? recent : recent.slice(0, from)).filter((message) => !input.known.has(message.id));
  const merged = MERGES[settings.semanticMemory.mergeStrategy](earlier, similar);
  return { messages: promptOfMessages(merged, call), note, replaced: later.map((message) => message.id) };
}

type Merge = (recent: Message[], similar: Message[]) => Message[];

const MERGES: Readonly<Record<MemorySettings["semanticMemory"]["mergeStrategy"], Merge>> = {
  prepend: (recent, similar) => [...similar, ...recent],
  append: (recent, similar) => [...recent, ...similar],
  interleave(recent, similar) {
    const merged: Message[] = [];
    for (let index = 0; index < Math.max(recent.length, similar.length); index++) {
      if (index < similar.length) merged.push(similar[index]!);
      if (index < recent.length) merged.push(recent[index]!);
    }
    return merged;
  },
};

/** In the order in which they were said. */
async function similarMessages(
  memory: Memory,
  access: MemoryAccess,
  conversation: Conversation,
  { semanticMemory }: MemorySettings,
  asked: Pick<SimilarQuery, "text" | "told" | "whole">,
  call: RunCall,
  span: Span | null,
): Promise<Message[]> {
  const { enabled, semanticLimit: limit, semanticThreshold: threshold } = semanticMemory;
  const { semantic } = memory.settings;
  if (enabled === false || semantic === undefined || limit === 0 || asked.text.trim() === "") return [];
  const { scope } = semantic;
  // A conversation that the window holds whole has nothing else to find.
  if (asked.whole && !searchesAllConversations(scope, conversation.userId)) return [];
  try {
    const found = access.similar(conversation, { ...asked, limit, threshold, scope });
    return await spanned(span === null ? null : span.child(MEMORY_SPANS.search, 0), found);
  } catch (error) {
    const { kind } = error instanceof ServiceError ? error : { kind: "internal" };
    if (kind === "not_found" || kind === "unavailable") throw error;
    // What the model that embeds cannot do must not silence the one that answers.
    const { id: conversationId } = conversation;
    call.logger.warn({ err: error, conversationId }, `similar messages were not found: ${messageOf(error)}`);
    return [];
  }
}

async function noteOf(
  memory: Memory,
  access: MemoryAccess,
  conversation: Conversation,
): Promise<string | null | undefined> {
  if (memory.settings.workingMemory === undefined) return undefined;
  return (await access.workingMemoryIfAny(conversation))?.content ?? null;
}

/** A stored message that is none for a model is passed over: one of them must not close the conversation for good. */
function promptOfMessages(messages: readonly Message[], call: RunCall): LanguageModelV3Message[] {
  const prompt: LanguageModelV3Message[] = [];
  for (const message of messages) {
    const said: LanguageModelV3Message[] = [];
    try {
      pushMessage(said, message, `message ${message.id}`);
    } catch (error) {
      call.logger.warn({ messageId: message.id }, `a stored message is not shown to the model: ${messageOf(error)}`);
      continue;
    }
    prompt.push(...said);
  }
  return repairPrompt(prompt);
}
