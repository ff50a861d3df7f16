/** What a foreign tool gave, as the value that agents, workflows and the API work with. */
import type { CallToolResult } from "@modelcontextprotocol/client";

/**
 * The object where there is one, else the text; what is more than text (pictures, sound, links) comes as the protocol has it.
 *
 * @throws Error with what the tool said of its failure
 */
export function callOutput({ content, structuredContent, isError }: CallToolResult): unknown {
  const texts = content.flatMap((piece) => (piece.type === "text" ? [piece.text] : []));
  if (isError === true) throw new Error(texts.join("\n") || "the tool failed");
  if (structuredContent !== undefined) return structuredContent;
  return texts.length === content.length ? texts.join("\n") : { content };
}
