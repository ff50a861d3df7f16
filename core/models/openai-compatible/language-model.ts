/** A language model behind OpenAI's chat completions. */
import { APICallError } from "@ai-sdk/provider";
import type {
  BatchedStreamResult,
  LanguageModelV3,
  LanguageModelV3CallOptions,
  LanguageModelV3GenerateResult,
  LanguageModelV3StreamPart,
  Logger,
  ModelSettings,
  PartSource,
} from "../../plugin/plugin.ts";
import { ChatAnswer } from "./chat-answer.ts";
import { collectAnswer } from "./collect.ts";
import {
  applyRules,
  type LearnedRules,
  type ParameterRules,
  readComplaint,
  refusedParameter,
  rulesFor,
} from "./parameters.ts";
import { type Body, type ModelForm, metadataKeyOf, toBody, warningsOf } from "./request-body.ts";
import type { Endpoint } from "./upstream.ts";

interface ChatModelConfig extends ModelForm {
  /** Name of the provider. */
  readonly name: string;
  readonly endpoint: Endpoint;
  readonly settings: ModelSettings;
  /** What the provider has refused for the model: shared by all who call it. */
  readonly learned: LearnedRules;
  /** Whether the provider may be sent JSON Schemas. */
  readonly takesSchemas: boolean;
  readonly logger: Pick<Logger, "warn">;
}

/** How often one call is repeated because of what the provider does not take: it names one thing at a time. */
const MAX_REPEATS = 8;
const BAD_REQUEST: ReadonlySet<unknown> = new Set([400, 422]);
const START: LanguageModelV3StreamPart = Object.freeze({ type: "stream-start", warnings: [] });

export class ChatModel implements LanguageModelV3 {
  readonly specificationVersion = "v3";
  readonly provider: string;
  readonly modelId: string;
  readonly supportedUrls = { "image/*": [/^https?:\/\//] };
  readonly #config: ChatModelConfig;
  readonly #rules: ParameterRules;

  constructor(config: ChatModelConfig) {
    this.provider = `${config.name}.chat`;
    this.modelId = config.modelId;
    this.#config = config;
    this.#rules = rulesFor(config.modelId, config.settings.parameters);
  }

  async doStream(options: LanguageModelV3CallOptions): Promise<BatchedStreamResult> {
    this.#requireSchemas(options);
    for (let repeats = 0; ; repeats++) {
      const body = this.#body(options);
      const answer = this.#call(options, body);
      try {
        await answer.opened;
        return new Answer(answer);
      } catch (error) {
        if (repeats === MAX_REPEATS || !this.#adapt(error, body)) throw error;
      }
    }
  }

  async doGenerate(options: LanguageModelV3CallOptions): Promise<LanguageModelV3GenerateResult> {
    return collectAnswer((await this.doStream(options)).batches);
  }

  /** Refuses what the configuration says that the provider would refuse, in the same way. */
  #requireSchemas({ responseFormat }: LanguageModelV3CallOptions): void {
    const { takesSchemas, settings, endpoint } = this.#config;
    if (takesSchemas || settings.structuredOutput !== "auto") return;
    if (responseFormat?.type !== "json" || responseFormat.schema === undefined) return;
    const message = "response_format json_schema is not supported: structuredOutputs is false";
    throw new APICallError({ message, url: endpoint.url, requestBodyValues: {}, statusCode: 400, isRetryable: false });
  }

  #body(options: LanguageModelV3CallOptions): Body {
    const body = toBody(this.#config, options);
    applyRules(body, this.#rules);
    applyRules(body, this.#config.learned);
    return body;
  }

  #call(options: LanguageModelV3CallOptions, body: Body): ChatAnswer {
    const { endpoint, settings } = this.#config;
    const warnings = warningsOf(options);
    const metadataKey = metadataKeyOf(this.#config, options);
    const form = { url: endpoint.url, metadataKey, raw: options.includeRawChunks === true };
    const answer = new ChatAnswer(form, warnings.length === 0 ? START : { type: "stream-start", warnings });
    const { abortSignal, headers } = options;
    answer.follow(endpoint.post(JSON.stringify(body), answer, settings.timeouts, abortSignal, headers));
    return answer;
  }

  /** Learns from a refusal. Returns whether the call is to be repeated. */
  #adapt(error: unknown, body: Body): boolean {
    if (!APICallError.isInstance(error) || !BAD_REQUEST.has(error.statusCode)) return false;
    const { learned, logger } = this.#config;
    const model = `${this.#config.name}/${this.modelId}`;
    const complaint = readComplaint(error.data, error.responseBody ?? "");
    const parameter = refusedParameter(complaint, body);
    if (parameter === null) return false;
    const known = learned.omit.has(parameter) || learned.rename.has(parameter);
    const as = learned.refuse(parameter, complaint.words);
    if (!known)
      logger.warn({ model, parameter, as, err: error }, "the model does not take this parameter: no longer sent");
    return true;
  }
}

class Answer implements BatchedStreamResult {
  readonly batches: PartSource;

  constructor(batches: PartSource) {
    this.batches = batches;
  }

  /** For readers that do not use `batches`. */
  get stream(): ReadableStream<LanguageModelV3StreamPart> {
    const { batches } = this;
    return new ReadableStream<LanguageModelV3StreamPart>({
      async pull(controller) {
        const batch = await batches.next();
        if (batch === null) controller.close();
        else for (const part of batch) controller.enqueue(part);
      },
      cancel: () => batches.cancel(),
    });
  }
}
