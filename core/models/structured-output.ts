/**
 * Asks a model for JSON in the way that its provider supports: with the schema enforced, as any JSON, or only in the prompt.
 * Whenever the provider is not given the schema, the prompt contains it.
 */
import type { LanguageModelV3CallOptions, LanguageModelV3StreamPart } from "@ai-sdk/provider";
import type { Logger, ModelSettings } from "../plugin/plugin.ts";
import { isBatched, type StreamingModel, type StreamingResult } from "./part-source.ts";

type Mode = Exclude<ModelSettings["structuredOutput"], "auto">;

/** The next mode to try when a provider does not support one. */
const STEP_DOWN: Readonly<Record<Mode, Mode | null>> = {
  json_schema: "json_object",
  json_object: "prompt",
  prompt: null,
};

/** The names of the feature in errors that refuse it. */
const ABOUT_FORMAT =
  /response.?(format|schema|mime.?type)|json.?(schema|mode|object)|structured.?output|output.?(format|config)|guided/i;
/** Words by which the feature is refused for any schema, unless the error is about the schema itself. */
const ABOUT_SUPPORT = /n[o']t (be )?(support|available)|unsupported|unavailable|unknown|unrecognized/i;
const ABOUT_SCHEMA = /invalid.{0,12}schema/i;
const REFUSING_STATUSES: ReadonlySet<unknown> = new Set([400, 404, 422]);

/** The modes that the models of a provider support, as learned under `auto`, by model; calls with tools count as a separate model. */
export class LearnedModes {
  readonly #modes = new Map<string, Learned>();

  of(key: string): Learned {
    return this.#modes.get(key) ?? UNKNOWN;
  }

  set(key: string, learned: Learned): void {
    // Bounded, because names of models may be computed from what clients send.
    if (this.#modes.size >= MAX_LEARNED) this.#modes.clear();
    this.#modes.set(key, learned);
  }
}

/** `certain`: the provider supports the mode, so its warnings need not be checked any more. */
interface Learned {
  readonly mode: Mode;
  readonly certain: boolean;
}

const UNKNOWN: Learned = { mode: "json_schema", certain: false };
const MAX_LEARNED = 1000;

interface JsonSettings {
  /** `provider/model`, the key of what is learned. */
  readonly name: string;
  readonly setting: ModelSettings["structuredOutput"];
  /** Outlives the model. */
  readonly learned: LearnedModes;
  readonly logger: Pick<Logger, "warn">;
}

export function withStructuredOutput(model: StreamingModel, settings: JsonSettings): StreamingModel {
  const { setting } = settings;
  return {
    get supportedUrls() {
      return model.supportedUrls;
    },
    doStream(options) {
      if (options.responseFormat?.type !== "json") return model.doStream(options);
      return setting === "auto" ? learn(model, options, settings) : model.doStream(asked(options, setting));
    },
  };
}

/** Calls the model in the best mode that is not known to be refused, and remembers what the provider refuses. */
async function learn(
  model: StreamingModel,
  options: LanguageModelV3CallOptions,
  { name, learned, logger }: JsonSettings,
): Promise<StreamingResult> {
  const hasSchema = options.responseFormat?.type === "json" && options.responseFormat.schema !== undefined;
  const key = `${name}${options.tools === undefined ? "" : " with tools"}${hasSchema ? "" : " without schema"}`;
  let { mode, certain } = learned.of(key);
  if (!hasSchema && mode === "json_schema") mode = "json_object";
  /** The modes that the provider has refused for any schema. */
  const refused: { readonly mode: Mode; readonly err: unknown }[] = [];
  for (;;) {
    try {
      const result = await model.doStream(asked(options, mode));
      // Remembered only now that a call is accepted: the text of an error may quote the client.
      if (refused.length > 0) learned.set(key, { mode, certain: false });
      for (const each of refused)
        logger.warn({ model: name, ...each }, "the model does not take requests for JSON in this way: no longer sent");
      return certain || mode === "prompt" ? result : watched(result, mode, key, learned);
    } catch (err) {
      const next = STEP_DOWN[mode];
      const said = refusalOf(err);
      if (next === null || said === null) throw err;
      if (ABOUT_SUPPORT.test(said) && !ABOUT_SCHEMA.test(said)) refused.push({ mode, err });
      else certain = true;
      mode = next;
    }
  }
}

/** The options for a mode. Providers require the word JSON in the prompt when they get no schema. */
function asked(options: LanguageModelV3CallOptions, mode: Mode): LanguageModelV3CallOptions {
  const { responseFormat, abortSignal } = options;
  if (responseFormat?.type !== "json") return options;
  const { schema } = responseFormat;
  if (mode === "json_schema" && schema !== undefined) return options;
  return {
    ...options,
    abortSignal,
    prompt: withInstruction(options.prompt, instruction(schema)),
    responseFormat: mode === "prompt" ? undefined : { type: "json" },
  };
}

function instruction(schema: unknown): string {
  if (schema === undefined) return "Give your final answer as one JSON object alone, without any other text.";
  const json = JSON.stringify(schema);
  return `Give your final answer as JSON alone, without any other text. It must conform to this JSON Schema: ${json}`;
}

/** Appends to the instructions: some providers refuse a system message in any other place. */
function withInstruction(prompt: LanguageModelV3CallOptions["prompt"], text: string) {
  const [first, ...rest] = prompt;
  if (first?.role !== "system") return [{ role: "system" as const, content: text }, ...prompt];
  return [{ ...first, content: `${first.content}\n\n${text}` }, ...rest];
}

/** The provider's message if it refuses the format; else null. */
function refusalOf(error: unknown): string | null {
  const { statusCode, message, responseBody } = (error ?? {}) as Record<string, unknown>;
  if (!REFUSING_STATUSES.has(statusCode)) return null;
  const said = `${message} ${responseBody}`.slice(0, 4096);
  return ABOUT_FORMAT.test(said) ? said : null;
}

/** Checks the warnings at the start of an answer. One check is enough for all later calls. */
function watched(result: StreamingResult, mode: Mode, key: string, learned: LearnedModes): StreamingResult {
  const seen = (part: LanguageModelV3StreamPart) => {
    if (part.type !== "stream-start") return;
    const unsupported = part.warnings.some(isAboutFormat);
    learned.set(key, unsupported ? { mode: STEP_DOWN[mode] ?? mode, certain: false } : { mode, certain: true });
  };
  const look = new TransformStream({
    transform(part, controller) {
      seen(part);
      controller.enqueue(part);
    },
  });
  return isBatched(result) ? result : { ...result, stream: result.stream.pipeThrough(look) };
}

/** Whether a warning is about the format. Earlier versions of the interface have `setting` in place of `feature`. */
function isAboutFormat(warning: object): boolean {
  const { type, feature, setting } = warning as Record<string, unknown>;
  return (type === "unsupported" || type === "unsupported-setting") && (feature ?? setting) === "responseFormat";
}
