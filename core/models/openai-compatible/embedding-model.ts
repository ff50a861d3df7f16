/** An embedding model behind OpenAI's embeddings. */
import {
  type EmbeddingModelV3CallOptions,
  type EmbeddingModelV3Result,
  InvalidArgumentError,
  InvalidResponseDataError,
  TooManyEmbeddingValuesForCallError,
} from "@ai-sdk/provider";
import { abortsOf } from "../../lib/aborts.ts";
import { isObject } from "../../lib/is-object.ts";
import type { EmbeddingModelV3, ModelTimeouts } from "../../plugin/plugin.ts";
import { refusedCall } from "./refused-call.ts";
import type { Endpoint } from "./upstream.ts";
import type { Receiver, ResponseHeaders } from "./upstream-call.ts";

interface EmbeddingModelConfig {
  readonly name: string;
  readonly modelId: string;
  readonly optionKeys: readonly string[];
  readonly endpoint: Endpoint;
  readonly timeouts: ModelTimeouts;
}

/** Most values per call, as documented by OpenAI. */
const MAX_VALUES = 2048;

export class EmbeddingModel implements EmbeddingModelV3 {
  readonly specificationVersion = "v3";
  readonly provider: string;
  readonly modelId: string;
  readonly maxEmbeddingsPerCall = MAX_VALUES;
  readonly supportsParallelCalls = true;
  readonly #config: EmbeddingModelConfig;

  constructor(config: EmbeddingModelConfig) {
    this.provider = `${config.name}.embedding`;
    this.modelId = config.modelId;
    this.#config = config;
  }

  async doEmbed(options: EmbeddingModelV3CallOptions): Promise<EmbeddingModelV3Result> {
    const { values, abortSignal, headers } = options;
    const { provider, modelId, maxEmbeddingsPerCall } = this;
    if (values.length > maxEmbeddingsPerCall)
      throw new TooManyEmbeddingValuesForCallError({ provider, modelId, maxEmbeddingsPerCall, values });
    const { endpoint, timeouts } = this.#config;
    const body = { ...this.#ownOptions(options), model: modelId, input: values, encoding_format: "float" };
    const data = await new Promise<unknown>((resolve, reject) => {
      const receiver = new JsonReceiver(endpoint.url, resolve, reject);
      endpoint.post(JSON.stringify(body), receiver, timeouts, abortsOf(abortSignal), headers).start();
    });
    return { ...readEmbeddings(data, values.length), warnings: [] };
  }

  #ownOptions({ providerOptions }: EmbeddingModelV3CallOptions): Record<string, unknown> {
    const keys = ["openai-compatible", "openaiCompatible", ...this.#config.optionKeys];
    const { dimensions, user } = Object.assign({}, ...keys.map((key) => providerOptions?.[key]));
    check("dimensions", dimensions, "number");
    check("user", user, "string");
    return { dimensions, user };
  }
}

function check(name: string, value: unknown, type: "number" | "string"): void {
  if (value === undefined || typeof value === type) return;
  throw new InvalidArgumentError({ argument: "providerOptions", message: `${name} must be a ${type}` });
}

/** Receives a whole JSON body. */
class JsonReceiver implements Receiver {
  readonly #url: string;
  readonly #resolve: (data: unknown) => void;
  readonly #reject: (thrown: unknown) => void;
  readonly #pieces: Buffer[] = [];
  #status = 0;
  #headers: ResponseHeaders = {};

  constructor(url: string, resolve: (data: unknown) => void, reject: (thrown: unknown) => void) {
    this.#url = url;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  started(status: number, headers: ResponseHeaders): void {
    this.#status = status;
    this.#headers = headers;
  }

  received(chunk: Buffer): boolean {
    this.#pieces.push(chunk);
    return true;
  }

  completed(): void {
    const body = Buffer.concat(this.#pieces).toString();
    try {
      if (this.#status < 300) {
        this.#resolve(JSON.parse(body));
        return;
      }
    } catch {
      // Not JSON: reported below as an invalid answer.
    }
    this.#reject(refusedCall({ url: this.#url, status: this.#status, headers: this.#headers, body }));
  }

  failed(thrown: unknown): void {
    this.#reject(thrown);
  }
}

function readEmbeddings(data: unknown, count: number): Pick<EmbeddingModelV3Result, "embeddings" | "usage"> {
  const rows = isObject(data) && Array.isArray(data.data) ? data.data : [];
  const embeddings = rows.map((row) => (isObject(row) ? row.embedding : undefined));
  if (
    embeddings.length !== count ||
    !embeddings.every((value) => Array.isArray(value) && value.every((each) => typeof each === "number"))
  )
    throw new InvalidResponseDataError({ data: undefined, message: `the provider did not send ${count} embeddings` });
  const usage = isObject(data) && isObject(data.usage) ? data.usage.prompt_tokens : undefined;
  return typeof usage === "number" ? { embeddings, usage: { tokens: usage } } : { embeddings };
}
