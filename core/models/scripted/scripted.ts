/**
 * A model provider that runs offline and always says the same: for the demo, tests and load tests.
 *
 * Its model `echo` repeats the user's last text. `replies` are rules tried before that, in order: `when` is a regular
 * expression without regard to case (absent: always), then one of `text`, `call` (a tool call or a list of them),
 * `object` (as JSON) or `error`; an `error` beside a `text` breaks the answer off behind it. After a rule's call the
 * next round says the rule's `then`, a template over `result`, or the tool's output as JSON. Texts, inputs and objects
 * may hold templates over `input` (the user's text) and `match` (the groups of `when`). Asked for JSON without a rule,
 * it makes an object that fits the schema. Words are counted as tokens, and `maxOutputTokens` is kept.
 */
import {
  defineProvider,
  type Host,
  type LanguageModelV3,
  type LanguageModelV3CallOptions,
  parseDuration,
} from "../../plugin/plugin.ts";
import { answer } from "./answer.ts";
import { collect } from "./collect.ts";
import { compileReplies, type ReplyConfig } from "./replies.ts";

interface ModelConfig {
  replies: ReplyConfig[];
  chunks: number;
  delay: string;
  firstDelay: string;
}

interface Config extends ModelConfig {
  models: Record<string, ModelConfig>;
  retries: number;
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
      const saying = respond(options);
      // Without anything before it a failure is the refusal of the call; a first delay passes after the acceptance.
      const refused = saying.failure !== undefined && saying.text === undefined && pace.firstDelay === 0;
      return refused ? Promise.reject(saying.failure) : Promise.resolve(answer(saying, options, chunks, pace));
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
      retries: { type: "integer", minimum: 0, maximum: 10, default: 0 },
    },
  },
  create(config: Config, host) {
    if (Object.hasOwn(config.models, "echo"))
      throw new Error("models.echo: the keys beside use are those of model echo");
    const models = new Map([["echo", createModel("echo", config, "", host)]]);
    for (const [id, model] of Object.entries(config.models)) {
      models.set(id, createModel(id, model, `models.${id}.`, host));
    }
    return {
      retries: config.retries,
      languageModel(id) {
        const model = models.get(id);
        if (model === undefined)
          throw new Error(`no model ${JSON.stringify(id)}: there is ${[...models.keys()].join(", ")}`);
        return model;
      },
    };
  },
});
