/**
 * The provider for services with OpenAI's chat completions API: OpenAI, vLLM, Ollama, LM Studio, most gateways.
 *
 * `providerOptions` of a request are read under the provider's key in the manifest (or `name`) and `openaiCompatible`.
 */

import { RecentMap } from "../../lib/recent-map.ts";
import { defineProvider } from "../../plugin/plugin.ts";
import { validateHeaderName, validateHeaderValue } from "../../transport/node-http.ts";
import type { Learned } from "./language-model.ts";

interface Config {
  baseURL: string;
  apiKey: string;
  headers: Record<string, string>;
  queryParams: Record<string, string>;
  connections?: number;
  queue?: number;
  includeUsage: boolean;
  structuredOutputs: boolean;
  name?: string;
}

const strings = { type: "object", additionalProperties: { type: "string" }, default: {} };

const DEFAULT_QUEUE = 1000;

/** Bound of the models for which refusals are remembered: a request may compute any name. */
const MAX_LEARNED = 1000;

function parseBaseURL(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url?.protocol !== "http:" && url?.protocol !== "https:")
    throw new Error(`baseURL must begin with http:// or https://, like "https://api.openai.com/v1"`);
  const [endpoint] = /\/(?:chat\/completions|embeddings)(?=\/?$)/.exec(url.pathname) ?? [];
  if (endpoint !== undefined) throw new Error(`baseURL must end before ${endpoint}, which is added to it`);
  return url;
}

/** Checks headers at boot, because an invalid one would fail every call. The values may be secrets, and are not shown. */
function checkHeaders(headers: Record<string, string>, apiKey: string): void {
  for (const [name, value] of Object.entries(headers)) {
    if (!isTaken(() => validateHeaderName(name)))
      throw new Error(`headers: HTTP does not allow the name ${JSON.stringify(name)}`);
    if (!isTaken(() => validateHeaderValue(name, value)))
      throw new Error(`headers: HTTP does not allow the value of ${JSON.stringify(name)}`);
  }
  if (!isTaken(() => validateHeaderValue("authorization", apiKey)))
    throw new Error("apiKey has a character that HTTP does not allow in a header");
}

function isTaken(validate: () => void): boolean {
  try {
    validate();
    return true;
  } catch {
    return false;
  }
}

/** The keys of `providerOptions` in requests: the provider's name, and that in camel case. */
function optionKeysOf(name: string): string[] {
  const key = name.split(".")[0]!.trim();
  const camel = key.replace(/[_-]([a-z])/g, (_, letter: string) => letter.toUpperCase());
  return camel === key ? [key] : [key, camel];
}

export default defineProvider({
  name: "openai-compatible",
  config: {
    type: "object",
    additionalProperties: false,
    required: ["baseURL"],
    dependentRequired: { queue: ["connections"] },
    properties: {
      baseURL: { type: "string", description: "Where `/chat/completions` is below: https://api.openai.com/v1" },
      apiKey: { type: "string", default: "", description: "Without one no Authorization is sent." },
      headers: { ...strings, description: "Sent with every call." },
      queryParams: { ...strings, description: "Added to every URL." },
      connections: {
        type: "integer",
        minimum: 1,
        maximum: 100_000,
        description: "Most connections at a time; default: as many as there are calls.",
      },
      queue: {
        type: "integer",
        minimum: 0,
        maximum: 100_000,
        description: "How many calls may wait for one of `connections`; default: 1000. One more is 429.",
      },
      includeUsage: { type: "boolean", default: true, description: "Ask for the usage of streams." },
      structuredOutputs: {
        type: "boolean",
        default: true,
        description: "Whether JSON Schemas may be sent as response_format; see structuredOutput.",
      },
      name: {
        type: "string",
        minLength: 1,
        description: "Key of its providerOptions; default: its key in the manifest.",
      },
    },
  },
  async create(config: Config, host) {
    const baseURL = parseBaseURL(config.baseURL);
    // undici is a hundred files, which only a manifest with this provider needs to load.
    const [{ ChatModel, Learned }, { EmbeddingModel }, { createUpstream }] = await Promise.all([
      import("./language-model.ts"),
      import("./embedding-model.ts"),
      import("./upstream.ts"),
    ]);
    const {
      headers,
      queryParams,
      connections,
      queue = DEFAULT_QUEUE,
      includeUsage,
      structuredOutputs: takesSchemas,
    } = config;
    const apiKey = config.apiKey.trim();
    checkHeaders(headers, apiKey);
    const upstream = createUpstream({
      baseURL,
      apiKey,
      headers,
      queryParams,
      connections,
      queue,
      intercept: host.intercept,
    });
    host.onClose(() => upstream.close());
    const name = config.name ?? host.name ?? "openai-compatible";
    const optionKeys = optionKeysOf(name);
    const chat = upstream.endpoint("/chat/completions");
    const embeddings = upstream.endpoint("/embeddings");
    const learnedOf = new RecentMap<Learned>(MAX_LEARNED);
    return {
      languageModel(modelId, settings) {
        const learned = learnedOf.get(modelId) ?? new Learned();
        learnedOf.set(modelId, learned);
        const shared = { name, optionKeys, includeUsage, endpoint: chat, takesSchemas, logger: host.logger };
        return new ChatModel({ ...shared, modelId, settings, learned });
      },
      embeddingModel: (modelId, { timeouts }) =>
        new EmbeddingModel({ name, modelId, optionKeys, endpoint: embeddings, timeouts }),
    };
  },
});
