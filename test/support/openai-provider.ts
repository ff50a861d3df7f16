/** The openai-compatible provider over an upstream of this process, and what a failed call leaves behind. */
import type { TestContext } from "node:test";
import openaiCompatible from "../../core/models/openai-compatible/openai-compatible.ts";
import type { ModelSettings } from "../../core/plugin/plugin.ts";
import { type OpenAIUpstream, startOpenAIUpstream } from "./openai-upstream.ts";
import { chainOf, makeProvider, soon } from "./providers.ts";

export const MODEL = "gpt-test";

export async function upstreamFor(test: Pick<TestContext, "after">): Promise<OpenAIUpstream> {
  const upstream = await startOpenAIUpstream();
  test.after(() => upstream.close());
  return upstream;
}

/** `chain` makes one try only. */
export async function openaiOver(
  test: Pick<TestContext, "after">,
  config: object = {},
  settings: Partial<ModelSettings> = {},
) {
  const upstream = await upstreamFor(test);
  const provider = await makeProvider(test, openaiCompatible, { baseURL: upstream.baseURL, ...config });
  return { upstream, provider, chain: chainOf(provider, MODEL, 0, settings) };
}

/** The cause at the bottom: what the log gets to see. */
export function rootOf(error: unknown): Error & { code?: string; limit?: string } {
  let current = error as Error;
  while (current.cause instanceof Error) current = current.cause;
  return current;
}

export async function thrownBy(run: Promise<unknown>): Promise<Error> {
  try {
    await soon(run, "the failure");
  } catch (error) {
    return error as Error;
  }
  throw new Error("nothing was thrown");
}
