/** Collects the parts of an answer into the result of `doGenerate`. */
import type {
  LanguageModelV3Content,
  LanguageModelV3GenerateResult,
  LanguageModelV3StreamPart,
  PartSource,
} from "../../plugin/plugin.ts";

type Finish = Extract<LanguageModelV3StreamPart, { type: "finish" }>;
type End = Extract<LanguageModelV3StreamPart, { type: "text-end" | "reasoning-end" }>;
type Start = Extract<LanguageModelV3StreamPart, { type: "stream-start" }>;

export async function collectAnswer(source: PartSource): Promise<LanguageModelV3GenerateResult> {
  const content: LanguageModelV3Content[] = [];
  let warnings: Start["warnings"] = [];
  let response: LanguageModelV3GenerateResult["response"] = {};
  let finish: Finish | null = null;
  for (let batch = await source.next(); batch !== null; batch = await source.next()) {
    for (const part of batch) {
      if (part.type === "stream-start") warnings = part.warnings;
      else if (part.type === "response-metadata") response = withoutType(part);
      else if (part.type === "text-start") content.push({ type: "text", text: "" });
      else if (part.type === "reasoning-start") content.push({ type: "reasoning", text: "" });
      else if (part.type === "text-delta" || part.type === "reasoning-delta") addText(content, part.delta);
      else if (part.type === "text-end" || part.type === "reasoning-end") carry(content, part);
      else if (part.type === "tool-call") content.push(part);
      else if (part.type === "finish") finish = part;
    }
  }
  if (finish === null) throw new Error("the answer was cancelled");
  const { finishReason, usage, providerMetadata } = finish;
  return { content, finishReason, usage, warnings, response, ...(providerMetadata && { providerMetadata }) };
}

/** Appends to the last item of the content, which is the only one that can be open. */
function addText(content: LanguageModelV3Content[], delta: string): void {
  const open = content.at(-1);
  if (open?.type === "text" || open?.type === "reasoning") open.text += delta;
}

function carry(content: LanguageModelV3Content[], { providerMetadata }: End): void {
  if (providerMetadata !== undefined) Object.assign(content.at(-1)!, { providerMetadata });
}

function withoutType({ type: _, ...rest }: Extract<LanguageModelV3StreamPart, { type: "response-metadata" }>) {
  return rest;
}
