/** `POST /v1/responses/compact`: the agent's model summarizes a conversation, which continues after the summary. */
import { randomUUID } from "node:crypto";
import type { CompactResponseRequest } from "../../generated/types.ts";
import type { Agent } from "../agents/agent.ts";
import { TooLongToSumUp } from "../agents/conversation/write-summary.ts";
import type { RunCall } from "../agents/run/caller.ts";
import { systemTime } from "../lib/clock.ts";
import { invalid } from "../lib/errors.ts";
import { isObject } from "../lib/is-object.ts";
import { OpenaiError } from "./errors.ts";
import { sealed } from "./item-parts.ts";
import { type CompactionItem, itemId } from "./items.ts";
import type { InputMessage, InputPart } from "./places.ts";
import { responseUsage } from "./resource.ts";
import { conversationOf, readEarlier, resolveReferences } from "./response-context.ts";
import { readInput } from "./response-input.ts";
import type { Responses } from "./responses.ts";
import { isNothing } from "./tools.ts";

/** Most characters of the text to summarize, because a model reads all of it. */
const MAX_CHARACTERS = 2 * 1024 * 1024;

export async function compactConversation(
  agent: Agent,
  { input: given, previous_response_id: previous, instructions }: CompactResponseRequest,
  call: RunCall,
  responses: Responses,
) {
  const principal = responses.principalOf(call);
  const id = `resp_${randomUUID().replaceAll("-", "")}`;
  if (isNothing(given) && isNothing(previous)) throw invalid("input is required without previous_response_id");
  const read = isNothing(given) ? [] : readInput(given, id);
  const input = await resolveReferences(responses.rows, read, principal, call.charge);
  const earlier = await readEarlier(responses, previous, principal, call.charge);
  const lines = conversationOf(instructions, earlier, input).flatMap(messageLine);
  if (lines.length === 0) throw invalid("input must have a text to sum up");
  if (lines.reduce((sum, line) => sum + line.length, 0) > MAX_CHARACTERS)
    throw tooLong(`more than ${MAX_CHARACTERS} characters of text, which cannot be summed up`);
  const { summary, usage } = await agent.summarize(lines, call).catch((error: unknown) => {
    throw error instanceof TooLongToSumUp ? tooLong(error.message) : error;
  });
  const item: CompactionItem = {
    type: "compaction",
    id: itemId("compaction", id, "0"),
    status: "completed",
    encrypted_content: sealed({ summary }),
  };
  const createdAt = Math.floor(systemTime() / 1000);
  return { id, object: "response.compaction", created_at: createdAt, output: [item], usage: responseUsage(usage) };
}

const tooLong = (how: string) =>
  new OpenaiError("invalid_input", `input is ${how}`, "context_length_exceeded", "input");

function messageLine({ role, content }: InputMessage): string[] {
  const texts = typeof content === "string" ? [content] : content.flatMap(partText);
  return texts.length === 0 ? [] : [`${role}: ${texts.join("\n")}`];
}

/** A part as text. Parts that are not text are named; reasoning is left out, because its result is in the answer. */
function partText({ type, text, mediaType, toolName, input, output }: InputPart): string[] {
  switch (type) {
    case "text":
      return (text as string).trim() === "" ? [] : [text as string];
    case "image":
      return ["(an image)"];
    case "file":
      return [`(a file: ${String(mediaType ?? "of some type")})`];
    case "tool-call":
      return [`(calls ${String(toolName)}: ${JSON.stringify(input)})`];
    case "tool-result":
      return [`(result of ${String(toolName)}: ${resultText(output)})`];
    default:
      return [];
  }
}

/** A result as text, without the bytes of images and files. */
function resultText(output: unknown): string {
  const { type, value } = isObject(output) ? output : {};
  if (type !== "content" || !Array.isArray(value))
    return typeof value === "string" ? value : JSON.stringify(value ?? null);
  return value.map((part) => (part.type === "text" ? part.text : `(${String(part.type).split("-")[0]})`)).join("\n");
}
