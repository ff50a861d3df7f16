/** The real `ai` clients 5, 6 and 7 edit what was said and have answers made again: what the client shows is what is stored. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { failure, says } from "../support/openai-upstream.ts";
import { dataOf, type Loose, serveUpstream } from "../support/served-upstream.ts";
import { chatOf, load } from "./chat.ts";

const text = ({ content, parts = content }: Loose) =>
  typeof parts === "string" ? parts : parts.flatMap((part: Loose) => part.text ?? []).join("");
const lines = (messages: Loose[]) => messages.map((message) => `${message.role}: ${text(message)}`);

async function serve(t: TestContext, client: Parameters<typeof load>[0]) {
  const setting = { store: "sqlite:data/test.db", memory: { default: {} } };
  const { service, upstream } = await serveUpstream(t, { memory: "default" }, setting);
  const posted: Loose[] = [];
  const chat = chatOf(await load(client), `${service.url}/agents/assistant/chat`, posted);
  return {
    service,
    upstream,
    chat,
    stored: async (): Promise<Loose[]> =>
      (await dataOf(service.get(`/api/memory/conversations/${posted[0].id}/messages`))).messages,
    told: () => lines(upstream.requests.at(-1)!.body.messages.filter(({ role }: Loose) => role !== "system")),
  };
}

for (const client of ["ai-5", "ai", "ai-7"] as const) {
  describe(`the client ${client}`, () => {
    test("POST /agents/:id/chat: a walk of edits and new answers leaves in the conversation what the client shows", async (t) => {
      const { chat, upstream, stored, told } = await serve(t, client);
      /** Ids and texts are the client's, and the model was told these and nothing else. */
      const agrees = async (expected: string[]) => {
        assert.equal(chat.error, undefined);
        assert.deepEqual(lines(chat.messages), expected);
        assert.deepEqual(told(), expected.slice(0, -1));
        const messages = await stored();
        assert.deepEqual(lines(messages), expected);
        assert.deepEqual(
          messages.map(({ id }) => id),
          chat.messages.map(({ id }) => id),
        );
      };
      upstream.replies(...["A1", "A2", "A3", "B2", "C2", "C3", "D1", "D2", "E2"].map((answer) => says(answer)));
      for (const turn of [1, 2, 3]) await chat.sendMessage({ text: `Q${turn}` });
      await agrees(["user: Q1", "assistant: A1", "user: Q2", "assistant: A2", "user: Q3", "assistant: A3"]);

      await chat.sendMessage({ text: "Q2 edited", messageId: chat.messages[2].id });
      await agrees(["user: Q1", "assistant: A1", "user: Q2 edited", "assistant: B2"]);

      await chat.regenerate();
      await agrees(["user: Q1", "assistant: A1", "user: Q2 edited", "assistant: C2"]);
      await chat.sendMessage({ text: "Q3" });

      await chat.regenerate({ messageId: chat.messages[1].id });
      await agrees(["user: Q1", "assistant: D1"]);
      await chat.sendMessage({ text: "Q2 again" });
      await agrees(["user: Q1", "assistant: D1", "user: Q2 again", "assistant: D2"]);

      await chat.regenerate({ messageId: chat.messages[2].id });
      await agrees(["user: Q1", "assistant: D1", "user: Q2 again", "assistant: E2"]);
    });

    test("POST /agents/:id/chat: an edit that fails leaves the stored conversation, and once it succeeds it takes its place", async (t) => {
      const { chat, upstream, stored } = await serve(t, client);
      upstream.replies(says("A1"), says("A2"), failure(400), says("B1"));
      await chat.sendMessage({ text: "Q1" });
      await chat.sendMessage({ text: "Q2" });
      const before = await stored();
      await chat.sendMessage({ text: "Q1 edited", messageId: chat.messages[0].id });
      assert.equal(chat.status, "error");
      assert.deepEqual(await stored(), before);
      await chat.regenerate();
      assert.equal(chat.status, "ready");
      assert.deepEqual(lines(await stored()), ["user: Q1 edited", "assistant: B1"]);
    });
  });
}
