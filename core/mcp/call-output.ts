/** Turns the result of a foreign tool into the value that agents, workflows and the API work with. */
import type { CallToolResult } from "@modelcontextprotocol/client";

/**
 * The structured object where there is one, else the text. Pictures, sound and links stay in the format of the protocol.
 *
 * @throws Error with the message of the tool when it failed
 */
export function callOutput({ content, structuredContent, isError }: CallToolResult): unknown {
  const texts = content.flatMap((piece) => (piece.type === "text" ? [piece.text] : []));
  if (isError === true) throw new Error(texts.join("\n") || "the tool failed");
  if (structuredContent !== undefined) return structuredContent;
  return texts.length === content.length ? texts.join("\n") : { content };
}
