/**
 * The provider for services with OpenAI's chat completions API: OpenAI, vLLM, Ollama, LM Studio, most gateways.
 *
 * `providerOptions` of a request are read under the provider's key in the manifest (or `name`) and `openaiCompatible`.
 */
import { defineProvider } from "../../plugin/plugin.ts";
import { relaxSchema } from "./strict.ts";

interface Config {
  baseURL: string;
  apiKey: string;
  headers: Record<string, string>;
  queryParams: Record<string, string>;
  connections: number;
  includeUsage: boolean;
  structuredOutputs: boolean;
  name?: string;
}

const strings = { type: "object", additionalProperties: { type: "string" }, default: {} };

function parseBaseURL(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url?.protocol === "http:" || url?.protocol === "https:") return url;
  throw new Error(`baseURL must begin with http:// or https://, like "https://api.openai.com/v1"`);
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
    // The SDK and undici are two hundred files, which only a manifest that uses this provider has to load.
    const [{ createOpenAICompatible }, { createUpstream }] = await Promise.all([
      import("@ai-sdk/openai-compatible"),
      import("./upstream.ts"),
    ]);
    const upstream = createUpstream(baseURL, { connections: config.connections });
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
    };
    return {
      languageModel: (id, { timeouts }) =>
        createOpenAICompatible({
          ...shared,
          fetch: upstream.fetch(timeouts),
          // The SDK copies providerOptions of a request into the body: they must not change the model.
          transformRequestBody: (body) => relaxSchema({ ...body, model: id }),
        }).languageModel(id),
      embeddingModel: (id, { timeouts }) =>
        createOpenAICompatible({ ...shared, fetch: upstream.fetch(timeouts) }).embeddingModel(id),
    };
  },
});
