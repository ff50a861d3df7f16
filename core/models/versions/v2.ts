/** Converts models of the AI SDK's provider interface v2 (packages for AI SDK 5) for the core. */
import type {
  LanguageModelV2,
  LanguageModelV2CallOptions,
  LanguageModelV2CallWarning,
  LanguageModelV2Message,
  LanguageModelV2StreamPart,
  LanguageModelV2ToolResultOutput,
  LanguageModelV3CallOptions,
  LanguageModelV3Message,
  LanguageModelV3StreamPart,
  LanguageModelV3ToolResultOutput,
  SharedV3Warning,
} from "@ai-sdk/provider";
import type { StreamingModel } from "../part-source.ts";

export const languageModelV2 = (model: LanguageModelV2): StreamingModel => ({
  get supportedUrls() {
    return model.supportedUrls;
  },
  async doStream(options) {
    const { stream } = await model.doStream(toV2Options(options));
    return { stream, convert: fromV2Part as (part: never) => LanguageModelV3StreamPart };
  },
});

function toV2Options({ prompt, tools, ...rest }: LanguageModelV3CallOptions): LanguageModelV2CallOptions {
  const given = tools?.map((tool) => (tool.type === "provider" ? { ...tool, type: "provider-defined" } : tool));
  const options = { ...rest, prompt: prompt.map(toV2Message), ...(given === undefined ? {} : { tools: given }) };
  return options as LanguageModelV2CallOptions;
}

function toV2Message(message: LanguageModelV3Message): LanguageModelV2Message {
  if (message.role !== "tool" && message.role !== "assistant") return message as LanguageModelV2Message;
  const content = (message.content as { type: string; output?: LanguageModelV3ToolResultOutput }[])
    // Approvals are handled by the core: the result of the call reflects them.
    .filter(({ type }) => type !== "tool-approval-response")
    .map((part) => (part.output === undefined ? part : { ...part, output: toV2Output(part.output) }));
  return { ...message, content } as LanguageModelV2Message;
}

type V2Content = Extract<LanguageModelV2ToolResultOutput, { type: "content" }>["value"];

function toV2Output(output: LanguageModelV3ToolResultOutput): LanguageModelV2ToolResultOutput {
  if (output.type === "execution-denied") return { type: "error-text", value: output.reason ?? "the call was denied" };
  if (output.type !== "content") return output;
  const value = output.value.flatMap((item): V2Content => {
    if (item.type === "text") return [{ type: "text", text: item.text }];
    if ("data" in item) return [{ type: "media", data: item.data, mediaType: item.mediaType }];
    return "url" in item ? [{ type: "text", text: item.url }] : [];
  });
  return { type: "content", value };
}

function fromV2Part(part: LanguageModelV2StreamPart): LanguageModelV3StreamPart {
  if (part.type === "stream-start") return { ...part, warnings: part.warnings.map(fromV2Warning) };
  if (part.type !== "finish") return part as LanguageModelV3StreamPart;
  const { finishReason, usage } = part;
  return {
    ...part,
    // "unknown" is a word that the package does not know, or none at all: then it has counted nothing either.
    finishReason:
      finishReason === "unknown"
        ? { unified: "other", raw: usage.outputTokens === undefined ? undefined : finishReason }
        : { unified: finishReason, raw: finishReason },
    usage: {
      inputTokens: {
        total: usage.inputTokens,
        noCache: undefined,
        cacheRead: usage.cachedInputTokens,
        cacheWrite: undefined,
      },
      outputTokens: { total: usage.outputTokens, text: undefined, reasoning: usage.reasoningTokens },
    },
  };
}

function fromV2Warning(warning: LanguageModelV2CallWarning): SharedV3Warning {
  if (warning.type === "other") return warning;
  const feature = warning.type === "unsupported-setting" ? String(warning.setting) : `tool ${warning.tool.name}`;
  return warning.details === undefined
    ? { type: "unsupported", feature }
    : { type: "unsupported", feature, details: warning.details };
}
