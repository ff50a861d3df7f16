/** Patterns of clients' schemas match what RegExp matches, in a time that grows with pattern and text only. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { compileExpression } from "../../../core/client-schema/pattern.ts";
import { TooMuchWork, WorkBudget } from "../../../core/client-schema/work.ts";

const ATOMS = [
  "a",
  "b",
  "\\d",
  "\\w",
  "[ab]",
  "[^a]",
  ".",
  "\\s",
  "\\p{L}",
  "\\u0061",
  "\\u{62}",
  "1",
  "😀",
  "[\\]a-]",
];
const QUANTIFIERS = ["*", "+", "?", "{2}", "{1,3}", "{0,2}?", "{2,}", "*?"];
const LOOKS = ["(?=", "(?!", "(?<=", "(?<!"];

const { pattern } = fc.letrec<{ pattern: string }>((tie) => {
  const inner = tie("pattern");
  return {
    pattern: fc.oneof(
      { maxDepth: 5, depthIdentifier: "pattern" },
      fc.constantFrom(...ATOMS),
      fc.tuple(inner, inner).map((both) => both.join("")),
      fc.tuple(inner, inner).map((both) => `(?:${both.join("|")})`),
      fc.tuple(inner, fc.constantFrom(...QUANTIFIERS)).map(([item, often]) => `(${item})${often}`),
      fc.tuple(fc.constantFrom("^", "$", "\\b", "\\B"), inner).map((both) => both.join("")),
      fc.tuple(fc.constantFrom(...LOOKS), inner, inner).map(([look, seen, then]) => `${look}${seen})${then}`),
    ),
  };
});
const text = fc.array(fc.constantFrom("a", "b", "1", " ", "😀", "\n", "é", "_", "-"), { maxLength: 8 });

/** Tried at each character, since V8's own search also finds `\B` between the two halves of a character. */
function regExpMatches(source: string, characters: readonly string[]): boolean {
  const sticky = new RegExp(source, "uy");
  const whole = characters.join("");
  for (let count = 0; count <= characters.length; count++) {
    sticky.lastIndex = characters.slice(0, count).join("").length;
    if (sticky.test(whole)) return true;
  }
  return false;
}

test("pattern of a client's schema: matches what RegExp matches", () => {
  const matches = (source: string, characters: string[]) => {
    const found = compileExpression(source).test(characters.join(""), new WorkBudget(1e7));
    assert.equal(found, regExpMatches(source, characters));
  };
  fc.assert(fc.property(pattern, text, matches), { numRuns: 3_000 });
});

test("pattern of a client's schema: steps grow with the text, also where RegExp would backtrack for ever", () => {
  for (const source of ["^(a+)+$", "(a|a)*b", "(a*)*c", "^(?=.*\\d)(?=.*b).{2,40}$", "a{0,40}a{40}", "(.*)(.*)(.*)x"]) {
    const stepsFor = (length: number) => {
      const compiled = compileExpression(source);
      let [enough, short] = [1e7, 0];
      while (enough - short > 1) {
        const middle = Math.floor((enough + short) / 2);
        try {
          compiled.test(`${"a".repeat(length)}!`, new WorkBudget(middle));
          enough = middle;
        } catch (error) {
          assert.ok(error instanceof TooMuchWork);
          short = middle;
        }
      }
      return enough;
    };
    const [one, four] = [stepsFor(500), stepsFor(2_000)];
    assert.ok(four / one < 5, `${source}: ${one} steps, then ${four} for four times the text`);
  }
});

test("pattern of a client's schema: what cannot be matched in a bounded time, or is none, is refused with a reason", () => {
  assert.throws(() => compileExpression("(a)\\1"), /must not refer back to a group/);
  assert.throws(() => compileExpression("(?<x>a)\\k<x>"), /must not refer back to a group/);
  assert.throws(() => compileExpression("((a{1000}){1000}){1000}"), /too large/);
  assert.throws(() => compileExpression(`${"(".repeat(200)}a${")".repeat(200)}`), /levels deep/);
  assert.throws(() => compileExpression("("), SyntaxError);
});
