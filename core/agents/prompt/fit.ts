/** Makes a prompt fit: drops the oldest turns, then the oldest steps of the current turn, and finally cuts tool results. */
import type { LanguageModelV3Message } from "@ai-sdk/provider";
import { clipResults } from "./clip.ts";
import { messageBytes } from "./size.ts";

type Message = LanguageModelV3Message;

/** Sizes to which results are cut, one after the other, until the prompt fits. */
const RESULT_BYTES = [16, 8, 4, 2, 1, 0.5].map((kib) => kib * 1024);

/** The index of the last message of the user; -1 when there is none. */
export const lastUserIndex = (prompt: readonly Message[]): number =>
  prompt.findLastIndex(({ role }) => role === "user");

/**
 * The prompt with at most `limit` bytes, or as few as possible: system messages, those of the user from `kept` on, and the last step of
 * the run always stay. A call and its result are dropped together. Returns the same list when nothing has to be dropped.
 *
 * @param kept index of the user's message of this turn
 */
export function fitPrompt(prompt: readonly Message[], limit: number, kept: number): readonly Message[] {
  const bytes = prompt.map(messageBytes);
  let total = bytes.reduce((sum, size) => sum + size, 0);
  if (total <= limit) return prompt;
  const dropped = new Set<number>();
  for (const block of droppable(prompt, kept)) {
    for (const index of block) {
      dropped.add(index);
      total -= bytes[index]!;
    }
    if (total <= limit) break;
  }
  const left = dropped.size === 0 ? prompt : prompt.filter((_, index) => !dropped.has(index));
  return total <= limit ? left : cutResults(left, total - limit);
}

/** Groups of indexes that are dropped together, in the order in which they are dropped. */
function droppable(prompt: readonly Message[], kept: number): number[][] {
  const turns: number[][] = [];
  const steps: number[][] = [];
  let previous: Message["role"] | undefined;
  for (const [index, { role }] of prompt.entries()) {
    if (role === "system" || (index >= kept && role === "user")) continue;
    const blocks = index < kept ? turns : steps;
    const begins = index < kept ? role === "user" && previous !== "user" : role === "assistant";
    if (begins || blocks.length === 0) blocks.push([]);
    blocks.at(-1)!.push(index);
    previous = role;
  }
  // The last step stays: the model must see what it did last, or it does it again.
  return [...turns, ...steps.slice(0, -1)];
}

function cutResults(prompt: readonly Message[], excess: number): readonly Message[] {
  let current = prompt;
  let left = excess;
  for (const limit of RESULT_BYTES) {
    if (left <= 0) break;
    current = current.map((message) => {
      if (message.role !== "tool") return message;
      const cut = clipResults(message, () => limit);
      if (cut !== message) left -= messageBytes(message) - messageBytes(cut);
      return cut;
    });
  }
  return left === excess ? prompt : current;
}
