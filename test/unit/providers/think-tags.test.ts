/** Reasoning in the text of an answer, between `<think>` and `</think>`. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { LanguageModelV3StreamPart } from "@ai-sdk/provider";
import { ThinkHabit, ThinkTags } from "../../../core/models/think-tags.ts";
import type { PartBatch, PartSource } from "../../../core/plugin/plugin.ts";
import { openaiOver } from "../../support/openai-provider.ts";
import { says } from "../../support/openai-upstream.ts";
import { ask, chainOf, partsOf, settingsOf, textOf } from "../../support/providers.ts";

type Part = LanguageModelV3StreamPart;

/** The deltas as an answer, one batch each, every other one late. */
function answerOf(deltas: readonly string[], after: readonly Part[] = []): PartSource {
  const text = deltas.map((delta): Part => ({ type: "text-delta", id: "t", delta }));
  const parts: Part[] = [{ type: "text-start", id: "t" }, ...text, { type: "text-end", id: "t" }, ...after];
  let index = 0;
  return {
    next() {
      const part = parts[index++];
      const batch: PartBatch | null = part === undefined ? null : [part];
      return index % 2 === 0 ? batch : Promise.resolve(batch);
    },
    cancel() {},
  };
}

async function read(source: PartSource): Promise<Part[]> {
  const parts: Part[] = [];
  for (let batch = await source.next(); batch !== null; batch = await source.next()) parts.push(...batch);
  return parts;
}

/** `reasoning|text`, and a check that every block is begun and ended once and in order. */
function outline(parts: readonly Part[]): string {
  let reasoning = "";
  let text = "";
  const open: string[] = [];
  for (const part of parts) {
    if (part.type === "text-start" || part.type === "reasoning-start") open.push(part.id);
    else if (part.type === "text-end" || part.type === "reasoning-end") assert.equal(open.pop(), part.id);
    else if (part.type === "text-delta" || part.type === "reasoning-delta") {
      assert.equal(open.at(-1), part.id);
      if (part.type === "text-delta") text += part.delta;
      else reasoning += part.delta;
    }
  }
  assert.deepEqual(open, []);
  return `${reasoning}|${text}`;
}

const CASES: [string, string, string][] = [
  ["a thought before the text", "<think>why not</think>\n\nYes.", "why not|Yes."],
  ["a thought after white space", "\n <think>why not</think>Yes.", "why not|Yes."],
  ["a thought whose opening tag is missing", "why not\n</think>\n\nYes.", "why not\n|Yes."],
  ["an empty thought", "<think></think>Yes.", "|Yes."],
  ["a text without tags", "Just text, 1 < 2.", "|Just text, 1 < 2."],
  ["a text that begins like a tag", "<thin ice", "|<thin ice"],
  ["a tag later in the text", "<think>a</think>See <think>b</think>", "a|See <think>b</think>"],
  ["a thought that is cut off", "<think>and so on </th", "and so on </th|"],
  ["something like the closing tag inside of a thought", "<think>a </thin </think>b", "a </thin |b"],
  ["an empty text", "", "|"],
];

for (const [title, text, expected] of CASES) {
  test(`${title} is told apart, wherever the answer is cut into deltas`, async () => {
    assert.equal(outline(await read(new ThinkTags(answerOf([text]), new ThinkHabit()))), expected);
    assert.equal(outline(await read(new ThinkTags(answerOf([...text]), new ThinkHabit()))), expected);
    for (let cut = 1; cut < text.length; cut++) {
      const deltas = [text.slice(0, cut), text.slice(cut)];
      assert.equal(outline(await read(new ThinkTags(answerOf(deltas), new ThinkHabit()))), expected, `cut at ${cut}`);
    }
  });
}

test("a model that has shown its opening tag, or thinks without tags, has its text passed on at once from then on", async () => {
  for (const first of ["<think>a</think>b", "no tags at all"]) {
    const habit = new ThinkHabit();
    await read(new ThinkTags(answerOf([first]), habit));
    const source = new ThinkTags(answerOf(["plain ", "text"]), habit);
    let batch = await source.next();
    assert.equal(textOf(batch ?? []), "plain ");
    batch = await source.next();
    assert.equal(textOf(batch ?? []), "text");
  }
});

test("a text before a tool call is a text, without a closing tag", async () => {
  const call: Part = { type: "tool-input-start", id: "c", toolName: "add" };
  const parts: Part[] = [{ type: "text-start", id: "t" }, { type: "text-delta", id: "t", delta: "let me see" }, call];
  let given = false;
  const source: PartSource = {
    next() {
      const batch = given ? null : parts;
      given = true;
      return batch;
    },
    cancel() {},
  };
  const types = (await read(new ThinkTags(source, new ThinkHabit()))).map(({ type }) => type);
  assert.deepEqual(types, ["text-start", "text-delta", "tool-input-start"]);
});

test("a very long text without tags is passed on before its end, and in time that grows with its length alone", async () => {
  const deltas = Array.from({ length: 300_000 }, () => "word ");
  const source = new ThinkTags(answerOf(deltas), new ThinkHabit());
  let batches = 0;
  for (let batch = await source.next(); batch !== null; batch = await source.next()) batches++;
  assert.ok(batches > 200_000, `${batches} batches`);
});

test("extractReasoning of a provider makes reasoning of the text in <think> tags; without it the text stays as it is", async (context) => {
  const { upstream, provider } = await openaiOver(context);
  upstream.fallback(() => says("<think>let me see</think>42", { chunks: 9 }));
  const plain = await partsOf(chainOf(provider, "m", 0), ask("hi"));
  assert.equal(textOf(plain), "<think>let me see</think>42");
  const settings = { ...settingsOf(), extractReasoning: true };
  const parts = await partsOf(chainOf(provider, "m", 0, settings), ask("hi"));
  assert.equal(outline(parts), "let me see|42");
});
