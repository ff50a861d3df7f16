/** What a turn takes from a request, and how cut-off conversations are made fit for a model. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { LanguageModelV3Message } from "@ai-sdk/provider";
import { parseTurnInput } from "../../../core/agents/conversation/turn-input.ts";
import { repairPrompt } from "../../../core/agents/prompt/repair.ts";

const text = (words: string) => [{ type: "text" as const, text: words }];
const user = (words: string): LanguageModelV3Message => ({ role: "user", content: text(words) });
const call = (id: string) => ({ type: "tool-call" as const, toolCallId: id, toolName: "add", input: {} });
const answer = (id: string) => ({
  type: "tool-result" as const,
  toolCallId: id,
  toolName: "add",
  output: { type: "text" as const, value: "3" },
});

test("a string is the user's message and the title, cut to 80 characters but never within one", () => {
  const { user: message, title } = parseTurnInput(`  ${"x".repeat(79)}\u{1F600} more`);
  assert.equal(title, "x".repeat(79));
  assert.equal(message!.role, "user");
  assert.equal(parseTurnInput("Hello\n  world").title, "Hello world");
});

test("what the user said since the assistant spoke is one message; title and text are of the first and last", () => {
  const input = parseTurnInput([
    { role: "user", content: "first" },
    { role: "assistant", content: "well" },
    { id: "u2", role: "user", parts: text("second"), metadata: { from: "web" } },
    { id: "u3", role: "user", parts: text("third") },
  ]);
  assert.deepEqual(input.user, { id: "u3", role: "user", parts: [...text("second"), ...text("third")] });
  assert.equal(input.title, "first");
  assert.equal(input.text, "third");
  assert.deepEqual([...input.messageIds], ["u2", "u3"]);
});

test("an answer that goes on with the assistant's last message begins with its parts", () => {
  const parts = [{ type: "tool-ask", toolCallId: "1", state: "output-available", input: {}, output: 1 }];
  const input = parseTurnInput([
    { id: "u1", role: "user", parts: text("go") },
    { id: "a1", role: "assistant", parts },
  ]);
  assert.deepEqual(input.continued, { id: "a1", parts });
  assert.equal(input.user!.id, "u1");
  assert.equal(
    parseTurnInput([
      { role: "user", content: "go" },
      { role: "assistant", content: "on" },
    ]).user,
    null,
  );
});

test("a call whose answer was cut off gets one, and an answer without its call is left out", () => {
  const prompt = repairPrompt([
    { role: "tool", content: [answer("lost")] },
    user("one"),
    { role: "assistant", content: [call("a"), call("b")] },
    { role: "tool", content: [answer("a")] },
    user("two"),
    { role: "assistant", content: [call("c")] },
  ]);
  assert.deepEqual(
    prompt.map((message) => [
      message.role,
      ...(typeof message.content === "string" ? [] : message.content).flatMap((part) =>
        "toolCallId" in part ? [part.toolCallId] : [],
      ),
    ]),
    [["user"], ["assistant", "a", "b"], ["tool", "a", "b"], ["user"], ["assistant", "c"], ["tool", "c"]],
  );
});

test("a conversation that is whole is told as it is", () => {
  const whole: LanguageModelV3Message[] = [
    user("one"),
    { role: "assistant", content: [call("a")] },
    { role: "tool", content: [answer("a")] },
    { role: "assistant", content: text("done") },
  ];
  assert.deepEqual(repairPrompt(whole), whole);
});
