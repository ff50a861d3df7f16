/** A service whose agent has a chain of strict upstreams, each of another provider. */
import type { TestContext } from "node:test";
import { FIXTURES } from "./fixtures.ts";
import { manifestWith, startService, type TestService } from "./service.ts";
import { PROJECT, STRICT, type StrictName } from "./strict-providers.ts";
import { type StrictUpstream, startStrictUpstream } from "./strict-upstream.ts";

interface Chain {
  readonly service: TestService;
  /** One for each provider, in the order of the chain. */
  readonly upstreams: readonly StrictUpstream[];
}

/** The agent `assistant` has the options with which each of the models thinks. */
export async function serveStrictChain(
  test: Pick<TestContext, "after">,
  names: readonly StrictName[],
  agent: object = {},
  rest: object = {},
): Promise<Chain> {
  const upstreams: StrictUpstream[] = [];
  const providers: Record<string, object> = {};
  const model: string[] = [];
  let options: { providerOptions?: object } = {};
  for (const [index, name] of names.entries()) {
    const { dialect, use, model: id, thinking } = STRICT[name];
    const upstream = await startStrictUpstream(test, dialect());
    upstreams.push(upstream);
    const connection = { baseURL: upstream.baseURL, apiKey: "test" };
    const settings = use === "openai-compatible" ? connection : { options: connection };
    providers[`up${index}`] = { use, retries: 0, ...settings };
    model.push(`up${index}/${id}`);
    const { providerOptions } = thinking as typeof options;
    options = { ...options, ...thinking, providerOptions: { ...options.providerOptions, ...providerOptions } };
  }
  const manifest = manifestWith({ model, options, ...agent }, { providers, ...rest });
  return { upstreams, service: await startService(test, manifest, { plugins: [FIXTURES], project: PROJECT }) };
}
