/**
 * The provider for services with OpenAI's chat completions API: OpenAI, vLLM, Ollama, LM Studio, most gateways.
 *
 * `providerOptions` of a request are read under the provider's key in the manifest (or `name`) and `openaiCompatible`.
 */
import { defineProvider, parseDuration } from "../../plugin/plugin.ts";
import { relaxSchema } from "./strict.ts";
import type { Timeouts } from "./upstream.ts";

interface Config {
  baseURL: string;
  apiKey: string;
  headers: Record<string, string>;
  queryParams: Record<string, string>;
  timeouts: Record<keyof Timeouts, string>;
  retries: number;
  connections: number;
  includeUsage: boolean;
  structuredOutputs: boolean;
  name?: string;
}

const strings = { type: "object", additionalProperties: { type: "string" }, default: {} };
const duration = (value: string) => ({ type: "string", default: value });

function parseBaseURL(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url?.protocol === "http:" || url?.protocol === "https:") return url;
  throw new Error(`baseURL must begin with http:// or https://, like "https://api.openai.com/v1"`);
}

function parseTimeouts(timeouts: Config["timeouts"]): Timeouts {
  const limit = (name: keyof Timeouts) => {
    try {
      const milliseconds = parseDuration(timeouts[name]);
      if (milliseconds > 0) return milliseconds;
    } catch (error) {
      throw new Error(`timeouts.${name}: ${(error as Error).message}`);
    }
    throw new Error(`timeouts.${name} must be longer than 0`);
  };
  return { connect: limit("connect"), firstByte: limit("firstByte"), idle: limit("idle"), total: limit("total") };
}

export default defineProvider({
  name: "openai-compatible",
  config: {
    type: "object",
    additionalProperties: false,
    required: ["baseURL"],
    properties: {
      baseURL: { type: "string", description: "Where `/chat/completions` is below: https://api.openai.com/v1" },
      apiKey: { type: "string", default: "", description: "Without one no Authorization is sent." },
      headers: { ...strings, description: "Sent with every call." },
      queryParams: { ...strings, description: "Added to every URL." },
      timeouts: {
        type: "object",
        additionalProperties: false,
        default: {},
        properties: {
          connect: duration("5s"),
          firstByte: duration("30s"),
          idle: duration("30s"),
          total: duration("120s"),
        },
      },
      retries: { type: "integer", minimum: 0, maximum: 10, default: 2, description: "Tries after the first." },
      connections: { type: "integer", minimum: 1, maximum: 10_000, default: 64 },
      includeUsage: { type: "boolean", default: true, description: "Ask for the usage of streams." },
      structuredOutputs: { type: "boolean", default: true, description: "Send JSON Schemas as response_format." },
      name: {
        type: "string",
        minLength: 1,
        description: "Key of its providerOptions; default: its key in the manifest.",
      },
    },
  },
  async create(config: Config, host) {
    const baseURL = parseBaseURL(config.baseURL);
    const timeouts = parseTimeouts(config.timeouts);
    // The SDK and undici are two hundred files, which only a manifest that uses this provider has to load.
    const [{ createOpenAICompatible }, { createUpstream }] = await Promise.all([
      import("@ai-sdk/openai-compatible"),
      import("./upstream.ts"),
    ]);
    const upstream = createUpstream(baseURL, { timeouts, connections: config.connections });
    host.onClose(() => upstream.close());
    const shared = {
      name: config.name ?? host.name ?? "openai-compatible",
      baseURL: config.baseURL,
      apiKey: config.apiKey.trim(),
      headers: config.headers,
      queryParams: config.queryParams,
      includeUsage: config.includeUsage,
      supportsStructuredOutputs: config.structuredOutputs,
      supportedUrls: () => ({ "image/*": [/^https?:\/\//] }),
      fetch: upstream.fetch as typeof fetch,
    };
    return {
      retries: config.retries,
      languageModel: (id) =>
        createOpenAICompatible({
          ...shared,
          // The SDK copies providerOptions of a request into the body: they must not change the model.
          transformRequestBody: (body) => relaxSchema({ ...body, model: id }),
        }).languageModel(id),
      embeddingModel: (id) => createOpenAICompatible(shared).embeddingModel(id),
    };
  },
});
