/** The text for semantic search of a stored or new message, in UI form (`parts`) or model form (`content`); empty when it has none. */
export function searchableText(message: { parts?: unknown; content?: unknown }): string {
  const { parts, content } = message;
  if (typeof content === "string") return content.trim();
  const list = Array.isArray(parts) ? parts : Array.isArray(content) ? content : [];
  return list.map(partText).filter(Boolean).join("\n").trim();
}

/** The text of a part. Reasoning, tool calls and files are not searched, because nobody said them. */
function partText(part: unknown): string {
  if (typeof part !== "object" || part === null) return "";
  const { type, text } = part as { type?: unknown; text?: unknown };
  return type === "text" && typeof text === "string" ? text : "";
}
