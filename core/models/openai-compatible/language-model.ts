/** A language model behind OpenAI's chat completions. */
import { APICallError } from "@ai-sdk/provider";
import { type Aborts, abortsOf } from "../../lib/aborts.ts";
import { isObject } from "../../lib/is-object.ts";
import type {
  BatchedStreamResult,
  LanguageModelV3,
  LanguageModelV3CallOptions,
  LanguageModelV3Content,
  LanguageModelV3GenerateResult,
  LanguageModelV3StreamPart,
  Logger,
  ModelSettings,
  PartSource,
} from "../../plugin/plugin.ts";
import { ChatAnswer } from "./chat-answer.ts";
import { validationDetails } from "./refused-call.ts";
import {
  type Body,
  DETAILS,
  type ModelForm,
  metadataKeyOf,
  THOUGHTS,
  type ThoughtName,
  toBody,
  warningsOf,
} from "./request-body.ts";
import type { Endpoint } from "./upstream.ts";

/*
 * Which parameters a model accepts: what is known about common models by their name, what the manifest says, and what the provider
 * has refused.
 */

type Message = Body["messages"][number];

interface ParameterRules {
  readonly omit: ReadonlySet<string>;
  readonly rename: ReadonlyMap<string, string>;
}

/** OpenAI's reasoning models, also after the name of a vendor: `openai/gpt-5-mini`. */
const REASONING_MODELS = /(?:^|\/)(?:gpt-5|o1|o3|o4)[^/]*$/;
const SAMPLING = ["temperature", "top_p", "frequency_penalty", "presence_penalty"];
const LIMIT = "max_tokens";
const NEW_LIMIT = "max_completion_tokens";
const OTHER_LIMIT: ReadonlyMap<string, string> = new Map([
  [LIMIT, NEW_LIMIT],
  [NEW_LIMIT, LIMIT],
]);

/** Parameters that no rule removes. */
const ESSENTIAL: ReadonlySet<string> = new Set([
  "model",
  "messages",
  "stream",
  "tools",
  "tool_choice",
  "response_format",
]);

/** Keys of messages to which rules apply as well: not every provider accepts the reasoning of its model back. */
const MESSAGE_KEYS = [...THOUGHTS, DETAILS];

/** @param given rules of the manifest; a parameter that it renames, even to itself, is sent */
function rulesFor(modelId: string, given: ModelSettings["parameters"]): ParameterRules {
  const rename = new Map(Object.entries(given.rename));
  const omit = new Set(given.omit);
  if (REASONING_MODELS.test(modelId)) {
    for (const name of SAMPLING) if (!rename.has(name)) omit.add(name);
    if (!rename.has(LIMIT)) rename.set(LIMIT, NEW_LIMIT);
  }
  return { omit, rename };
}

/** Applies the rules to the body. A value that the body has under the new name already takes precedence. */
function applyRules(body: Body, { omit, rename }: ParameterRules): void {
  for (const name of omit) if (body[name] !== undefined && !ESSENTIAL.has(name)) body[name] = undefined;
  for (const [name, other] of rename) {
    const value = body[name];
    if (value === undefined || name === other || ESSENTIAL.has(name) || ESSENTIAL.has(other)) continue;
    body[name] = undefined;
    body[other] ??= value;
  }
  for (const key of MESSAGE_KEYS) {
    // What is said of thoughts under their common name holds for them under the other too.
    const names = key === "reasoning" ? [key, THOUGHTS[0]] : [key];
    const spelling = names.map((name) => rename.get(name)).find((name) => name !== undefined);
    if (names.some((name) => omit.has(name)))
      body.messages = body.messages.map((message) => renamed(key, null, message));
    else if (spelling !== undefined && spelling !== key)
      body.messages = body.messages.map((message) => renamed(key, spelling, message));
  }
}

/** @param name the new key; null removes it */
function renamed(key: string, name: string | null, message: Message): Message {
  if (message[key] === undefined) return message;
  const { [key]: value, ...rest } = message;
  return name === null ? rest : { ...rest, [name]: value };
}

/** The parameters that a model has refused so far. */
class LearnedRules implements ParameterRules {
  readonly omit = new Set<string>();
  readonly rename = new Map<string, string>();

  /**
   * Returns the name under which the parameter is sent from now on, or null if it is left out. A token limit is never left out, because
   * it bounds the cost of a call: it is tried under its other name.
   */
  refuse(parameter: string): string | null {
    const other = OTHER_LIMIT.get(parameter) ?? null;
    if (other === null) this.omit.add(parameter);
    else this.rename.set(parameter, other);
    return other;
  }

