/** Prompts that are made to fit, whatever they consist of. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { LanguageModelV3Message } from "@ai-sdk/provider";
import fc from "fast-check";
import { acceptable } from "../../../core/agents/prompt/acceptable.ts";
import { clipResults, messageBytes } from "../../../core/agents/prompt/size.ts";
import { fitPrompt, lastUserIndex } from "../../../core/agents/run/prompt-bounds.ts";

type Message = LanguageModelV3Message;
type ToolMessage = Extract<Message, { role: "tool" }>;

const said = (role: "user" | "assistant", text: string): Message => ({ role, content: [{ type: "text", text }] });
const called = (toolCallId: string): Message => ({
  role: "assistant",
  content: [{ type: "tool-call", toolCallId, toolName: "t", input: {} }],
});
const answered = (toolCallId: string, value: string): ToolMessage => ({
  role: "tool",
  content: [{ type: "tool-result", toolCallId, toolName: "t", output: { type: "text", value } }],
});
const bytesOf = (prompt: readonly Message[]) => prompt.reduce((sum, message) => sum + messageBytes(message), 0);

/** Turns of a user's message, some steps with calls, and maybe an answer. */
const conversations = fc
  .array(
    fc.record({
      question: fc.string({ maxLength: 300 }),
      steps: fc.array(fc.string({ maxLength: 3000 }), { maxLength: 4 }),
      answer: fc.option(fc.string({ maxLength: 300 })),
    }),
    { minLength: 1, maxLength: 6 },
  )
  .map((turns) => {
    const prompt: Message[] = [{ role: "system", content: "Help." }];
    for (const [turn, { question, steps, answer }] of turns.entries()) {
      prompt.push(said("user", `Q: ${question}`));
      for (const [step, value] of steps.entries())
        prompt.push(called(`${turn}-${step}`), answered(`${turn}-${step}`, value));
      if (answer !== null && turn < turns.length - 1) prompt.push(said("assistant", `A: ${answer}`));
    }
    return prompt;
  });

test("a prompt that is made to fit keeps the system prompt, the last message of the user and the last step, in order, and calls with their results", () => {
  fc.assert(
    fc.property(conversations, fc.nat(20_000), (prompt, limit) => {
      const kept = lastUserIndex(prompt);
      const fitted = fitPrompt(prompt, limit, kept);
      assert.equal(fitted[0], prompt[0]);
      assert.ok(fitted.includes(prompt[kept]!));
      assert.equal(acceptable(fitted as Message[]), fitted, "every call has its result, and every result its call");
      assert.equal(fitted[1]!.role, "user");
      assert.equal(fitted.at(-1)!.role, prompt.at(-1)!.role);
      const places = fitted.filter(({ role }) => role !== "tool").map((message) => prompt.indexOf(message));
      assert.deepEqual(
        places,
        [...places].sort((left, right) => left - right),
      );
      if (bytesOf(prompt) <= limit) assert.equal(fitted, prompt);
      else if (bytesOf(fitted) > limit) {
        const left = fitted.filter((message) => message.role !== "tool");
        assert.ok(left.length <= 3, "nothing is left that could go");
      }
    }),
    { numRuns: 300 },
  );
});

test("no more turns are left out than have to be", () => {
  const prompt = ["one", "two", "three", "four"].flatMap((text) => [said("user", text), said("assistant", text)]);
  prompt.push(said("user", "last"));
  const limit = bytesOf(prompt) - 1;
  assert.deepEqual(fitPrompt(prompt, limit, lastUserIndex(prompt)), prompt.slice(2));
});

test("a result is cut at its limit in bytes, never within a character, and says how much is not shown", () => {
  fc.assert(
    fc.property(fc.string({ unit: "grapheme", maxLength: 400 }), fc.nat(500), (value, limit) => {
      const message = answered("c", value);
      const [part] = clipResults(message, () => limit).content as [
        Extract<ToolMessage["content"][number], { type: "tool-result" }>,
      ];
      const shown = (part.output as { value: string }).value;
      const whole = Buffer.byteLength(value);
      if (whole <= limit) return assert.equal(shown, value);
      const cut = shown.lastIndexOf("\n[cut here: ");
      const head = shown.slice(0, cut);
      assert.ok(value.startsWith(head));
      assert.ok(Buffer.byteLength(head) <= limit && Buffer.byteLength(head) > limit - 4);
      assert.ok(head.isWellFormed() || !value.isWellFormed());
      assert.match(shown.slice(cut), new RegExp(`${whole - Buffer.byteLength(head)} of ${whole} bytes`));
    }),
    { numRuns: 500 },
  );
});

test("JSON is cut as text, lists of content keep their files, and what is short stays as it is", () => {
  const part = { type: "tool-result", toolCallId: "c", toolName: "t" } as const;
  const clip = (output: object) => {
    const message = { role: "tool", content: [{ ...part, output }] } as ToolMessage;
    const clipped = clipResults(message, () => 100);
    return clipped === message ? null : (clipped.content[0] as { output: { type: string; value: unknown } }).output;
  };
  assert.equal(clip({ type: "json", value: { a: 1 } }), null);
  assert.equal(clip({ type: "execution-denied" }), null);
  const cut = clip({ type: "json", value: { text: "x".repeat(200) } })!;
  assert.equal(cut.type, "text");
  assert.match(String(cut.value), /^\{"text":"x+\n\[cut here: /);
  assert.equal(clip({ type: "error-json", value: "x".repeat(200) })!.type, "error-text");
  const image = { type: "media", data: "x".repeat(500), mediaType: "image/png" };
  const list = clip({
    type: "content",
    value: [image, { type: "text", text: "y".repeat(90) }, { type: "text", text: "z".repeat(90) }],
  })!;
  const [first, second, third] = list.value as [object, { text: string }, { text: string }];
  assert.equal(first, image);
  assert.equal(second.text, "y".repeat(90));
  assert.match(third.text, /^z{10}\n\[cut here: 80 of 90 bytes/);
});
