/** What is changed in a `.env` file, and what is not. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { withVariables } from "../../../core/platform/environment-file.ts";

const CASES: [title: string, before: string, after: string][] = [
  ["an empty file", "", "A=1\nB=2\n"],
  ["others stay, these are added", "X=y\n", "X=y\nA=1\nB=2\n"],
  ["no newline at the end", "X=y", "X=y\nA=1\nB=2\n"],
  ["both are there", "A=old\nX=y\nB=\n", "A=1\nX=y\nB=2\n"],
  ["one is there, without a newline", "B=old", "B=2\nA=1\n"],
  ["lines of Windows", "X=y\r\nA=old\r\n", "X=y\r\nA=1\r\nB=2\r\n"],
  ["export, indent and spaces", "  export A = old\nB= old\n", "  export A = 1\nB= 2\n"],
  ["a comment behind it", "A=old # mine\nB='#x' # yours\n", "A=1 # mine\nB=2 # yours\n"],
  ["a comment and no value", "A= # mine\nB=#yours\n", "A= 1 # mine\nB=2 #yours\n"],
  ["a hash inside a value is none", "A=old#x\nB=2\n", "A=1\nB=2\n"],
  ["comments stay comments", "#A=old\n# B=old\n", "#A=old\n# B=old\nA=1\nB=2\n"],
  ["every one of several", "A=old\nA=older\nB=2\n", "A=1\nA=1\nB=2\n"],
  ["names that begin or end alike", "AA=x\nA.B=x\nxA=x\nA_=x\n", "AA=x\nA.B=x\nxA=x\nA_=x\nA=1\nB=2\n"],
  ["a value of several lines", 'A="one\ntwo"\nB=2\n', "A=1\nB=2\n"],
  ["a line like it inside another value", 'X="\nA=no\n"\nB=2\n', 'X="\nA=no\n"\nB=2\nA=1\n'],
  ["a quote that is never closed", "A='it\nB=2\n", "A=1\nB=2\n"],
  ["an apostrophe inside a value", "X=it's\nA=old\nB=2\n", "X=it's\nA=1\nB=2\n"],
  ["a byte order mark", "\u00ef\u00bb\u00bfA=old\nB=2\n", "\u00ef\u00bb\u00bfA=1\nB=2\n"],
  ["blank lines", "\n\nA=old\n\n\nB=2\n\n", "\n\nA=1\n\n\nB=2\n\n"],
];

for (const [title, before, after] of CASES)
  test(title, () => assert.equal(withVariables(before, { A: "1", B: "2" }), after));

test("twice is once, and no line of another name is touched", () => {
  const line = fc.oneof(
    fc.stringMatching(/^[A-Z]{1,3} ?=[ -~]{0,6}$/),
    fc.stringMatching(/^[ -~]{0,8}$/),
    fc.constantFrom("A=x", "export B = y", 'C="', '"', "", "# A=z"),
  );
  fc.assert(
    fc.property(fc.array(line), fc.constantFrom("\n", "\r\n"), (lines, newline) => {
      const once = withVariables(lines.join(newline), { A: "1", B: "2" });
      assert.equal(withVariables(once, { A: "1", B: "2" }), once);
      const kept = once.split(/\r?\n/);
      for (const each of lines.filter((text) => !/^\s*(export\s+)?[AB]\s*=|["'`]/.test(text))) {
        // Inside a value in quotes that is set anew it goes with it.
        if (!lines.some((text) => /["'`]/.test(text))) assert.ok(kept.includes(each), each);
      }
    }),
  );
});
