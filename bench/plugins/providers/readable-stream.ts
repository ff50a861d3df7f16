/**
 * A package of the AI SDK without its HTTP: a model that answers with a ReadableStream, all parts of it available at once. `words` says 32
 * deltas; `caller` calls the tool `add` first, and then says what came of it.
 */
import { defineProvider, type LanguageModelV3CallOptions, type LanguageModelV3StreamPart } from "#plugin";
import { DELTAS, WORDS } from "../../replies.ts";

const USAGE = {
  inputTokens: { total: 12, noCache: 12, cacheRead: undefined, cacheWrite: undefined },
  outputTokens: { total: DELTAS, text: DELTAS, reasoning: undefined },
};

const finished = (reason: "stop" | "tool-calls"): LanguageModelV3StreamPart => ({
  type: "finish",
  finishReason: { unified: reason, raw: reason },
  usage: USAGE,
});

const said = (deltas: readonly string[]): LanguageModelV3StreamPart[] => [
  { type: "stream-start", warnings: [] },
  { type: "text-start", id: "0" },
  ...deltas.map((delta): LanguageModelV3StreamPart => ({ type: "text-delta", id: "0", delta })),
  { type: "text-end", id: "0" },
  finished("stop"),
];

const PARTS = said(WORDS.split(/(?<= )/));
const ANSWER = said(["The sum ", "is 5."]);
const CALL: readonly LanguageModelV3StreamPart[] = [
  { type: "stream-start", warnings: [] },
  { type: "tool-call", toolCallId: "call-1", toolName: "add", input: '{"a":2,"b":3}' },
  finished("tool-calls"),
];

function partsFor(modelId: string, { prompt }: LanguageModelV3CallOptions): readonly LanguageModelV3StreamPart[] {
  if (modelId !== "caller") return PARTS;
  return prompt.at(-1)?.role === "tool" ? ANSWER : CALL;
}

export default defineProvider({
  create: () => ({
    languageModel: (modelId) => ({
      specificationVersion: "v3",
      provider: "readable-stream",
      modelId,
      supportedUrls: {},
      doGenerate: () => Promise.reject(new Error("this model only streams")),
      doStream: async (options) => ({
        stream: new ReadableStream<LanguageModelV3StreamPart>({
          start(controller) {
            for (const part of partsFor(modelId, options)) controller.enqueue(part);
            controller.close();
          },
        }),
      }),
    }),
  }),
});
