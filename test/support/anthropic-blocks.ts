/** Anthropic's rules for the blocks of one message. */
import { isDeepStrictEqual } from "node:util";
import { type Json, Refusal } from "./strict-upstream.ts";

export function refuse(message: string, status = 400, type = "invalid_request_error"): never {
  throw new Refusal(status, message, { type: "error", error: { type, message }, request_id: "req_1" });
}

const MEDIA_TYPES = ["image/jpeg", "image/png", "image/gif", "image/webp"];
/** How the bytes of each type begin, as base64. */
const SIGNATURES: Record<string, string> = {
  "image/png": "iVBORw0KGgo",
  "image/jpeg": "/9j/",
  "image/gif": "R0lGOD",
  "image/webp": "UklGR",
};

/** @param ids of the calls of all messages so far */
export function checkContent(
  content: readonly Json[],
  at: string,
  signed: ReadonlyMap<string, Json>,
  ids: Set<string>,
  isAnswer: boolean,
): void {
  content.forEach((block, position) => {
    const here = `${at}.${position}`;
    switch (block.type) {
      case "text":
        if (block.text === "") refuse("messages: text content blocks must be non-empty");
        if (block.text.trim() === "") refuse("messages: text content blocks must contain non-whitespace text");
        return;
      case "image":
        if (isAnswer) refuse(`${here}: \`image\` blocks are only permitted in user messages`);
        checkImage(block.source, `${here}.image.source`);
        return;
      case "document":
        if (isAnswer) refuse(`${here}: \`document\` blocks are only permitted in user messages`);
        checkDocument(block.source, `${here}.document.source`);
        return;
      case "tool_result":
        if (Array.isArray(block.content)) checkContent(block.content, `${here}.content`, signed, ids, false);
        return;
      case "tool_use":
        if (!/^[a-zA-Z0-9_-]+$/.test(block.id))
          refuse(`${here}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'`);
        if (!/^[a-zA-Z0-9_-]{1,200}$/.test(block.name))
          refuse(`${here}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{1,200}$'`);
        if (ids.has(block.id)) refuse(`${here}: \`tool_use\` ids must be unique`);
        ids.add(block.id);
        return;
      case "thinking":
      case "redacted_thinking":
        checkThought(block, here, signed);
        if (position === content.length - 1)
          refuse(`${at}: The final block in an assistant message cannot be \`thinking\`.`);
    }
  });
}

function checkImage(source: Json, at: string): void {
  if (source.type !== "base64") return;
  const { media_type: type, data } = source;
  if (!MEDIA_TYPES.includes(type))
    refuse(`${at}.base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'`);
  if (!data.startsWith(SIGNATURES[type]))
    refuse(`${at}.base64.data: Image does not match the provided media type ${type}`);
}

function checkDocument({ type, media_type, data }: Json, at: string): void {
  if (type === "text" && media_type !== "text/plain") refuse(`${at}.text.media_type: Input should be 'text/plain'`);
  if (type !== "base64") return;
  if (media_type !== "application/pdf") refuse(`${at}.base64.media_type: Input should be 'application/pdf'`);
  if (!data.startsWith("JVBERi0")) refuse(`${at}.base64.data: The PDF specified was not valid.`);
}

function checkThought({ cache_control: _, ...block }: Json, at: string, signed: ReadonlyMap<string, Json>): void {
  const original = signed.get(block.signature ?? block.data);
  if (original === undefined)
    refuse(
      block.type === "thinking"
        ? `${at}: Invalid \`signature\` in \`thinking\` block`
        : `${at}: Invalid \`data\` in \`redacted_thinking\` block`,
    );
  if (!isDeepStrictEqual(block, original))
    refuse(
      `${at}: \`thinking\` or \`redacted_thinking\` blocks in the latest assistant message cannot be modified. These blocks must remain as they were in the original response.`,
    );
}
