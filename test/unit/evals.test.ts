/** How an answer is compared with what a case expects, and what XML is made of it. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { failuresOf } from "../../core/eval/expectations.ts";
import type { Eval } from "../../core/eval/load.ts";
import { formatJUnit, formatTable } from "../../core/eval/report.ts";

const about = (kind: "agent" | "workflow", expect: Eval["expect"]): Eval => ({
  name: "n",
  expect,
  target: { kind, id: "x" },
  request: { input: null },
  user: null,
  schema: null,
  pattern: null,
  question: null,
});

test("failuresOf: maps may have more keys than are expected, lists and values are equal, and a missing key is not null", () => {
  const value = { order: { id: "A-1", items: [{ sku: 1, price: 2 }, "gift"] }, paid: null };
  const outcome = { text: JSON.stringify(value), value, tools: [], tokens: null, status: "completed" };
  const failed = (result: unknown) => failuresOf(about("workflow", { result }), outcome).length > 0;
  for (const right of [{}, value, { paid: null }, { order: { items: [{ sku: 1 }, "gift"] } }])
    assert.equal(failed(right), false, JSON.stringify(right));
  for (const wrong of [null, [], { paid: 0 }, { sent: null }, { order: { items: [{ sku: 1 }] } }, { toString: {} }])
    assert.equal(failed(wrong), true, JSON.stringify(wrong));
});

test("failuresOf: tools are all that were called, in order, and each may have more arguments than are expected", () => {
  const tools = [
    { name: "find", input: { id: "A-1", deep: true } },
    { name: "pay", input: {} },
  ];
  const outcome = { text: "", value: undefined, tools, tokens: 1 };
  const of = (expected: NonNullable<Eval["expect"]["tools"]>) =>
    failuresOf(about("agent", { tools: expected }), outcome);
  assert.deepEqual(of([{ name: "find", input: { id: "A-1" } }, "pay"]), []);
  for (const wrong of [[], ["find"], ["pay", "find"], ["find", "pay", "pay"]])
    assert.deepEqual(
      of(wrong).map(({ expectation, got }) => [expectation, got]),
      [["tools", "find, pay"]],
    );
  const [failure] = of([{ name: "find", input: { id: "A-2" } }, "pay"]);
  assert.deepEqual(failure, {
    expectation: "tools[0].input",
    expected: 'find {"id":"A-2"}',
    got: '{"id":"A-1","deep":true}',
  });
});

test("formatJUnit: whatever a model writes is XML: markup, control characters, halves of characters", () => {
  const failures = [{ expectation: "contains", expected: "x", got: '<&"\u0000\u001b\ud800\uffff\n' }];
  const report = { name: "]]>", passed: false, tokens: null, milliseconds: 1500, failures };
  const xml = formatJUnit("a & b", [report]);
  assert.match(xml, /<testcase classname="a &amp; b" name="\]\]&gt;" time="1\.500">/);
  assert.match(xml, />expected x&#10;got &lt;&amp;&quot;\ufffd\ufffd\ufffd\ufffd&#10;<\/failure>/);
  assert.ok(xml.isWellFormed());
});

test("formatTable: whatever a model writes stays on its line and does nothing to the terminal", () => {
  const failures = [
    { expectation: "judge", expected: "yes", got: "no: one\nfine \u001b[2J\u009b31mtwo" },
    { expectation: "tools", expected: "add", got: "\u001b]0;gone\u0007" },
  ];
  const table = formatTable([{ name: "a\n\u001b[1mb", passed: false, tokens: null, milliseconds: 5, failures }]);
  assert.equal(table.replace(/[^\p{Cc}]+/gu, ""), "\n".repeat(5));
  assert.match(table, /^a \ufffd\[1mb {2}FAILED/m);
  assert.match(table, /^ {2}judge: expected yes, got no: one fine \ufffd\[2J\ufffd31mtwo$/m);
});