  add({ omit, rename }: ParameterRules): void {
    for (const name of omit) this.omit.add(name);
    // A rename whose new name is itself renamed would undo that one.
    for (const [name, other] of rename) if (!this.rename.has(other)) this.rename.set(name, other);
  }
}

/** A provider's error about a request, in a form that can be searched. */
interface Complaint {
  readonly code: string;
  /** The parameter at fault, if the provider names it in a separate field. */
  readonly param: string;
  readonly words: string;
}

const MAX_WORDS = 4000;

/** Reads OpenAI's `{error: {code, param, message}}`, and the first of FastAPI's `{detail: [{loc, msg}]}`. */
function readComplaint(data: unknown, text: string): Complaint {
  const root = isObject(data) ? data : {};
  const error = isObject(root.error) ? root.error : root;
  const [detail] = validationDetails(data);
  if (detail !== undefined)
    return { code: detail.type, param: detail.place.at(-1) ?? "", words: detail.message.slice(0, MAX_WORDS) };
  const words = [error.message, root.error, error.detail].find((each) => typeof each === "string") ?? text;
  return { code: asText(error.code), param: asText(error.param), words: asText(words).slice(0, MAX_WORDS) };
}

const asText = (value: unknown): string => (typeof value === "string" ? value : "");

/** Words which say that a parameter is not supported at all, as opposed to a value that is out of range. */
const NOT_TAKEN =
  /unsupported|not (?:be )?(?:supported|permitted|allowed|enabled|recogni[sz]ed)|(?:does not|doesn't|don't) (?:support|allow)|unrecogni[sz]ed|unknown|unexpected|extra[ _](?:inputs|fields|forbidden)|deprecated|cannot both be|cannot find field/i;

/** The parameter of the body that the provider does not support, or null. */
function refusedParameter(complaint: Complaint, body: Body): string | null {
  const sent = Object.keys(body).filter((name) => body[name] !== undefined && !ESSENTIAL.has(name));
  sent.push(...MESSAGE_KEYS.filter((key) => body.messages.some((message) => message[key] !== undefined)));
  const { code, param, words } = complaint;
  // Another value might be accepted; but sampling parameters may have been sent without being asked for.
  if (code === "unsupported_value" && !SAMPLING.includes(param)) return null;
  if (!NOT_TAKEN.test(`${code} ${words}`)) return null;
  if (sent.includes(param)) return param;
  // If the provider refuses a combination of two, the less important one is left out.
  const order = ["frequency_penalty", "presence_penalty", "top_p", ...sent];
  return order.find((name) => sent.includes(name) && names(words, name)) ?? null;
}

const QUOTES = ['"', "'", "`"];

/** Whether the words name the parameter. One that is also an English word counts only in quotes. */
function names(words: string, parameter: string): boolean {
  const camel = parameter.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
  const spellings = [parameter, camel];
  const distinct = parameter !== camel || parameter === "temperature" || parameter === "seed";
  if (distinct) return words.split(/\W+/).some((word) => spellings.includes(word));
  return spellings.some((name) => QUOTES.some((quote) => words.includes(`${quote}${name}${quote}`)));
}

/** What a provider has refused for one model: shared by all its calls. */
export class Learned {
  readonly parameters = new LearnedRules();
  /** The name under which its thoughts come. */
  thoughts: ThoughtName = "reasoning_content";
}

/**
 * What the provider has refused of one call. It is remembered only if the call is accepted in the end: the text of an error may quote
 * the client, for example the name of a file in its prompt.
 */
class Refused extends Learned {
  /** Log lines to write once the call is accepted. */
  readonly notes: { readonly fields: object; readonly message: string }[] = [];
}

interface ChatModelConfig extends ModelForm {
  /** The name of the provider. */
  readonly name: string;
  readonly endpoint: Endpoint;
  readonly settings: ModelSettings;
  /** What the provider has refused for the model: shared by all its calls. */
  readonly learned: Learned;
  /** Whether the provider supports JSON Schemas. */
  readonly takesSchemas: boolean;
  readonly logger: Pick<Logger, "warn">;
}

