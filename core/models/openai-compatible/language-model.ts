/** A language model behind OpenAI's chat completions. */
import { APICallError } from "@ai-sdk/provider";
import { type Aborts, abortsOf } from "../../lib/aborts.ts";
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
  LearnedRules,
  type ParameterRules,
  readComplaint,
  refusedParameter,
  rulesFor,
} from "./parameters.ts";
import { type Body, type ModelForm, metadataKeyOf, namedOptions, toBody, warningsOf } from "./request-body.ts";
import { askForJson, chooseMode, isAboutSchema, type OutputMode, refusedMode } from "./structured-output.ts";
import type { Endpoint } from "./upstream.ts";

/** What a provider has refused for one model: shared by all who call it. */
export class Learned {
  readonly parameters = new LearnedRules();
  readonly modes = new Set<OutputMode>();
}

interface ChatModelConfig extends ModelForm {
  /** Name of the provider. */
  readonly name: string;
  readonly endpoint: Endpoint;
  readonly settings: ModelSettings;
  readonly learned: Learned;
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
    /** Modes that the provider takes, but not with this schema. */
    const unfit = new Set<OutputMode>();
    for (let repeats = 0; ; repeats++) {
      const body = this.#body(options, unfit);
      const answer = this.#call(options, body);
      try {
        await answer.opened;
        return new Answer(answer);
      } catch (error) {
        if (repeats === MAX_REPEATS || !this.#adapt(error, body, unfit)) throw error;
      }
    }
  }

  async doGenerate(options: LanguageModelV3CallOptions): Promise<LanguageModelV3GenerateResult> {
    return collectAnswer((await this.doStream(options)).batches);
  }

  #body(options: LanguageModelV3CallOptions, unfit: ReadonlySet<OutputMode>): Body {
    const { settings, learned } = this.#config;
    const named = namedOptions(this.#config, options);
    const body = toBody(this.#config, options, named);
    const { responseFormat } = options;
    if (responseFormat?.type === "json") {
      const refused = unfit.size === 0 ? learned.modes : new Set([...learned.modes, ...unfit]);
      const mode = chooseMode(settings.structuredOutput, responseFormat, refused);
      askForJson(body, responseFormat, mode, named.strictJsonSchema ?? true);
    }
    applyRules(body, this.#rules);
    applyRules(body, learned.parameters);
    return body;
  }

  #call(options: LanguageModelV3CallOptions, body: Body): ChatAnswer {
    const { endpoint, settings } = this.#config;
    const warnings = warningsOf(options);
    const metadataKey = metadataKeyOf(this.#config, options);
    const form = { url: endpoint.url, metadataKey, raw: options.includeRawChunks === true };
    const answer = new ChatAnswer(form, warnings.length === 0 ? START : { type: "stream-start", warnings });
    const { headers } = options;
    // Reading the signal would make one.
    const aborts = (options as { aborts?: Aborts }).aborts ?? abortsOf(options.abortSignal);
    answer.follow(endpoint.post(JSON.stringify(body), answer, settings.timeouts, aborts, headers));
    return answer;
  }

  /** Learns from a refusal. Returns whether the call is to be repeated. */
  #adapt(error: unknown, body: Body, unfit: Set<OutputMode>): boolean {
    if (!APICallError.isInstance(error) || !BAD_REQUEST.has(error.statusCode)) return false;
    const { settings, learned, logger } = this.#config;
    const model = `${this.#config.name}/${this.modelId}`;
    const complaint = readComplaint(error.data, error.responseBody ?? "");
    const mode = settings.structuredOutput === "auto" ? refusedMode(complaint, body) : null;
    if (mode !== null) {
      if (isAboutSchema(complaint)) unfit.add(mode);
      else if (!learned.modes.has(mode)) {
        learned.modes.add(mode);
        logger.warn(
          { model, response_format: mode, err: error },
          "the model does not take this response_format: no longer sent",
        );
      }
      return true;
    }
    const parameter = refusedParameter(complaint, body);
    if (parameter === null) return false;
    const known = learned.parameters.omit.has(parameter) || learned.parameters.rename.has(parameter);
    const as = learned.parameters.refuse(parameter, complaint.words);
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
