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
import { refusesCallIds, shortenCallIds } from "./call-ids.ts";
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
import {
  askForJson,
  chooseMode,
  isAboutSchema,
  isAboutTools,
  type OutputMode,
  refusedMode,
} from "./structured-output.ts";
import type { Endpoint } from "./upstream.ts";

/** What a provider has refused for one model: shared by all who call it. */
export class Learned {
  readonly parameters = new LearnedRules();
  readonly modes = new Set<OutputMode>();
  /** Those that it takes only in a call without tools. */
  readonly modesWithoutTools = new Set<OutputMode>();
  /** Whether ids of calls are sent as Mistral takes them. */
  shortCallIds = false;
}

/**
 * What it has refused of one call. Only a call that is accepted in the end proves it: the words of an error may be those of a client,
 * such as the name of a file in its prompt.
 */
class Refused extends Learned {
  /** Modes that the provider takes, but not with this schema. */
  readonly unfit = new Set<OutputMode>();
  /** What the log is told once it is proved. */
  readonly notes: { readonly fields: object; readonly message: string }[] = [];
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
    let refused: Refused | null = null;
    for (let repeats = 0; ; repeats++) {
      const body = this.#body(options, refused);
      const answer = this.#call(options, body);
      try {
        await answer.opened;
        if (refused !== null) this.#learn(refused);
        return new Answer(answer);
      } catch (error) {
        refused ??= new Refused();
        if (repeats === MAX_REPEATS || !this.#adapt(error, body, refused)) throw error;
      }
    }
  }

  async doGenerate(options: LanguageModelV3CallOptions): Promise<LanguageModelV3GenerateResult> {
    return collectAnswer((await this.doStream(options)).batches);
  }

  #body(options: LanguageModelV3CallOptions, refused: Refused | null): Body {
    const { settings, learned } = this.#config;
    const named = namedOptions(this.#config, options);
    const body = toBody(this.#config, options, named);
    const { responseFormat } = options;
    if (responseFormat?.type === "json") {
      const besideTools =
        body.tools === undefined ? [] : [...learned.modesWithoutTools, ...(refused?.modesWithoutTools ?? [])];
      const modes = new Set([...learned.modes, ...besideTools, ...(refused?.modes ?? []), ...(refused?.unfit ?? [])]);
      const mode = chooseMode(settings.structuredOutput, responseFormat, modes);
      askForJson(body, responseFormat, mode, named.strictJsonSchema ?? true);
    }
    applyRules(body, this.#rules);
    applyRules(body, learned.parameters);
    if (refused !== null) applyRules(body, refused.parameters);
    if (learned.shortCallIds || refused?.shortCallIds) shortenCallIds(body);
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

  /** Reads a refusal. Returns whether the call is to be repeated. */
  #adapt(error: unknown, body: Body, refused: Refused): boolean {
    if (!APICallError.isInstance(error) || !BAD_REQUEST.has(error.statusCode)) return false;
    const { settings } = this.#config;
    const model = `${this.#config.name}/${this.modelId}`;
    const complaint = readComplaint(error.data, error.responseBody ?? "");
    const mode = settings.structuredOutput === "auto" ? refusedMode(complaint, body) : null;
    if (mode !== null) {
      const modes = isAboutTools(complaint, body) ? refused.modesWithoutTools : refused.modes;
      if (isAboutSchema(complaint)) refused.unfit.add(mode);
      else {
        modes.add(mode);
        const message = "the model does not take this response_format: no longer sent";
        refused.notes.push({ fields: { model, response_format: mode, err: error }, message });
      }
      return true;
    }
    if (refusesCallIds(complaint, body)) {
      refused.shortCallIds = true;
      return true;
    }
    const parameter = refusedParameter(complaint, body);
    if (parameter === null || isRenamed(refused, parameter)) return false;
    const as = refused.parameters.refuse(parameter);
    const message = "the model does not take this parameter: no longer sent";
    refused.notes.push({ fields: { model, parameter, as, err: error }, message });
    return true;
  }

  /** The provider has accepted the call without what it had refused. */
  #learn({ parameters, modes, modesWithoutTools, shortCallIds, notes }: Refused): void {
    const { learned, logger } = this.#config;
    const { omit, rename } = learned.parameters;
    const size = () => learned.modes.size + learned.modesWithoutTools.size + omit.size + rename.size;
    const before = size();
    for (const mode of modes) learned.modes.add(mode);
    for (const mode of modesWithoutTools) learned.modesWithoutTools.add(mode);
    learned.shortCallIds ||= shortCallIds;
    learned.parameters.add(parameters);
    // Calls at the same time learn the same.
    if (size() > before) for (const { fields, message } of notes) logger.warn(fields, message);
  }
}

/** Whether it is the limit under its other name, which was the last thing to try. */
const isRenamed = ({ parameters }: Refused, parameter: string): boolean =>
  [...parameters.rename.values()].includes(parameter);

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
