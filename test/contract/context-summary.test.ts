/** `memory.NAME.summary`: what a prompt has no room for is summed up after the reply, on every store. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { eventually } from "../support/event-reader.ts";
import { STORES } from "../support/memory-stores.ts";
import { failure, says } from "../support/openai-upstream.ts";
import { dataOf, type Loose, serveUpstream } from "../support/served-upstream.ts";

const AGENT = "/agents/assistant";
const user = (id: string, said: string) => [{ id, role: "user", parts: [{ type: "text", text: said }] }];

for (const store of STORES) {
  const serve = async (t: TestContext, memory: object = {}, provider: object = {}) => {
    const summary = { model: "up/writer", after: 4 };
    const setting = {
      store: await store.url(t),
      memory: { default: { contextLimit: 2, summary, ...memory } },
      provider,
    };
    const { service, upstream } = await serveUpstream(t, { memory: "default" }, setting);
    const written: Loose[] = [];
    const answered: Loose[] = [];
    const writer = { reply: () => says(`summary ${written.length}`) };
    upstream.fallback(({ body, lastUserText }) => {
      const own = body.model === "writer";
      (own ? written : answered).push(body.messages);
      return own ? writer.reply() : says(`answer to ${lastUserText.slice(0, 20)}`);
    });
    const say = (input: unknown, userId = "ada", conversationId = "c") =>
      dataOf(service.post(`${AGENT}/text`, { input, options: { memory: { userId, conversationId } } }));
    return {
      service,
      upstream,
      written,
      writer,
      say,
      system: (): string => answered.at(-1)[0].content,
      /** Waits until that many summaries are written and no run or summary is at work. */
      async summaries(count: number) {
        await eventually(() => written.length >= count, `${count} summaries are written`);
        const status = async () => (await dataOf(service.get(AGENT))).status;
        await eventually(async () => (await status()) === "idle", "the agent is idle");
        assert.equal(written.length, count);
      },
    };
  };
  type Served = Awaited<ReturnType<typeof serve>>;
  const turns = async ({ say }: Served, from: number, to: number) => {
    for (let turn = from; turn <= to; turn++) await say(user(`u${turn}`, `question ${turn}`));
  };

  describe(`memory.summary of POST /agents/:id/text on ${store.name}`, () => {
    test("POST /agents/:id/text sums up what is left out once there is enough of it, and tells it to the model from then on", async (t) => {
      const served = await serve(t);
      await turns(served, 1, 3);
      await served.summaries(0);
      await turns(served, 4, 4);
      await served.summaries(1);
      const [, asked] = served.written[0];
      assert.match(asked.content, /user: question 1\nassistant: answer to question 1\nuser: question 2\nassistant/);
      assert.doesNotMatch(asked.content, /question 3|<summary>/);
      await turns(served, 5, 5);
      assert.match(served.system(), /<summary>\nsummary 1\n<\/summary>/);
      await turns(served, 6, 6);
      await served.summaries(2);
      assert.match(served.written[1][1].content, /<summary>\nsummary 1\n<\/summary>/);
      assert.match(served.written[1][1].content, /question 3[\s\S]*question 4/);
      assert.doesNotMatch(served.written[1][1].content, /question 2|question 5/);
    });

    test("POST /agents/:id/text: what turns leave out while a summary is being written is summed up when it is, and not with a later turn", async (t) => {
      const served = await serve(t);
      let write: (value?: unknown) => void = () => {};
      const after = new Promise((resolve) => {
        write = resolve;
      });
      served.writer.reply = () => ({ ...says(`summary ${served.written.length}`), after });
      await turns(served, 1, 4);
      await eventually(() => served.written.length === 1, "the first summary is asked for");
      await turns(served, 5, 6);
      write();
      await served.summaries(2);
      assert.match(served.written[1][1].content, /<summary>\nsummary 1\n<\/summary>/);
      assert.match(served.written[1][1].content, /question 3[\s\S]*question 4/);
    });

    test("the summary is its conversation's alone, and goes with it", async (t) => {
      const served = await serve(t);
      await turns(served, 1, 4);
      await served.summaries(1);
      await served.say("hello", "bob", "other");
      assert.doesNotMatch(served.system(), /summary 1/);
      const copied = await served.service.post("/api/memory/conversations/c/clone", { newConversationId: "copy" });
      assert.equal(copied.status, 201);
      await served.say("hello", "ada", "copy");
      assert.match(served.system(), /summary 1/);
      const deleted = await fetch(`${served.service.url}/api/memory/conversations/c`, { method: "DELETE" });
      assert.equal(deleted.status, 200);
      await served.say("hello");
      assert.doesNotMatch(served.system(), /summary 1/);
    });

    test("an edit of a message that is summed up takes the summary away with the branch, and is not told of it", async (t) => {
      const served = await serve(t);
      await turns(served, 1, 4);
      await served.summaries(1);
      await served.say(user("u2", "another question"));
      assert.doesNotMatch(served.system(), /summary 1/);
      await served.say("next");
      assert.doesNotMatch(served.system(), /summary 1/);
    });

    test("a new answer to the last message leaves the summary, and a deleted message that is in it does not", async (t) => {
      const served = await serve(t);
      await turns(served, 1, 4);
      await served.summaries(1);
      await served.say(user("u4", "question 4 again"));
      assert.match(served.system(), /summary 1/);
      await served.say("next");
      assert.match(served.system(), /summary 1/);
      const body = { userId: "ada", conversationId: "c", messageIds: ["u1"] };
      await dataOf(served.service.post("/api/memory/messages/delete", body));
      await served.say("more");
      assert.doesNotMatch(served.system(), /summary 1/);
    });

    test("a summary that cannot be written fails no turn, is said in the log, and is made up for later", async (t) => {
      const served = await serve(t);
      served.writer.reply = () => failure(400);
      await turns(served, 1, 4);
      await served.summaries(1);
      assert.ok(served.service.log.some(({ msg }) => /could not be summed up/.test(String(msg))));
      served.writer.reply = () => says("late");
      await turns(served, 5, 5);
      await served.summaries(2);
      await turns(served, 6, 6);
      assert.match(served.system(), /late/);
    });

    for (const [how, cut] of [
      ["the provider cuts off at its limit of tokens", () => says("half of a summ", { finishReason: "length" })],
      ["is longer than summaries may be", () => says(`half ${"of a summary ".repeat(2_000)}`)],
    ] as const)
      test(`a summary that ${how} is asked for once more with a larger limit, and never stored`, async (t) => {
        const served = await serve(t);
        served.writer.reply = () => (served.written.length % 2 === 1 ? cut() : says("the whole"));
        await turns(served, 1, 4);
        await served.summaries(2);
        const limits = served.upstream.requests.flatMap(({ body }) =>
          body.model === "writer" ? [body.max_completion_tokens ?? body.max_tokens] : [],
        );
        assert.ok(limits[1] > limits[0], String(limits));
        await turns(served, 5, 5);
        assert.match(served.system(), /the whole/);
        served.writer.reply = cut;
        await turns(served, 6, 6);
        await served.summaries(4);
        assert.ok(served.service.log.some(({ msg }) => /could not be summed up: .*cut off/.test(String(msg))));
        await turns(served, 7, 7);
        assert.match(served.system(), /the whole/);
        assert.doesNotMatch(JSON.stringify(served.written.slice(2)), /half/);
      });

    test("GET /metrics: tokens of summaries and their cost count for the model that writes them", async (t) => {
      const models = { writer: { prices: { input: 1_000, output: 1_000, asOf: "2026-11-22" } } };
      const served = await serve(t, {}, { models });
      await turns(served, 1, 4);
      await served.summaries(1);
      const metrics = await (await served.service.get("/metrics")).text();
      assert.match(metrics, /^penstock_model_tokens_total\{model="up\/writer",direction="input"\} 10$/m);
      assert.match(metrics, /^penstock_model_cost_usd_total\{model="up\/writer"\} 0\.015$/m);
    });

    test("what memory.NAME.contextTokens leaves out is summed up too", async (t) => {
      const served = await serve(t, { contextLimit: 100, contextTokens: 300 });
      for (const turn of [1, 2, 3, 4, 5, 6]) await served.say(`question ${turn} ${"word ".repeat(80)}`);
      await eventually(() => served.written.length > 0, "a summary is written");
      assert.match(served.written[0][1].content, /question 1/);
    });
  });
}
