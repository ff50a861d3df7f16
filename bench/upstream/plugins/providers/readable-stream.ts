/** An AI SDK package without its HTTP: a model that answers with a ReadableStream of 32 deltas, all available at once. */
import { defineProvider, type LanguageModelV3StreamPart } from "#plugin";
import { DELTAS, WORDS } from "../../../replies.ts";

const PARTS: readonly LanguageModelV3StreamPart[] = [
  { type: "stream-start", warnings: [] },
  { type: "text-start", id: "0" },
  ...WORDS.split(/(?<= )/).map((delta): LanguageModelV3StreamPart => ({ type: "text-delta", id: "0", delta })),
  { type: "text-end", id: "0" },
  {
    type: "finish",
    finishReason: { unified: "stop", raw: "stop" },
    usage: {
      inputTokens: { total: 12, noCache: 12, cacheRead: undefined, cacheWrite: undefined },
      outputTokens: { total: DELTAS, text: DELTAS, reasoning: undefined },
    },
  },
];

export default defineProvider({
  create: () => ({
    languageModel: (modelId) => ({
      specificationVersion: "v3",
      provider: "readable-stream",
      modelId,
      supportedUrls: {},
      doGenerate: () => Promise.reject(new Error("this model only streams")),
      doStream: async () => ({
        stream: new ReadableStream<LanguageModelV3StreamPart>({
          start(controller) {
            for (const part of PARTS) controller.enqueue(part);
            controller.close();
          },
        }),
      }),
    }),
  }),
});
