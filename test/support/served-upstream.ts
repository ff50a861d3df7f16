/** A service whose agent speaks to a real HTTP upstream in OpenAI's wire format. */
import type { TestContext } from "node:test";
import { type OpenAIUpstream, startOpenAIUpstream } from "./openai-upstream.ts";
import { manifestWith, startService, type TestOptions, type TestService } from "./service.ts";

export interface ServedUpstream {
  readonly service: TestService;
  readonly upstream: OpenAIUpstream;
}

/** The provider is `up`, the agent `assistant` on `up/test-model`. `provider` adds to the provider's configuration. */
export async function serveUpstream(
  test: Pick<TestContext, "after">,
  agent: object = {},
  { provider = {}, ...rest }: Record<string, unknown> & { provider?: object } = {},
  options: TestOptions = {},
): Promise<ServedUpstream> {
  const upstream = await startOpenAIUpstream();
  const up = { use: "openai-compatible", baseURL: upstream.baseURL, apiKey: "test", retries: 0, ...provider };
  const { agents = {}, providers = {}, ...more } = rest as Record<string, object>;
  const manifest = manifestWith({ model: "up/test-model", ...agent }, { ...more, providers: { up, ...providers } });
  manifest.agents = { ...(manifest.agents as object), ...agents };
  const service = await startService(test, manifest, options);
  test.after(() => upstream.close());
  return { service, upstream };
}

// biome-ignore lint/suspicious/noExplicitAny: tests look into replies as they need
export type Loose = any;

/** `data` of a reply that must have succeeded. */
export async function dataOf(reply: Response | Promise<Response>): Promise<Loose> {
  const { status, payload } = await payloadOf(reply);
  if (status !== 200) throw new Error(`${status}: ${payload.error}`);
  return payload.data;
}

/** Status and `error` of a reply. */
export async function errorOf(reply: Response | Promise<Response>): Promise<{ status: number; error: string }> {
  const { status, payload } = await payloadOf(reply);
  return { status, error: payload.error };
}

async function payloadOf(pending: Response | Promise<Response>): Promise<{ status: number; payload: Loose }> {
  const reply = await pending;
  return { status: reply.status, payload: await reply.json() };
}
