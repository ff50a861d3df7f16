/** Our own providers against the suite for all providers. */
import openaiCompatible from "../../../core/models/openai-compatible/openai-compatible.ts";
import scripted from "../../../core/models/scripted/scripted.ts";
import { providerSuite } from "../../suites/provider.suite.ts";
import { calls, failure, says, saysJson, stallsAfter, startOpenAIUpstream } from "../../support/openai-upstream.ts";
import { makeProvider } from "../../support/providers.ts";

providerSuite("scripted", async (test) => ({
  provider: await makeProvider(test, scripted, {
    replies: [{ when: "^add$", call: { tool: "add", input: { a: 1, b: 2 } }, then: "the sum is {{ result.sum }}" }],
    models: { slow: { chunks: 5, delay: "60s" }, broken: { replies: [{ error: "refused the request" }] } },
  }),
  echo: "echo",
  json: "echo",
  slow: "slow",
  broken: "broken",
}));

providerSuite("openai-compatible", async (test) => {
  const upstream = await startOpenAIUpstream();
  test.after(() => upstream.close());
  upstream.fallback((request) => {
    if (request.body.model === "slow") return stallsAfter("word");
    if (request.body.model === "broken") return failure(400);
    if (request.body.response_format?.type === "json_schema") return saysJson({ answer: "yes" }, { chunks: 4 });
    if (request.toolOutputs.length > 0) return says(`the sum is ${JSON.parse(request.toolOutputs[0]!).sum}`);
    if (request.lastUserText === "add") return calls([{ name: "add", input: { a: 1, b: 2 } }]);
    return says(request.lastUserText, { chunks: 3 });
  });
  const provider = await makeProvider(test, openaiCompatible, { baseURL: upstream.baseURL });
  return { provider, echo: "gpt-test", json: "gpt-test", slow: "slow", broken: "broken" };
});
