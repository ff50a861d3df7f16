/** The warnings of providers in the log. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { WarningLog } from "../../../core/models/settings-problems.ts";

function setUp() {
  const lines: unknown[] = [];
  const warnings = new WarningLog({ warn: (line: unknown) => void lines.push(line) } as never);
  return { lines, warnings };
}

test("a provider's warning is logged once for each model, however many calls it comes with", () => {
  const { lines, warnings } = setUp();
  for (let call = 0; call < 3; call++) for (const model of ["p/a", "p/b"]) warnings.add(model, "seed is ignored");
  warnings.add("p/a", "topK is ignored");
  assert.deepEqual(lines, [
    { model: "p/a", warning: "seed is ignored" },
    { model: "p/b", warning: "seed is ignored" },
    { model: "p/a", warning: "topK is ignored" },
  ]);
});

test("warnings that differ with every call neither fill the log nor the memory", () => {
  const { lines, warnings } = setUp();
  for (let call = 0; call < 5000; call++) warnings.add("p/a", `request ${call} ${"x".repeat(2000)}`);
  assert.equal(lines.length, 1000);
});
