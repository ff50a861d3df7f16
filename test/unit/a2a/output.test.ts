/** What an agent has said in a task, for readers who come at different times. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { TaskOutput } from "../../../core/a2a/output.ts";
import type { AgentPart } from "../../../core/agents/run/parts.ts";

const delta = (text: string, more: object = {}): AgentPart => ({ type: "text-delta", id: "t", delta: text, ...more });
const START: AgentPart = { type: "text-start", id: "t" };
const FILE: AgentPart = { type: "file", file: { base64: "aGk=", mediaType: "image/png" } };
const text = (value: string) => ({ text: value, mediaType: "text/plain" });

function outputOf(parts: readonly AgentPart[]): TaskOutput {
  const output = new TaskOutput();
  for (const part of parts) output.add(part);
  return output;
}

describe("the output of a task", () => {
  test("the output of an A2A task is one artifact with a part for each block of text, and one for each file", () => {
    const output = outputOf([START, delta("a"), delta("b"), FILE, START, delta("c"), FILE]);
    assert.deepEqual(output.artifacts(), [
      { artifactId: "answer", parts: [text("ab"), text("c")] },
      { artifactId: "file-1", parts: [{ raw: "aGk=", mediaType: "image/png" }] },
      { artifactId: "file-2", parts: [{ raw: "aGk=", mediaType: "image/png" }] },
    ]);
  });

  test("the artifact of a task is absent when the agent said nothing", () => {
    assert.deepEqual(outputOf([START, delta("")]).artifacts(), []);
  });

  test("the output of an A2A task tells a reader what came after its place; text goes on, the first of it does not", () => {
    const output = outputOf([FILE, START]);
    const place = output.length;
    output.add(delta("a"));
    output.add(delta("b"));
    assert.deepEqual(output.since(place), [{ artifact: { artifactId: "answer", parts: [text("ab")] }, append: false }]);
    const later = output.length;
    assert.deepEqual(output.since(later), []);
    output.add(delta("c"));
    output.add(FILE);
    assert.deepEqual(output.since(later), [
      { artifact: { artifactId: "answer", parts: [text("c")] }, append: true },
      { artifact: { artifactId: "file-2", parts: [{ raw: "aGk=", mediaType: "image/png" }] }, append: false },
    ]);
  });

  test("the output of an A2A task leaves out what sub-agents say and everything that is no answer", () => {
    const output = new TaskOutput();
    assert.equal(output.add(delta("inner", { subAgentId: "writer" })), false);
    assert.equal(output.add({ type: "reasoning-delta", id: "r", delta: "hm" }), false);
    assert.equal(output.add(delta("outer")), true);
    assert.deepEqual(output.artifacts(), [{ artifactId: "answer", parts: [text("outer")] }]);
    assert.equal(output.size, 5);
  });
});