/** How often one call is repeated without what the provider refuses: each refusal names only one thing. */
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

  /** Throws the refusal that the provider would send, if the configuration says that it does not support schemas. */
  #requireSchemas({ responseFormat }: LanguageModelV3CallOptions): void {
    const { takesSchemas, settings, endpoint } = this.#config;
    if (takesSchemas || settings.structuredOutput !== "auto") return;
    if (responseFormat?.type !== "json" || responseFormat.schema === undefined) return;
    const message = "response_format json_schema is not supported: structuredOutputs is false";
    throw new APICallError({ message, url: endpoint.url, requestBodyValues: {}, statusCode: 400, isRetryable: false });
  }

  #body(options: LanguageModelV3CallOptions, refused: Refused | null): Body {
    const { learned } = this.#config;
    const body = toBody(this.#config, options);
    applyRules(body, this.#rules);
    applyRules(body, learned.parameters);
    if (refused !== null) applyRules(body, refused.parameters);
    return body;
  }

  #call(options: LanguageModelV3CallOptions, body: Body): ChatAnswer {
    const { endpoint, settings, learned } = this.#config;
    const warnings = warningsOf(options);
    const metadataKey = metadataKeyOf(this.#config, options);
    const form = { url: endpoint.url, metadataKey, raw: options.includeRawChunks === true, learned };
    const answer = new ChatAnswer(form, warnings.length === 0 ? START : { type: "stream-start", warnings });
    const { headers } = options;
    // Reading the signal would create one.
    const aborts = (options as { aborts?: Aborts }).aborts ?? abortsOf(options.abortSignal);
    answer.follow(endpoint.post(JSON.stringify(body), answer, settings.timeouts, aborts, headers));
    return answer;
  }

  /** Reads a refusal. Returns whether the call is to be repeated. */
  #adapt(error: unknown, body: Body, refused: Refused): boolean {
    if (!APICallError.isInstance(error) || !BAD_REQUEST.has(error.statusCode)) return false;
    const model = `${this.#config.name}/${this.modelId}`;
    const complaint = readComplaint(error.data, error.responseBody ?? "");
    const parameter = refusedParameter(complaint, body);
    if (parameter === null || isRenamed(refused, parameter)) return false;
    const as = refused.parameters.refuse(parameter);
    const message = "the model does not take this parameter: no longer sent";
    refused.notes.push({ fields: { model, parameter, as, err: error }, message });
    return true;
  }

  /** Remembers what was refused, once the provider has accepted the call without it. */
  #learn({ parameters, notes }: Refused): void {
    const { learned, logger } = this.#config;
    const { omit, rename } = learned.parameters;
    const before = omit.size + rename.size;
    learned.parameters.add(parameters);
    // Simultaneous calls learn the same, but only one logs it.
    if (omit.size + rename.size > before) for (const { fields, message } of notes) logger.warn(fields, message);
  }
}

/** Whether the refused parameter is the token limit under its other name, so that there is nothing left to try. */
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

// Collects the parts of an answer into the result of `doGenerate`.

type Finish = Extract<LanguageModelV3StreamPart, { type: "finish" }>;
type End = Extract<LanguageModelV3StreamPart, { type: "text-end" | "reasoning-end" }>;
type Start = Extract<LanguageModelV3StreamPart, { type: "stream-start" }>;

async function collectAnswer(source: PartSource): Promise<LanguageModelV3GenerateResult> {
  const content: LanguageModelV3Content[] = [];
  let warnings: Start["warnings"] = [];
  let response: LanguageModelV3GenerateResult["response"] = {};
  let finish: Finish | null = null;
  for (let batch = await source.next(); batch !== null; batch = await source.next()) {
    for (const part of batch) {
      if (part.type === "stream-start") warnings = part.warnings;
      else if (part.type === "response-metadata") response = withoutType(part);
      else if (part.type === "text-start") content.push({ type: "text", text: "" });
      else if (part.type === "reasoning-start") content.push({ type: "reasoning", text: "" });
      else if (part.type === "text-delta" || part.type === "reasoning-delta") addText(content, part.delta);
      else if (part.type === "text-end" || part.type === "reasoning-end") carry(content, part);
      else if (part.type === "tool-call") content.push(part);
      else if (part.type === "finish") finish = part;
    }
  }
  if (finish === null) throw new Error("the answer was cancelled");
  const { finishReason, usage, providerMetadata } = finish;
  return { content, finishReason, usage, warnings, response, ...(providerMetadata && { providerMetadata }) };
}

/** Appends to the last item of the content, which is the only one that can be open. */
function addText(content: LanguageModelV3Content[], delta: string): void {
  const open = content.at(-1);
  if (open?.type === "text" || open?.type === "reasoning") open.text += delta;
}

function carry(content: LanguageModelV3Content[], { providerMetadata }: End): void {
  if (providerMetadata !== undefined) Object.assign(content.at(-1)!, { providerMetadata });
}

function withoutType({ type: _, ...rest }: Extract<LanguageModelV3StreamPart, { type: "response-metadata" }>) {
  return rest;
}
