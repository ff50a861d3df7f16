import assert from "node:assert/strict";
import { test } from "node:test";
import { PartialJson, parseAnswer } from "../../../core/agents/run/partial-json.ts";

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

test("an answer that is not JSON or not finished is no answer", () => {
  assert.equal(parseAnswer("hello"), undefined);
  assert.equal(parseAnswer('{"a": 1'), undefined);
  assert.equal(parseAnswer(""), undefined);
  assert.equal(parseAnswer("5"), 5);
});
