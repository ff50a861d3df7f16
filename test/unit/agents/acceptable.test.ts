/** Prompts that no provider would take as they come, and what is sent in their place. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { LanguageModelV3Message, LanguageModelV3ToolCallPart } from "@ai-sdk/provider";
import { acceptable, tidy } from "../../../core/agents/prompt/acceptable.ts";
import { superlinear } from "../../support/growth.ts";

type Message = LanguageModelV3Message;

const text = (words: string) => ({ type: "text" as const, text: words });
const user = (words: string): Message => ({ role: "user", content: [text(words)] });
const call = (toolCallId: string, more: Partial<LanguageModelV3ToolCallPart> = {}) => ({
  type: "tool-call" as const,
  toolCallId,
  toolName: "add",
  input: {},
  ...more,
});
const answer = (toolCallId: string, value = "3") => ({
  type: "tool-result" as const,
  toolCallId,
  toolName: "add",
  output: { type: "text" as const, value },
});
const asked = (...ids: string[]): Message => ({ role: "assistant", content: ids.map((id) => call(id)) });
const told = (...results: ReturnType<typeof answer>[]): Message => ({ role: "tool", content: results });

/** Each message as its role, and its calls and results as their id and, of a result, what it says. */
const outline = (prompt: readonly Message[]) =>
  prompt.map(({ role, content }) => [
    role,
    ...(typeof content === "string" ? [content] : content).map((part) => {
      if (typeof part === "string") return part;
      if (part.type === "tool-call") return part.toolCallId;
      if (part.type !== "tool-result") return part.type === "text" ? part.text : part.type;
      return `${part.toolCallId}=${"value" in part.output ? part.output.value : part.output.type}`;
    }),
  ]);

test("a prompt in which every call has its result is the same prompt, with the same messages and parts", () => {
  const whole: Message[] = [
    { role: "system", content: "Help." },
    user("one"),
    { role: "assistant", content: [call("a"), call("b")] },
    told(answer("b"), answer("a")),
    { role: "assistant", content: [text("done")] },
    user("two"),
  ];
  const parts = whole.map(({ content }) => [...content]);
  assert.equal(acceptable(whole), whole);
  for (const [index, { content }] of whole.entries())
    for (const [at, part] of [...content].entries()) assert.equal(part, parts[index]![at]);
});

test("a call without a result gets one that says so, and a result without its call is left out", () => {
  const prompt = acceptable([
    told(answer("lost")),
    user("one"),
    asked("a", "b"),
    told(answer("a")),
    user("two"),
    asked("c"),
  ]);
  const open = "The call was not completed.";
  assert.deepEqual(outline(prompt), [
    ["user", "one"],
    ["assistant", "a", "b"],
    ["tool", "a=3", `b=${open}`],
    ["user", "two"],
    ["assistant", "c"],
    ["tool", `c=${open}`],
  ]);
});

test("results stand behind their calls in one message, wherever they were: after a message of the user, before the call, one by one, in the answer", () => {
  const prompt = acceptable([
    told(answer("d", "early")),
    user("one"),
    asked("a", "b"),
    told(answer("b", "second")),
    user("hurry"),
    told(answer("a", "first")),
    { role: "assistant", content: [call("c"), answer("c", "inside"), text("Said.")] },
    asked("d"),
  ]);
  assert.deepEqual(outline(prompt), [
    ["user", "one"],
    ["assistant", "a", "b"],
    ["tool", "a=first", "b=second"],
    ["user", "hurry"],
    ["assistant", "c", "Said."],
    ["tool", "c=inside"],
    ["assistant", "d"],
    ["tool", "d=early"],
  ]);
});

test("calls with one id are calls of their own, and each has the result that follows it", () => {
  const prompt = acceptable([
    told(answer("a", "of a call that was cut off")),
    user("one"),
    asked("a", "a_2"),
    told(answer("a", "1"), answer("a_2", "x")),
    asked("a"),
    user("two"),
    told(answer("a", "2"), answer("a", "again")),
  ]);
  assert.deepEqual(outline(prompt), [
    ["user", "one"],
    ["assistant", "a", "a_2"],
    ["tool", "a=1", "a_2=x"],
    ["assistant", "a_3"],
    ["tool", "a_3=2"],
    ["user", "two"],
  ]);
});

test("a call that its provider ran keeps its result in the answer, and is left out without one", () => {
  const content = [call("s", { providerExecuted: true }), answer("s", "found"), call("t", { providerExecuted: true })];
  const prompt = acceptable([user("one"), { role: "assistant", content: [...content, call("a")] }]);
  assert.deepEqual(outline(prompt).slice(1), [
    ["assistant", "s", "s=found", "a"],
    ["tool", "a=The call was not completed."],
  ]);
});

test("the input of a call that is no object becomes one", () => {
  for (const input of [[{ text: "x" }], "x", 3, null, true]) {
    const message = tidy({ role: "assistant", content: [call("a", { input })] });
    assert.deepEqual(message.content, [call("a")]);
  }
});

test("lone surrogates are replaced wherever they are, and what the client sent is not changed", () => {
  const input = { "k\ud800": ["fine", { deep: "\udc00x" }], other: 1 };
  const sent = structuredClone(input);
  const output = { type: "json" as const, value: { list: ["\ud83d"] } };
  const prompt = acceptable([
    { role: "system", content: "Help\ud83d." },
    user("cut \ud83d"),
    { role: "assistant", content: [{ type: "reasoning", text: "Hm\ud83d" }, call("a", { input })] },
    { role: "tool", content: [{ ...answer("a"), output }] },
    { role: "user", content: [{ type: "file", data: "AAAA", mediaType: "image/png", filename: "\ud83d.png" }] },
  ]);
  const words = JSON.stringify(prompt);
  assert.ok(!/\\ud/i.test(words), words);
  assert.match(words, /"k\ufffd":\["fine",\{"deep":"\ufffdx"\}\]/);
  assert.deepEqual(input, sent);
  assert.deepEqual(output.value, { list: ["\ud83d"] });
});

test("blank texts and messages, and reasoning that nothing follows, are left out", () => {
  const prompt = acceptable([
    { role: "system", content: " " },
    user("\n"),
    { role: "user", content: [text(" "), text("one")] },
    { role: "assistant", content: [text(""), { type: "reasoning", text: "Hm" }] },
    user("two"),
  ]);
  assert.deepEqual(outline(prompt), [
    ["user", "one"],
    ["user", "two"],
  ]);
});

test("many calls with one id, and results without a call, take time in proportion to their number", () => {
  const work = ({ length }: string) => {
    const prompt: Message[] = [user("one")];
    // An eighth: of many more objects the collector's share is no longer in proportion.
    for (let index = 0; index < length / 8; index++) prompt.push(asked("x"), told(answer(index % 2 === 0 ? "x" : "y")));
    return acceptable(prompt);
  };
  assert.equal(
    superlinear((length) => "-".repeat(length), work),
    null,
  );
});
