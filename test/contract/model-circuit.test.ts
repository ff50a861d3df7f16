/** What opens a model's circuit breaker for everybody: that the model is not there, never what one user's questions get from it. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { cutsAfter, failsAfter, failure, type Reply, says, startOpenAIUpstream } from "../support/openai-upstream.ts";
import { startService } from "../support/service.ts";

const raw = (text: string): Reply => ({ steps: [{ raw: text }] });

/** Answers that a question can provoke. */
const BAD: Record<string, Reply> = {
  "400": failure(400),
  "404": failure(404),
  "409": failure(409),
  "422": failure(422),
  "425": failure(425),
  "a 429 of a request that alone is too much": failure(429, { message: "Request too large for m on tokens per min" }),
  "an event that is no JSON": raw("data: {oops\n\n"),
  "an event that is no object": raw("data: [1]\n\n"),
  "an answer without its end": { steps: [{ text: "half" }] },
  "a JSON body that is no completion": { json: { ok: true } },
  "a page with status 200": { status: 200, page: "<html>hello</html>" },
  "a body that is not compressed as its header says": { headers: { "content-encoding": "gzip" }, json: { a: 1 } },
  "a tool call without a name": { steps: [{ call: { index: 0, id: "c", arguments: "{}" } }, { finish: "tool_calls" }] },
  "an error event about the content": failsAfter("", { message: "filtered", code: "content_filter" }),
  "an error event about the request": failsAfter("so", { message: "no", type: "invalid_request_error" }),
  "an error event that says nothing": failsAfter("so", { message: "no" }),
};

/** Answers of a model that is not there, or wants to be left alone. */
const ABSENT: Record<string, Reply> = {
  "500": failure(500),
  "503": failure(503),
  "429": failure(429),
  "a connection that breaks": cutsAfter(""),
  "a connection that breaks within the answer": cutsAfter("half"),
  "an error event about the server": failsAfter("so", { message: "no", type: "server_error" }),
  "an error event of a rate limit": failsAfter("", { message: "no", code: "rate_limit_exceeded" }),
};

const ALL = Object.entries({ ...BAD, ...ABSENT });
const PROVIDERS = ["up", "package"];
const indexOf = (reply: string) => ALL.findIndex(([title]) => title === reply);

const upstream = await startOpenAIUpstream();
after(() => upstream.close());
const { baseURL } = upstream;
const providers = {
  up: { use: "openai-compatible", baseURL, retries: 0 },
  package: {
    use: "@ai-sdk/openai-compatible",
    retries: 0,
    options: { name: "package", baseURL, apiKey: "x" },
  },
};
const agents = PROVIDERS.flatMap((provider) =>
  ALL.flatMap((_, index) => [
    [`${provider}-${index}`, { instructions: "x", model: `${provider}/${index}` }],
    [`${provider}-${index}-chain`, { instructions: "x", model: [`${provider}/${index}`, "up/other"] }],
  ]),
);
const service = await startService({ after }, { agents: Object.fromEntries(agents), providers });
upstream.fallback(({ body, lastUserText }) =>
  lastUserText === "bad" && body.model !== "other" ? ALL[Number(body.model)]![1] : says(`${body.model} says`),
);

const ask = (agent: string, input: string) => service.post(`/agents/${agent}/text`, { input });
const lines = (model: string) => service.log.filter((line) => line.model === model && line.circuit === "open");

for (const provider of PROVIDERS) {
  for (const title of Object.keys(BAD))
    test(`POST /agents/:id/text (${provider}): six times ${title} fail for who provokes them, and the next user is answered`, async () => {
      const agent = `${provider}-${indexOf(title)}`;
      for (let count = 0; count < 6; count++) {
        const { status } = await ask(agent, "bad");
        assert.ok(status === 429 || status === 500, `status ${status}`);
      }
      const answer = await ask(agent, "good");
      assert.equal(answer.status, 200);
      assert.deepEqual(lines(`${provider}/${indexOf(title)}`), []);
    });

  for (const title of Object.keys(ABSENT))
    test(`POST /agents/:id/text (${provider}): six times ${title} open the model's circuit, and the next request is 503 with Retry-After`, async () => {
      const agent = `${provider}-${indexOf(title)}`;
      for (let count = 0; count < 6; count++) await ask(agent, "bad");
      const answer = await ask(agent, "good");
      assert.equal(answer.status, 503);
      assert.ok(Number(answer.headers.get("retry-after")) >= 1);
      assert.equal(lines(`${provider}/${indexOf(title)}`).length, 1);
    });

  for (const [title] of Object.entries(BAD).filter(([, { steps }]) => !steps?.some((step) => "text" in step)))
    test(`POST /agents/:id/text (${provider}): after ${title} the next model of the chain answers`, async () => {
      const answer = await ask(`${provider}-${indexOf(title)}-chain`, "bad");
      assert.equal(answer.status, 200);
      assert.equal(((await answer.json()) as { data: { text: string } }).data.text, "other says");
    });
}
