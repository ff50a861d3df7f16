/** The types of the content of prompt messages, by role. */
import type { LanguageModelV3Message } from "@ai-sdk/provider";

type ContentOf<R extends string> = Extract<LanguageModelV3Message, { role: R }>["content"];

export type UserContent = ContentOf<"user">;
export type AssistantContent = ContentOf<"assistant">;
export type ToolContent = ContentOf<"tool">;
