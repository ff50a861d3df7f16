/** Tools that the client runs: the real `ai` clients 5, 6 and 7 answer calls of `POST /agents/:id/chat`, and it goes on. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { FIXTURES } from "../support/fixtures.ts";
import { calls, says } from "../support/openai-upstream.ts";
import { dataOf, type Loose, serveUpstream } from "../support/served-upstream.ts";
import { chatOf, load } from "./chat.ts";

const PARAMETERS = { type: "object", properties: { question: { type: "string" } }, required: ["question"] };
const TOOLS = { sum: { use: "add" }, confirm: { client: true, description: "Asks the user", parameters: PARAMETERS } };
const CHAT = "/agents/assistant/chat";
const ASKS = { id: "c1", name: "confirm", input: { question: "Really?" } };
const SUMS = { id: "c2", name: "sum", input: { a: 1, b: 2 } };

async function serve(t: TestContext, agent: object = {}) {
  const rest = { tools: TOOLS, memory: { chats: {} } };
  const served = await serveUpstream(t, { tools: Object.keys(TOOLS), ...agent }, rest, { plugins: [FIXTURES] });
  const messages = async (conversation: string): Promise<Loose[]> => {
    const path = `/api/memory/conversations/${conversation}/messages?agentId=assistant`;
    return (await dataOf(served.service.get(path))).messages;
  };
  return { ...served, messages };
}

/** Waits until the hook has sent what it sends by itself. */
async function settled(chat: Loose, messages: () => boolean) {
  for (let tries = 0; tries < 6_000 && !(messages() && chat.status === "ready"); tries++)
    await new Promise((resolve) => setTimeout(resolve, 10));
  assert.equal(chat.error, undefined);
  assert.equal(chat.status, "ready");
}

