/** Turns the result of a foreign tool into the value that agents, workflows and the API work with. */
import type { CallToolResult } from "@modelcontextprotocol/client";
import { fromMcp } from "../agents/prompt/results.ts";
import { isObject } from "../lib/is-object.ts";

/**
 * The content where there is more than text, with the structured object, else the structured object where there is one, else the text.
 *
 * @throws Error with the message of the tool when it failed
 */
export function callOutput({ content, structuredContent, isError }: CallToolResult): unknown {
  const texts = content.flatMap((piece) => (piece.type === "text" ? [piece.text] : []));
  if (isError === true) throw new Error(texts.join("\n") || "the tool failed");
  if (texts.length < content.length)
    return { type: "content", value: content.map(fromMcp), ...(isObject(structuredContent) && { structuredContent }) };
  return structuredContent ?? texts.join("\n");
}
