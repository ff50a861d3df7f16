/**
 * A deterministic model provider that runs offline: for the demo, tests and load tests.
 *
 * Its model `echo` repeats the user's last text, unless one of the rules in `replies` applies. The first rule whose `when`, a
 * case-insensitive regular expression, matches the text is used; a rule without `when` always matches. It has one of `text`,
 * `call` (a tool call or a list of them), `object` (sent as JSON) or `error`; an `error` beside a `text` breaks the answer off
 * after the text. When the tools of `call` have run, the model replies with `then`, a template over `result`, or with the output
 * as JSON. Texts, inputs and objects may be templates over `input` (the user's text) and `match` (the groups of `when`). When
 * JSON is requested and no rule applies, the model generates an object from the schema. Words are counted as tokens, and
 * `maxOutputTokens` is respected.
 */
import {
  defineProvider,
  type Host,
  type LanguageModelV3,
  type LanguageModelV3CallOptions,
  type LanguageModelV3Content,
  type LanguageModelV3GenerateResult,
  type PartSource,
  parseDuration,
} from "../../plugin/plugin.ts";
import { createAnswer } from "./answer.ts";
import { compileReplies, type ReplyConfig } from "./replies.ts";

interface ModelConfig {
  replies: ReplyConfig[];
  chunks: number;
  delay: string;
  firstDelay: string;
}

interface Config extends ModelConfig {
  models: Record<string, ModelConfig>;
}

const call = {
  type: "object",
  required: ["tool"],
  additionalProperties: false,
  properties: { tool: { type: "string" }, input: {} },
};

const modelKeys = {
  replies: {
    type: "array",
    default: [],
    items: {
      type: "object",
      additionalProperties: false,
      properties: {
        when: { type: "string" },
        text: { type: "string" },
        call: { anyOf: [call, { type: "array", items: call, minItems: 1 }] },
        object: { type: "object" },
        error: { type: "string", minLength: 1 },
        then: {},
      },
    },
  },
  chunks: { type: "integer", minimum: 1, maximum: 100_000, default: 1 },
  delay: { type: "string", default: "0ms" },
  firstDelay: { type: "string", default: "0ms" },
};

function createModel(id: string, config: ModelConfig, at: string, host: Host): LanguageModelV3 {
  const respond = compileReplies(config.replies, `${at}replies`);
  const pace = { delay: duration(config, "delay", at), firstDelay: duration(config, "firstDelay", at) };
  const { chunks } = config;
  const doStream = (options: LanguageModelV3CallOptions) => {
    try {
      const reply = respond(options);
      // A failure without text and delay rejects the call itself instead of breaking off the stream.
      const rejects = reply.failure !== undefined && reply.text === undefined && pace.firstDelay === 0;
      return rejects ? Promise.reject(reply.failure) : Promise.resolve(createAnswer(reply, options, chunks, pace));
    } catch (error) {
      return Promise.reject(error);
    }
  };
  return {
    specificationVersion: "v3",
    provider: host.name ?? "scripted",
    modelId: id,
    supportedUrls: { "*/*": [/^/] },
    doStream,
    doGenerate: async (options) => collect((await doStream(options)).batches),
  };
}

function duration(config: ModelConfig, key: "delay" | "firstDelay", at: string): number {
  try {
    return parseDuration(config[key]);
  } catch (error) {
    throw new Error(`${at}${key}: ${(error as Error).message}`);
  }
}

export default defineProvider({
  name: "scripted",
  config: {
    type: "object",
    additionalProperties: false,
    properties: {
      ...modelKeys,
      models: {
        type: "object",
        default: {},
        additionalProperties: { type: "object", additionalProperties: false, properties: modelKeys },
      },
    },
  },
  create(config: Config, host) {
    if (Object.hasOwn(config.models, "echo"))
      throw new Error("models.echo: configure model echo by the keys beside use");
    const models = new Map([["echo", createModel("echo", config, "", host)]]);
    for (const [id, model] of Object.entries(config.models)) {
      models.set(id, createModel(id, model, `models.${id}.`, host));
    }
    return {
      retries: 0,
      languageModel(id) {
        const model = models.get(id);
        if (model === undefined)
          throw new Error(`no model ${JSON.stringify(id)}: the models are ${[...models.keys()].join(", ")}`);
        return model;
      },
    };
  },
});

// Collects the parts of an answer into the result of `doGenerate`.

async function collect(source: PartSource): Promise<LanguageModelV3GenerateResult> {
  const content: LanguageModelV3Content[] = [];
  let text = "";
  for (;;) {
    const batch = await source.next();
    if (batch === null) throw new Error("the answer ended early");
    for (const part of batch) {
      if (part.type === "text-delta") text += part.delta;
      else if (part.type === "tool-call") content.push(part);
      else if (part.type === "finish") {
        if (text !== "") content.unshift({ type: "text", text });
        return { content, finishReason: part.finishReason, usage: part.usage, warnings: [] };
      }
    }
  }
}
