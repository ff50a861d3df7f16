/** Model providers as the service makes them, and what their models answer. */
import type { TestContext } from "node:test";
import type { LanguageModelV3CallOptions, LanguageModelV3StreamPart } from "@ai-sdk/provider";
import { pino } from "pino";
import type { ModelStream } from "../../core/models/chained-answer.ts";
import { createModelChain, type ModelChain } from "../../core/models/models.ts";
import { modelSettings } from "../../core/models/settings-problems.ts";
import { ThinkHabit } from "../../core/models/think-tags.ts";
import type { ModelProvider, ModelSettings, ProviderPlugin } from "../../core/plugin/plugin.ts";
import { createInstance } from "../../core/registry/create.ts";
import { createHost } from "../../core/registry/host.ts";

export type Part = LanguageModelV3StreamPart;
type Test = Pick<TestContext, "after">;

export const silent = pino({ level: "silent" });

/** Configures and makes a provider; what it holds is released when the test ends. */
export async function makeProvider(test: Test, plugin: ProviderPlugin, config: object = {}): Promise<ModelProvider> {
  const host = createHost({ logger: silent, env: {} });
  test.after(() => host.close());
  return createInstance(plugin, config, { ...host, name: "demo" });
}

const TIMEOUTS = { connect: 5_000, firstByte: 120_000, idle: 60_000 };

/** What a manifest says of a model; without `settings` what it says by default. */
export const settingsOf = (settings: Partial<ModelSettings> = {}): ModelSettings => ({
  ...modelSettings({ use: "test", timeouts: TIMEOUTS }, "any"),
  ...settings,
});

/** A chain of one model. */
export function chainOf(
  provider: ModelProvider,
  model: string,
  retries = provider.retries ?? 2,
  settings: Partial<ModelSettings> = {},
): ModelChain {
  const think = settings.extractReasoning === true ? { think: new ThinkHabit() } : undefined;
  const chained = [
    { id: `demo/${model}`, model: provider.languageModel(model, settingsOf(settings)), retries, ...think },
  ];
  return createModelChain(chained, { logger: silent, backoff: 1 });
}

/** Options of a call with one text of the user. */
export function ask(text: string, rest: Partial<LanguageModelV3CallOptions> = {}): LanguageModelV3CallOptions {
  return { prompt: [{ role: "user", content: [{ type: "text", text }] }], ...rest };
}

/** Every batch until the end; `received` is told each as it comes. */
export async function batchesOf(
  stream: ModelStream,
  received?: (batch: readonly Part[]) => void,
): Promise<(readonly Part[])[]> {
  const batches: (readonly Part[])[] = [];
  for (;;) {
    const batch = await stream.next();
    if (batch === null) return batches;
    batches.push(batch);
    received?.(batch);
  }
}

export async function partsOf(chain: ModelChain, options: LanguageModelV3CallOptions): Promise<Part[]> {
  return (await batchesOf(await chain.stream(options))).flat();
}

export const textOf = (parts: readonly Part[]): string =>
  parts.map((part) => (part.type === "text-delta" ? part.delta : "")).join("");

/** The only part of a type. */
export function partOf<T extends Part["type"]>(parts: readonly Part[], type: T): Extract<Part, { type: T }> {
  const found = parts.filter((part) => part.type === type);
  if (found.length !== 1) throw new Error(`${found.length} parts of type ${type}: ${JSON.stringify(parts)}`);
  return found[0] as Extract<Part, { type: T }>;
}

/** Fails the test instead of hanging it; only a hang takes a minute. */
export async function soon<T>(promise: Promise<T>, what: string, milliseconds = 240_000): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const limit = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} did not happen within ${milliseconds} ms`)), milliseconds);
  });
  try {
    return await Promise.race([promise, limit]);
  } finally {
    clearTimeout(timer);
  }
}
