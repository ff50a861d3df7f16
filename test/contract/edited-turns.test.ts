/** Earlier messages that are edited, answers that are made again, and turns that fail: what is stored and what the model reads, on every store. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { EventReader, eventually } from "../support/event-reader.ts";
import { STORES } from "../support/memory-stores.ts";
import { calls, failsAfter, failure, says, stallsAfter } from "../support/openai-upstream.ts";
import { dataOf, type Loose, serveUpstream } from "../support/served-upstream.ts";
import { parseEvents } from "../support/service.ts";

const AGENT = "/agents/assistant";
const text = (message: Loose) =>
  typeof message.content === "string"
    ? message.content
    : (message.parts ?? message.content).flatMap((part: Loose) => part.text ?? []).join("");
const user = (id: string, said: string) => ({ id, role: "user", parts: [{ type: "text", text: said }] });
const options = (rest: object = {}) => ({ memory: { userId: "ada", conversationId: "c", options: rest } });

for (const store of STORES) {
  const serve = async (t: TestContext, memory: object = {}) => {
    const setting = { store: await store.url(t), memory: { default: memory }, tools: { add: { use: "add" } } };
    const { service, upstream } = await serveUpstream(t, { memory: "default", tools: ["add"] }, setting);
    const stored = async (): Promise<Loose[]> =>
      (await dataOf(service.get("/api/memory/conversations/c/messages"))).messages;
    return {
      service,
      upstream,
      stored,
      lines: async () => (await stored()).map((message) => `${message.role}: ${text(message)}`),
      /** What the model was told with the last request, without the instructions. */
      told: () =>
        upstream.requests
          .at(-1)!
          .body.messages.filter(({ role }: Loose) => role !== "system")
          .map(text),
      say: (input: unknown, rest: object = {}) =>
        dataOf(service.post(`${AGENT}/text`, { input, options: options(rest) })),
      async chat(messages: object[], rest: object = {}): Promise<Loose> {
        const reply = await service.post(`${AGENT}/chat`, { id: "c", messages, options: { userId: "ada" }, ...rest });
        const sent = parseEvents(await reply.text()).filter(({ data }) => data !== "[DONE]");
        const { messageId } = JSON.parse(sent[0]!.data);
        return { id: messageId, role: "assistant", parts: [{ type: "text", text: "kept by the hook" }] };
      },
    };
  };
  type Served = Awaited<ReturnType<typeof serve>>;
  /** Three turns as a hook has them. */
  const threeTurns = async ({ chat, upstream }: Served) => {
    upstream.replies(says("A1"), says("A2"), says("A3"));
    const messages: Loose[] = [];
    for (const turn of [1, 2, 3]) {
      messages.push(user(`u${turn}`, `question ${turn}`));
      messages.push(await chat(messages, { trigger: "submit-message" }));
    }
    return messages;
  };

  describe(`POST /agents/:id/chat with edited messages on ${store.name}`, () => {
    test("POST /agents/:id/chat with an earlier message's id and a new text takes the place of that message and of all after it", async (t) => {
      const served = await serve(t);
      const messages = await threeTurns(served);
      served.upstream.replies(says("B2"), says("B3"));
      const edited = [...messages.slice(0, 2), user("u2", "another question")];
      const answer = await served.chat(edited, { trigger: "submit-message", messageId: "u2" });
      assert.deepEqual(served.told(), ["question 1", "kept by the hook", "another question"]);
      assert.deepEqual(await served.lines(), [
        "user: question 1",
        "assistant: A1",
        "user: another question",
        "assistant: B2",
      ]);
      assert.equal((await served.stored()).at(-1).id, answer.id);
      await served.say("and then?");
      assert.deepEqual(served.told(), ["question 1", "A1", "another question", "B2", "and then?"]);
    });

    test("POST /agents/:id/chat makes any earlier answer again, and what came after it is gone", async (t) => {
      const served = await serve(t);
      const messages = await threeTurns(served);
      served.upstream.replies(says("B1"));
      const body = { trigger: "regenerate-message", messageId: messages[1].id };
      const { id } = await served.chat(messages.slice(0, 1), body);
      assert.deepEqual(served.told(), ["question 1"]);
      assert.deepEqual(await served.lines(), ["user: question 1", "assistant: B1"]);
      assert.equal((await served.stored())[1].id, id);
    });

    test("POST /agents/:id/chat reads a list that goes beyond its messageId up to there", async (t) => {
      const served = await serve(t);
      const messages = await threeTurns(served);
      served.upstream.replies(says("B2"), says("C2"));
      await served.chat(messages.slice(0, 4), { trigger: "regenerate-message", messageId: messages[3].id });
      assert.deepEqual(served.told(), ["question 1", "kept by the hook", "question 2"]);
      await served.chat(messages, { trigger: "regenerate-message", messageId: "u2" });
      assert.deepEqual(served.told(), ["question 1", "kept by the hook", "question 2"]);
      assert.equal((await served.lines()).join(), "user: question 1,assistant: A1,user: question 2,assistant: C2");
    });

    test("POST /agents/:id/chat with a new message after an earlier answer drops what the client has dropped", async (t) => {
      const served = await serve(t);
      const messages = await threeTurns(served);
      served.upstream.replies(says("B2"));
      await served.chat([...messages.slice(0, 2), user("u9", "something else")]);
      assert.equal((await served.lines()).join(), "user: question 1,assistant: A1,user: something else,assistant: B2");
    });

    test("POST /agents/:id/text keeps the answers of a client that has them under ids of its own, once each", async (t) => {
      const served = await serve(t);
      served.upstream.replies(says("A1"), says("A2"), says("A3"));
      const messages: Loose[] = [];
      for (const turn of [1, 2, 3]) {
        messages.push(user(`u${turn}`, `question ${turn}`));
        const { text: answer } = await served.say(messages);
        messages.push({ id: `mine${turn}`, role: "assistant", parts: [{ type: "text", text: answer }] });
      }
      assert.deepEqual(served.told(), ["question 1", "A1", "question 2", "A2", "question 3"]);
      const lines = messages.map((message) => `${message.role}: ${text(message)}`);
      assert.deepEqual(await served.lines(), lines);
    });

    test("POST /agents/:id/chat after an edit that broke off stores what the client shows: the edited message and the half answer", async (t) => {
      const served = await serve(t);
      const messages = await threeTurns(served);
      served.upstream.replies(failsAfter("Half an"), says("Whole"));
      const edited = [...messages.slice(0, 2), user("u2", "edited")];
      const half = await served.chat(edited, { trigger: "submit-message", messageId: "u2" });
      half.parts = [{ type: "text", text: "Half an" }];
      await served.chat([...edited, half, user("u9", "go on")]);
      const lines = ["user: question 1", "assistant: A1", "user: edited", "assistant: Half an"];
      assert.deepEqual(await served.lines(), [...lines, "user: go on", "assistant: Whole"]);
    });

    test("POST /agents/:id/text with the id of a message far back is told what was said before it and nothing after", async (t) => {
      const served = await serve(t, { contextLimit: 2 });
      for (const turn of [1, 2, 3, 4, 5, 6]) {
        served.upstream.replies(says(`A${turn}`));
        await served.say([user(`u${turn}`, `question ${turn}`)]);
      }
      served.upstream.replies(says("B3"));
      await served.say([user("u3", "third again")]);
      assert.deepEqual(served.told(), ["question 2", "A2", "third again"]);
      const lines = ["user: question 1", "assistant: A1", "user: question 2", "assistant: A2"];
      assert.deepEqual(await served.lines(), [...lines, "user: third again", "assistant: B3"]);
      served.upstream.replies(says("C1"));
      await served.say([user("u1", "first again")], { contextLimit: 0 });
      assert.deepEqual(await served.lines(), ["user: first again", "assistant: C1"]);
    });

    test("a discarded branch is not found by its meaning, neither by the run that discards it nor later", async (t) => {
      const served = await serve(t, { semantic: { embedding: "local/hash", threshold: 0.3 }, contextLimit: 2 });
      served.upstream.replies(says("Good"), says("I like the ferry to Lisbon too"), says("Well"));
      await served.say([user("u1", "Hello there")]);
      await served.say([user("u2", "The ferry to Lisbon leaves at noon")]);
      await served.say([user("u3", "It rains")]);
      const search = async () =>
        dataOf(served.service.get("/api/memory/search?searchQuery=ferry%20to%20Lisbon&userId=ada"));
      await eventually(async () => (await search()).count === 2, "the messages are indexed");
      served.upstream.replies(says("Yes"));
      await served.say([user("u1", "Is there a ferry to Lisbon?")]);
      assert.deepEqual(served.told(), ["Is there a ferry to Lisbon?"]);
      const found = (await search()).results.map(({ message }: Loose) => text(message));
      assert.deepEqual(
        found.filter((line: string) => line !== "Is there a ferry to Lisbon?"),
        [],
      );
    });

    test("POST /agents/:id/text with a client's own history, without ids, is not told the stored one beside it", async (t) => {
      const served = await serve(t, { semantic: { embedding: "local/hash", threshold: 0.1 } });
      served.upstream.replies(says("Hello Ada"), says("Fine"), says("Bye"));
      const said = (role: string, content: string) => ({ role, content });
      await served.say([said("user", "I am Ada")]);
      const history = [said("user", "I am Ada"), said("assistant", "Hello Ada"), said("user", "How are you, Ada?")];
      await served.say(history);
      assert.deepEqual(
        served.told(),
        history.map(({ content }) => content),
      );
      const lines = ["user: I am Ada", "assistant: Hello Ada", "user: How are you, Ada?", "assistant: Fine"];
      assert.deepEqual(await served.lines(), lines);
      await served.say([said("user", "Bye")]);
      assert.equal(served.told().length, 5, "a turn alone is told what is stored");
    });

    test("a turn that is sent again under the id of its message has one answer, one after the other and at once", async (t) => {
      const served = await serve(t);
      await served.say([user("u1", "Hello")]);
      await served.say([user("u1", "Hello")]);
      assert.deepEqual(await served.lines(), ["user: Hello", "assistant: Hello"]);
      await Promise.all([1, 2, 3, 4, 5].map(() => served.say([user("u2", "How are you?")])));
      const lines = ["user: Hello", "assistant: Hello", "user: How are you?", "assistant: How are you?"];
      assert.deepEqual(await served.lines(), lines);
    });

    test("turns at once with messages of their own remove nothing of each other", async (t) => {
      const served = await serve(t);
      await served.say([user("u0", "first")]);
      const inputs = [1, 2, 3, 4, 5, 6].map((turn) => user(`u${turn}`, `question ${turn}`));
      await Promise.all(inputs.map((message) => served.say([message])));
      assert.equal((await served.stored()).length, 14);
    });

    test("a turn that fails before it says anything stores nothing, so that no message of the user stays without an answer", async (t) => {
      const served = await serve(t);
      served.upstream.replies(says("A1"), failure(400), says("A3"));
      await served.say("one");
      const failed = await served.service.post(`${AGENT}/text`, { input: "two", options: options() });
      assert.equal(failed.status, 500);
      assert.deepEqual(await served.lines(), ["user: one", "assistant: A1"]);
      await served.say("three");
      assert.deepEqual(served.told(), ["one", "A1", "three"]);
    });

    test("an edit or a new answer that fails leaves the conversation as it was", async (t) => {
      const served = await serve(t);
      const messages = await threeTurns(served);
      const before = await served.stored();
      const edit = { trigger: "submit-message", messageId: "u1" };
      served.upstream.replies(failure(400), failsAfter("Half an"));
      await served.chat([user("u1", "new")], edit).catch(() => undefined);
      assert.deepEqual(await served.stored(), before);
      await served.chat([user("u1", "new")], edit);
      assert.deepEqual(await served.stored(), before);
      served.upstream.replies(calls([{ name: "add", input: { a: 1, b: 2 } }]), failure(400));
      await served.chat(messages.slice(0, 3), { trigger: "regenerate-message", messageId: messages[3].id });
      assert.deepEqual(await served.stored(), before, "a checkpoint after a tool's result changes nothing either");
    });

    test("a new answer that the client stops takes the place of the old one with what it had said", async (t) => {
      const served = await serve(t);
      const messages = await threeTurns(served);
      served.upstream.replies(stallsAfter("So far"));
      const body = {
        id: "c",
        messages: messages.slice(0, 3),
        options: { userId: "ada" },
        trigger: "regenerate-message",
      };
      const reader = new EventReader(`${served.service.url}${AGENT}/chat`, body);
      await reader.until(() => reader.text.includes("So far"));
      reader.leave();
      const lines = ["user: question 1", "assistant: A1", "user: question 2", "assistant: So far"];
      await eventually(async () => (await served.lines()).join() === lines.join(), "the new branch is stored");
    });
  });
}