for (const name of ["ai-5", "ai", "ai-7"] as const) {
  describe(`the client ${name}`, async () => {
    const ai: Loose = await load(name);
    const sendAutomaticallyWhen = ai.lastAssistantMessageIsCompleteWithToolCalls;
    const toolParts = (message: Loose) => message.parts.filter(({ type }: Loose) => type.startsWith("tool-"));

    test("POST /agents/:id/chat ends with the call of a client-side tool, and goes on in the same message once the client has answered", async (t) => {
      const { service, upstream } = await serve(t);
      upstream.replies(calls([ASKS]), says("Done."));
      const posted: Loose[] = [];
      const chat = chatOf(ai, service.url + CHAT, posted, { sendAutomaticallyWhen });
      await chat.sendMessage({ text: "Delete it" });
      assert.equal(chat.error, undefined);
      assert.equal(upstream.requests.length, 1, "the model waits for the client");
      const [part] = toolParts(chat.messages[1]);
      assert.deepEqual([part.type, part.state, part.input], ["tool-confirm", "input-available", ASKS.input]);

      await chat.addToolOutput({ tool: "confirm", toolCallId: "c1", output: { ok: true } });
      await settled(chat, () => posted.length === 2);
      assert.equal(chat.messages.length, 2);
      assert.equal(chat.messages[1].parts.at(-1).text, "Done.");
      assert.deepEqual(upstream.requests[1]!.body.messages.slice(-2), [
        {
          role: "assistant",
          content: null,
          tool_calls: [
            { id: "c1", type: "function", function: { name: "confirm", arguments: '{"question":"Really?"}' } },
          ],
        },
        { role: "tool", tool_call_id: "c1", content: '{"ok":true}' },
      ]);
      assert.equal(posted.length, 2);
    });

    test("POST /agents/:id/chat runs its own calls of the step before the client answers the others", async (t) => {
      const { service, upstream } = await serve(t);
      upstream.replies(calls([ASKS, SUMS]), says("Done."));
      const posted: Loose[] = [];
      const chat = chatOf(ai, service.url + CHAT, posted, { sendAutomaticallyWhen });
      await chat.sendMessage({ text: "Add and ask" });
      const states = toolParts(chat.messages[1]).map(({ toolCallId, state, output }: Loose) => [
        toolCallId,
        state,
        output,
      ]);
      assert.deepEqual(states, [
        ["c1", "input-available", undefined],
        ["c2", "output-available", { sum: 3 }],
      ]);
      await chat.addToolOutput({ tool: "confirm", toolCallId: "c1", output: "yes" });
      await settled(chat, () => posted.length === 2);
      const answers = upstream.requests[1]!.body.messages.slice(-2);
      assert.deepEqual(
        answers.map(({ tool_call_id, content }: Loose) => [tool_call_id, content]),
        [
          ["c1", "yes"],
          ["c2", '{"sum":3}'],
        ],
      );
    });

    test("POST /agents/:id/chat with a memory stores the open call, and completes the same message with what follows", async (t) => {
      const { service, upstream, messages } = await serve(t, { memory: "chats" });
      upstream.replies(calls([ASKS]), says("Done."));
      const posted: Loose[] = [];
      const chat = chatOf(ai, service.url + CHAT, posted, { sendAutomaticallyWhen });
      await chat.sendMessage({ text: "Delete it" });
      const conversation = posted[0].id;
      const [, open, ...none] = await messages(conversation);
      assert.deepEqual(none, []);
      assert.deepEqual([toolParts(open)[0].state, toolParts(open)[0].input], ["input-available", ASKS.input]);

      await chat.addToolOutput({ tool: "confirm", toolCallId: "c1", output: { ok: true } });
      await settled(chat, () => posted.length === 2);
      const stored = await messages(conversation);
      assert.deepEqual(
        stored.map(({ role }) => role),
        ["user", "assistant"],
      );
      assert.equal(stored[1].id, open.id);
      assert.deepEqual(
        [toolParts(stored[1])[0].state, toolParts(stored[1])[0].output],
        ["output-available", { ok: true }],
      );
      assert.equal(stored[1].parts.at(-1).text, "Done.");
      assert.deepEqual(
        upstream.requests[1]!.body.messages.map(({ role }: Loose) => role),
        ["system", "user", "assistant", "tool"],
      );
    });

    test("POST /agents/:id/chat: a walk of edits, new answers and new messages around calls of a client-side tool leaves what the client shows", async (t) => {
      const { service, upstream, messages } = await serve(t, { memory: "chats" });
      const posted: Loose[] = [];
      const chat: Loose = chatOf(ai, service.url + CHAT, posted, { sendAutomaticallyWhen });
      const agrees = async (told: string[]) => {
        assert.equal(chat.error, undefined);
        const shown = (list: Loose[]) =>
          list.map(({ id, parts }) => [id, parts.map(({ state, text, output }: Loose) => [state, text, output])]);
        assert.deepEqual(shown(await messages(posted[0].id)), shown(chat.messages));
        const roles = upstream.requests.at(-1)!.body.messages.map(({ role, content }: Loose) => `${role}: ${content}`);
        assert.deepEqual(roles.slice(1), told);
      };
      const answers = async (toolCallId: string) => {
        const before = posted.length;
        await chat.addToolOutput({ tool: "confirm", toolCallId, output: `yes to ${toolCallId}` });
        await settled(chat, () => posted.length > before);
      };
      const asks = (id: string) => calls([{ ...ASKS, id }]);

      upstream.replies(asks("c1"));
      await chat.sendMessage({ text: "Q1" });
      upstream.replies(asks("c2"));
      await chat.sendMessage({ text: "Q1 edited", messageId: chat.messages[0].id });
      await agrees(["user: Q1 edited"]);

      upstream.replies(says("A1"));
      await answers("c2");
      await agrees(["user: Q1 edited", "assistant: null", "tool: yes to c2"]);

      upstream.replies(asks("c3"));
      await chat.regenerate();
      await agrees(["user: Q1 edited"]);

      upstream.replies(says("A2"));
      await chat.sendMessage({ text: "Q2" });
      const left = ["user: Q1 edited", "assistant: null", "tool: The call was not completed.", "user: Q2"];
      await agrees(left);

      upstream.replies(asks("c4"), asks("c5"), says("A3"));
      await chat.sendMessage({ text: "Q3" });
      await answers("c4");
      await answers("c5");
      const third = ["user: Q3", "assistant: null", "tool: yes to c4", "assistant: null", "tool: yes to c5"];
      await agrees([...left, "assistant: A2", ...third]);
    });

    test("POST /agents/:id/chat stores a result that the client has beside its next message", async (t) => {
      const { service, upstream, messages } = await serve(t, { memory: "chats" });
      upstream.replies(calls([ASKS, { ...ASKS, id: "c2" }]), says("Done."));
      const posted: Loose[] = [];
      const chat: Loose = chatOf(ai, service.url + CHAT, posted);
      await chat.sendMessage({ text: "Delete it" });
      await chat.addToolOutput({ tool: "confirm", toolCallId: "c1", output: "yes" });
      await chat.sendMessage({ text: "Go on" });
      assert.equal(chat.error, undefined);
      const outcomes = (list: Loose[]) =>
        toolParts(list[1]).map(({ toolCallId, state, output }: Loose) => [toolCallId, state, output]);
      const expected = [
        ["c1", "output-available", "yes"],
        ["c2", "input-available", undefined],
      ];
      assert.deepEqual(outcomes(chat.messages), expected);
      const stored = await messages(posted[0].id);
      assert.deepEqual(outcomes(stored), expected);
      assert.deepEqual(
        stored.map(({ id }) => id),
        chat.messages.map(({ id }: Loose) => id),
      );
    });
  });
}
