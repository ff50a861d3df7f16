/** A service whose agent talks to a strict upstream through a real provider package, or through `openai-compatible`. */

import type { TestContext } from "node:test";
import { fileURLToPath } from "node:url";
import { FIXTURES } from "./fixtures.ts";
import { manifestWith, startService, type TestService } from "./service.ts";
import { anthropic } from "./strict-anthropic.ts";
import { azure, deepSeek, groq, mistral, openRouter } from "./strict-compatible.ts";
import { gemini } from "./strict-gemini.ts";
import { geminiChat } from "./strict-gemini-chat.ts";
import { openAIChat } from "./strict-openai-chat.ts";
import { openAIResponses } from "./strict-responses.ts";
import { type Dialect, type StrictUpstream, startStrictUpstream } from "./strict-upstream.ts";

/** Where the packages are installed. */
export const PROJECT = fileURLToPath(new URL("../..", import.meta.url));

interface StrictProvider {
  readonly dialect: () => Dialect;
  readonly use: string;
  readonly model: string;
  /** `options` of the agent with which the model thinks. */
  readonly thinking: object;
  /** What the manifest has to say of the provider. */
  readonly provider?: object;
}

const CLAUDE = { anthropic: { thinking: { type: "enabled", budgetTokens: 1024 } } };

export const STRICT = {
  "OpenAI Responses": {
    dialect: openAIResponses,
    use: "@ai-sdk/openai",
    model: "gpt-5-mini",
    thinking: {},
  },
  "OpenAI Responses with store: false": {
    dialect: openAIResponses,
    use: "@ai-sdk/openai",
    model: "gpt-5-mini",
    thinking: { providerOptions: { openai: { store: false } } },
  },
  "OpenAI chat completions": {
    dialect: openAIChat,
    use: "openai-compatible",
    model: "gpt-4.1",
    thinking: {},
  },
  "OpenAI chat completions of a reasoning model": {
    dialect: openAIChat,
    use: "openai-compatible",
    model: "gpt-5-mini",
    thinking: {},
  },
  Anthropic: {
    dialect: anthropic,
    use: "@ai-sdk/anthropic",
    model: "claude-sonnet-4-5",
    thinking: { providerOptions: CLAUDE, maxOutputTokens: 4096 },
  },
  "Gemini's chat completions": {
    dialect: geminiChat,
    use: "openai-compatible",
    model: "gemini-3-pro-preview",
    thinking: {},
  },
  Azure: {
    dialect: azure,
    use: "openai-compatible",
    model: "gpt-4.1",
    thinking: {},
    provider: { apiKey: "", headers: { "api-key": "test" }, queryParams: { "api-version": "2024-10-21" } },
  },
  OpenRouter: { dialect: openRouter, use: "openai-compatible", model: "qwen/qwen3-max", thinking: {} },
  DeepSeek: {
    dialect: deepSeek,
    use: "openai-compatible",
    model: "deepseek-chat",
    thinking: {},
    provider: { structuredOutput: "json_object" },
  },
  Groq: {
    dialect: groq,
    use: "openai-compatible",
    model: "openai/gpt-oss-120b",
    thinking: {},
    provider: { structuredOutput: "json_object", parameters: { omit: ["reasoning_content"] } },
  },
  Mistral: {
    dialect: mistral,
    use: "openai-compatible",
    model: "magistral-medium",
    thinking: {},
    provider: {
      parameters: { omit: ["stream_options", "reasoning_content"], rename: { seed: "random_seed" } },
    },
  },
  Gemini: { dialect: gemini, use: "@ai-sdk/google", model: "gemini-3-pro-preview", thinking: {} },
} satisfies Record<string, StrictProvider>;

export type StrictName = keyof typeof STRICT;
export const STRICT_NAMES = Object.keys(STRICT) as StrictName[];

/** The provider is called `up`, the agent `assistant`. @param plugins folders beside that of the fixtures @param rest of the manifest; `provider` replaces what it says of the provider */
export async function serveStrict(
  test: Pick<TestContext, "after">,
  name: StrictName,
  agent: object = {},
  { provider: own, ...rest }: { provider?: object; [key: string]: unknown } = {},
  plugins: readonly string[] = [],
): Promise<{ service: TestService; upstream: StrictUpstream }> {
  const { dialect, use, model, thinking, provider }: StrictProvider = STRICT[name];
  const upstream = await startStrictUpstream(test, dialect());
  const { baseURL } = upstream;
  const connection =
    use === "openai-compatible" ? { baseURL, apiKey: "test" } : { options: { baseURL, apiKey: "test" } };
  const { options = {}, ...more } = agent as { options?: object };
  const manifest = manifestWith(
    { model: `up/${model}`, options: { ...thinking, ...options }, ...more },
    { providers: { up: { use, retries: 0, ...connection, ...(own ?? provider) } }, ...rest },
  );
  return {
    upstream,
    service: await startService(test, manifest, { plugins: [FIXTURES, ...plugins], project: PROJECT }),
  };
}
