/** Collects the parts of an answer into the result of `doGenerate`. */
import type { LanguageModelV3Content, LanguageModelV3GenerateResult, PartSource } from "../../plugin/plugin.ts";

export async function collect(source: PartSource): Promise<LanguageModelV3GenerateResult> {
  const content: LanguageModelV3Content[] = [];
  let text = "";
  for (;;) {
    const batch = await source.next();
    if (batch === null) throw new Error("the answer ended early");
    for (const part of batch) {
      if (part.type === "text-delta") text += part.delta;
      else if (part.type === "tool-call") content.push(part);
      else if (part.type === "finish") {
        if (text !== "") content.unshift({ type: "text", text });
        return { content, finishReason: part.finishReason, usage: part.usage, warnings: [] };
      }
    }
  }
}
