import assert from "node:assert/strict";
import { test } from "node:test";
import { answersIn, PartialJson } from "../../../core/agents/run/partial-json.ts";

const parseAnswer = (text: string): unknown => answersIn(text)[0];

/** Every different snapshot on the way, fed one character at a time. */
function growth(text: string): string[] {
  const reader = new PartialJson();
  const seen: string[] = [];
  for (const character of text) {
    reader.feed(character);
    const value = JSON.stringify(reader.snapshot());
    if (value !== undefined && value !== seen.at(-1)) seen.push(value);
  }
  return seen;
}

test("a growing object shows texts while they are written, and numbers and names when they are whole", () => {
  assert.deepEqual(growth('{"a": "hi", "n": 12.5, "ok": true, "l": [1, {"b": null}]}'), [
    "{}",
    '{"a":""}',
    '{"a":"h"}',
    '{"a":"hi"}',
    '{"a":"hi","n":12.5}',
    '{"a":"hi","n":12.5,"ok":true}',
    '{"a":"hi","n":12.5,"ok":true,"l":[]}',
    '{"a":"hi","n":12.5,"ok":true,"l":[1]}',
    '{"a":"hi","n":12.5,"ok":true,"l":[1,{}]}',
    '{"a":"hi","n":12.5,"ok":true,"l":[1,{"b":null}]}',
  ]);
});

test("escapes are shown when they are whole, and quotes and brackets inside texts change nothing", () => {
  const value = { 'k"}': 'é\n\\ " ] } é', list: [[], {}, ""] };
  const steps = growth(JSON.stringify(value).replace("é", "\\u00e9"));
  assert.deepEqual(JSON.parse(steps.at(-1)!), value);
  for (const step of steps) assert.doesNotMatch(step, /\\u00e?$/);
});

test("every prefix of a document can be read, and ends in the document", () => {
  const value = { s: 'x\\"y', n: [-1.5e3, 0, null, true, false], o: { a: { b: [{}] } }, e: "" };
  for (const text of [JSON.stringify(value), JSON.stringify(value, null, 2)]) {
    const steps = growth(text);
    assert.deepEqual(JSON.parse(steps.at(-1)!), value);
    assert.ok(steps.length > 10);
  }
});

test("prose and code fences around the JSON are skipped", () => {
  assert.deepEqual(parseAnswer('Sure!\n```json\n{"a": [1, 2]}\n```\nAnything else?'), { a: [1, 2] });
  assert.deepEqual(growth('Sure: {"a":1} bye}').at(-1), '{"a":1}');
});

test("the answer is the last complete JSON value outside of <think> and code fences", () => {
  const answers: [string, unknown][] = [
    ['<think>maybe {"a": 1}?</think>{"a": 2}', { a: 2 }],
    ['<think>{"a": 1}</think>\n```json\n{"a": 2}\n```', { a: 2 }],
    ['the tag was in the prompt: {"a": 1}</think> {"a": 2}', { a: 2 }],
    ['First I had {"a": 1}, but it is {"a": 2}.', { a: 2 }],
    ['{"a": 2} as in\n```json\n{"a": 1}\n```', { a: 2 }],
    ["```json\n[1, 2]\n```\nor better\n```json\n[3]\n```", [3]],
    ['It is {name}, [so to speak]: {"a": 2} (see [ref])', { a: 2 }],
    ['Begin with "{" and then: {"a": 2}', { a: 2 }],
    ['Sure: {"tag": "<think> ``` } ]", "a": 2}', { tag: "<think> ``` } ]", a: 2 }],
    ["<think>hm</think> 5", 5],
    ["```json\n5\n```", 5],
    ['<think>hm</think>\n```\n"hi"\n```', "hi"],
  ];
  for (const [text, value] of answers) assert.deepEqual(parseAnswer(text), value, text);
});

test("a value inside of a broken or unfinished one is no answer, nor is one that was only thought", () => {
  for (const text of [
    '{"a": [1,], "b": {"c": 1}}',
    '{"a": {"b": 1}, "c": ',
    '<think>{"a": 1}',
    '{"a": 1}</think>',
    "{'a': 1}",
    '{"a": 1 "b": 2}',
  ])
    assert.equal(parseAnswer(text), undefined, text);
});

test("the answer that fits is taken where one stands in a fence and another outside", () => {
  const text = '```json\n{"a": 1}\n```\nSource: [1]';
  assert.deepEqual(parseAnswer(text), [1]);
  assert.deepEqual(answersIn(text), [[1], { a: 1 }], "what is outside comes first");
});

test("a value that is nested deeper than 128 levels is no answer, in whatever it is wrapped", () => {
  const nested = (depth: number) => "[".repeat(depth) + "]".repeat(depth);
  assert.notEqual(parseAnswer(nested(128)), undefined);
  for (const wrap of ["", "Here: "]) assert.equal(parseAnswer(wrap + nested(100_000)), undefined);
});

test("reading takes time in proportion to the answer, also where every bracket could begin a value", () => {
  const hostile = ["[", "{", '{"', '{"a":', "[x", "[1,[", '["', "`", "<think>", "{ {", '{"a":1,x'].flatMap((unit) => [
    unit,
    `${unit} `,
  ]);
  const steps = (text: string, piece: number) => {
    const reader = new PartialJson();
    for (let index = 0; index < text.length; index += piece) reader.feed(text.slice(index, index + piece));
    return reader.steps;
  };
  for (const unit of hostile)
    for (const piece of [3, 100_000]) {
      const text = unit.repeat(20_000).slice(0, 20_000);
      assert.ok(steps(text, piece) <= 6 * text.length, `${unit}: ${steps(text, piece)} steps`);
    }
});

test("an answer that is not JSON or not finished is no answer", () => {
  assert.equal(parseAnswer("hello"), undefined);
  assert.equal(parseAnswer('{"a": 1'), undefined);
  assert.equal(parseAnswer(""), undefined);
  assert.equal(parseAnswer("5"), 5);
});
