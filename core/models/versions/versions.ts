/** The versions of the AI SDK's provider interface that the core supports. It uses v3 itself. */
import type {
  EmbeddingModelV2,
  EmbeddingModelV3,
  EmbeddingModelV3Result,
  LanguageModelV2,
  LanguageModelV2CallOptions,
  LanguageModelV2CallWarning,
  LanguageModelV2Message,
  LanguageModelV2StreamPart,
  LanguageModelV2ToolResultOutput,
  LanguageModelV3,
  LanguageModelV3CallOptions,
  LanguageModelV3File,
  LanguageModelV3FilePart,
  LanguageModelV3Message,
  LanguageModelV3StreamPart,
  LanguageModelV3ToolResultOutput,
  SharedV3ProviderMetadata,
  SharedV3Warning,
} from "@ai-sdk/provider";
import type { StreamingModel } from "../part-source.ts";

// Converts models of the AI SDK's provider interface v2 (packages for AI SDK 5) for the core.

const languageModelV2 = (model: LanguageModelV2): StreamingModel => ({
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

// Converts models of the AI SDK's provider interface v4 (packages for AI SDK 7) for the core.

/** The parts of v4 that differ from v3. The packages with its types need Node 22. */
type FileData =
  | { type: "data"; data: string | Uint8Array }
  | { type: "url"; url: URL }
  | { type: "reference"; reference: Record<string, string> };

type V4Warning = SharedV3Warning | { type: "deprecated"; setting: string; message: string };

type V4Part =
  | Exclude<LanguageModelV3StreamPart, { type: "file" | "finish" | "stream-start" }>
  | { type: "stream-start"; warnings: V4Warning[] }
  | {
      type: "file";
      mediaType: string;
      data: Extract<FileData, { type: "data" | "url" }>;
      providerMetadata?: SharedV3ProviderMetadata;
    }
  | (Omit<Extract<LanguageModelV3StreamPart, { type: "finish" }>, "finishReason"> & {
      finishReason: { unified: string; raw: string | undefined };
    })
  | { type: "ping" | "custom" | "reasoning-file" };

interface LanguageModelV4 {
  readonly provider: string;
  readonly supportedUrls: StreamingModel["supportedUrls"];
  doStream(options: object): PromiseLike<{ stream: ReadableStream<V4Part> }>;
}

const languageModelV4 = (model: LanguageModelV4): StreamingModel => ({
  get supportedUrls() {
    return model.supportedUrls;
  },
  async doStream(options) {
    const { stream } = await model.doStream(toV4Options(options, model.provider));
    return { stream, convert: fromV4Part as (part: never) => LanguageModelV3StreamPart | null };
  },
});

const toV4Options = ({ prompt, ...rest }: LanguageModelV3CallOptions, provider: string): object => ({
  ...rest,
  prompt: prompt.map((message) => toV4Message(message, provider)),
});

type Part = { type: string; output?: LanguageModelV3ToolResultOutput };

function toV4Message(message: LanguageModelV3Message, provider: string): object {
  if (typeof message.content === "string") return message;
  const content = (message.content as Part[]).map((part) => {
    if (part.type === "file") return { ...part, data: fileData((part as LanguageModelV3FilePart).data) };
    return part.output?.type === "content" ? { ...part, output: toV4Output(part.output, provider) } : part;
  });
  return { ...message, content };
}

function fileData(data: LanguageModelV3FilePart["data"]): FileData {
  if (data instanceof URL) return { type: "url", url: data };
  return typeof data === "string" && /^https?:\/\//i.test(data)
    ? { type: "url", url: new URL(data) }
    : { type: "data", data };
}

type ContentOutput = Extract<LanguageModelV3ToolResultOutput, { type: "content" }>;

const toV4Output = ({ value, ...rest }: ContentOutput, provider: string): object => ({
  ...rest,
  value: value.map((item) => {
    if (item.type === "text" || item.type === "custom") return item;
    const { providerOptions } = item;
    const file = (data: FileData, mediaType: string) => ({ type: "file", data, mediaType, providerOptions });
    const fallbackType = item.type.startsWith("image") ? "image" : "application/octet-stream";
    if ("data" in item) return { ...item, ...file({ type: "data", data: item.data }, item.mediaType) };
    if ("url" in item) {
      const mediaType = "mediaType" in item ? item.mediaType : undefined;
      return file({ type: "url", url: new URL(item.url) }, mediaType ?? fallbackType);
    }
    const reference = typeof item.fileId === "string" ? { [provider]: item.fileId } : item.fileId;
    return file({ type: "reference", reference }, fallbackType);
  }),
});

/** @returns null for parts that v3 does not have */
function fromV4Part(part: V4Part): LanguageModelV3StreamPart | null {
  switch (part.type) {
    case "stream-start":
      return { ...part, warnings: part.warnings.map(fromV4Warning) };
    case "file":
      return fromV4File(part);
    case "finish":
      return part.finishReason.unified === "interrupted"
        ? { type: "error", error: new Error("the provider's answer broke off") }
        : (part as LanguageModelV3StreamPart);
    case "ping":
    case "custom":
    case "reasoning-file":
      return null;
    default:
      return part;
  }
}

/** A file for which the provider gives only an address becomes a source, because files of v3 are data. */
function fromV4File({ data, ...rest }: Extract<V4Part, { type: "file" }>): LanguageModelV3StreamPart {
  if (data.type === "data") return { ...rest, data: data.data } satisfies LanguageModelV3File;
  const url = String(data.url);
  return { type: "source", sourceType: "url", id: url, url };
}

const fromV4Warning = (warning: V4Warning): SharedV3Warning =>
  warning.type === "deprecated"
    ? { type: "other", message: `${warning.setting} is deprecated: ${warning.message}` }
    : warning;

/** A model from a package or a plugin, which may have been made for any version. */
export type AnyLanguageModel = LanguageModelV2 | LanguageModelV3 | (LanguageModelV4 & { specificationVersion: "v4" });

export const VERSIONS: readonly unknown[] = ["v2", "v3", "v4"];

/** @throws Error for any other version, which is found at boot unless a request computes the model */
export function toStreamingModel(model: AnyLanguageModel): StreamingModel {
  switch (model.specificationVersion) {
    case "v2":
      return languageModelV2(model);
    case "v3":
      return model as StreamingModel;
    case "v4":
      return languageModelV4(model);
    default:
      throw new Error("its version of the AI SDK's model interface is not known");
  }
}

/** Embedding models of v4 differ from v3 only in the version number; those of v2 have no warnings. */
export function toEmbeddingModel(model: EmbeddingModelV2<string> | EmbeddingModelV3): EmbeddingModelV3 {
  if (model.specificationVersion !== "v2") return model;
  return {
    specificationVersion: "v3",
    provider: model.provider,
    modelId: model.modelId,
    maxEmbeddingsPerCall: model.maxEmbeddingsPerCall,
    supportsParallelCalls: model.supportsParallelCalls,
    doEmbed: async (options) => {
      const answer = await model.doEmbed(options as Parameters<typeof model.doEmbed>[0]);
      return { ...(answer as Omit<EmbeddingModelV3Result, "warnings">), warnings: [] };
    },
  };
}
