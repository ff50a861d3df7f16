/** Sums up what a prompt has no room for. It happens after the reply, and a failure is only logged. */
import type { Message, SummaryManifest } from "../../../generated/types.ts";
import { messageOf } from "../../lib/errors.ts";
import { isObject } from "../../lib/is-object.ts";
import { createKeyedMutex } from "../../lib/keyed-mutex.ts";
import type { MemoryAccess } from "../../memory/memory.ts";
import type { ModelChain } from "../../models/chain.ts";
import type { RunCall } from "../run/caller.ts";
import type { Conversation } from "./recall.ts";
import { askForSummary, CALL_CHARACTERS } from "./write-summary.ts";

/** Most messages that one call of the model sums up, and most characters of one of them. */
const MESSAGES_PER_CALL = 100;
const MESSAGE_CHARACTERS = 4_000;
/** Most calls after one turn: a conversation that was long before may take several turns. */
const MAX_CALLS = 3;
export interface Summarizer {
  /** Sums up the messages before the one of that id, when there are enough of them. Never rejects. */
  catchUp(access: MemoryAccess, conversation: Conversation, before: string, call: RunCall): Promise<void>;
}

/** @param chain of the model that writes the summaries */
export function createSummarizer({ after }: SummaryManifest, chain: ModelChain): Summarizer {
  const conversations = createKeyedMutex<string>();

  async function step(
    access: MemoryAccess,
    conversation: Conversation,
    before: string,
    call: RunCall,
  ): Promise<boolean> {
    const limit = Math.max(after, MESSAGES_PER_CALL);
    const left = await access.unsummarized(conversation, before, limit);
    if (left === null || (left.messages.length < after && !left.full)) return false;
    const { text, count } = transcript(left.messages);
    // The user did not ask for this call, so that no reply tells of what it costs.
    const { summary } = await askForSummary(chain, left.summary, text, call.logger);
    if (summary === "") return false;
    await access.summarize(conversation, summary, left.positions[count - 1]!);
    return count < left.messages.length || left.full;
  }

  return {
    catchUp(access, conversation, before, call) {
      const { userId, id: conversationId } = conversation;
      return conversations.run([JSON.stringify([userId, conversationId])], async () => {
        try {
          for (let calls = 0; calls < MAX_CALLS && (await step(access, conversation, before, call)); calls++);
        } catch (err) {
          call.logger.warn({ err, conversationId }, `a conversation could not be summed up: ${messageOf(err)}`);
        }
      });
    },
  };
}

/** As many of the messages as fit into one call, at least one. */
function transcript(messages: readonly Message[]): { text: string; count: number } {
  const lines: string[] = [];
  let length = 0;
  for (const message of messages) {
    const line = `${message.role}: ${messageLine(message)}`;
    length += line.length;
    if (lines.length > 0 && length > CALL_CHARACTERS) break;
    lines.push(line);
  }
  return { text: lines.join("\n"), count: lines.length };
}

function messageLine({ parts, content }: Message): string {
  if (typeof content === "string") return content.slice(0, MESSAGE_CHARACTERS);
  const list: unknown[] = Array.isArray(parts) ? parts : Array.isArray(content) ? content : [];
  return list.flatMap(partLine).join("\n").slice(0, MESSAGE_CHARACTERS);
}

/** Texts, and what tools were asked and said; files are named by their type. */
function partLine(part: unknown): string[] {
  if (!isObject(part) || typeof part.type !== "string") return [];
  const { type, text, mediaType, toolName, input, output } = part;
  if (type === "text" && typeof text === "string") return [text];
  if (type === "file") return [`(a file: ${String(mediaType)})`];
  if (type !== "dynamic-tool" && !type.startsWith("tool-")) return [];
  const name = typeof toolName === "string" ? toolName : type.slice("tool-".length);
  return [`(tool ${name}: ${excerpt(input)} -> ${excerpt(output)})`];
}

const EXCERPT_CHARACTERS = 1_000;
const excerpt = (value: unknown): string => (JSON.stringify(value) ?? "").slice(0, EXCERPT_CHARACTERS);

/** The section of the system prompt. */
export const summarySection = (summary: string): string =>
  `# Earlier in this conversation\nA summary of messages that are not shown here.\n<summary>\n${summary}\n</summary>`;
