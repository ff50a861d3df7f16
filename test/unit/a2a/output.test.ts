/** What an agent has said in a task, for readers who come at different times. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { charactersOf, TaskOutput } from "../../../core/a2a/output.ts";
import type { AgentPart } from "../../../core/agents/run/parts.ts";

const delta = (text: string, more: object = {}): AgentPart => ({ type: "text-delta", id: "t", delta: text, ...more });
const START: AgentPart = { type: "text-start", id: "t" };
const FILE: AgentPart = { type: "file", file: { base64: "aGk=", mediaType: "image/png" } };
const text = (value: string) => ({ text: value, mediaType: "text/plain" });

function outputOf(parts: readonly AgentPart[]): TaskOutput {
  const output = new TaskOutput([]);
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

  test("the output of an A2A task tells its reader what it has not got yet; text goes on, the first of it does not", () => {
    const output = outputOf([FILE, START]);
    output.news();
    output.add(delta("a"));
    output.add(delta("b"));
    assert.deepEqual(output.news(), [{ artifact: { artifactId: "answer", parts: [text("ab")] }, append: false }]);
    assert.deepEqual(output.news(), []);
    output.add(delta("c"));
    output.add(FILE);
    assert.deepEqual(output.news(), [
      { artifact: { artifactId: "answer", parts: [text("c")] }, append: true },
      { artifact: { artifactId: "file-2", parts: [{ raw: "aGk=", mediaType: "image/png" }] }, append: false },
    ]);
  });

  test("the output of an A2A task that goes on after a question goes on behind what its reader has", () => {
    const output = new TaskOutput(outputOf([START, delta("a"), FILE]).artifacts());
    assert.deepEqual(output.news(), []);
    output.add(START);
    output.add(delta("b"));
    assert.deepEqual(output.news(), [{ artifact: { artifactId: "answer", parts: [text("b")] }, append: true }]);
    assert.deepEqual(output.artifacts()[0]!.parts, [text("a"), text("b")]);
  });

  test("what the model of an A2A task has said in a step that begins again counts no more, and the reader gets the whole text anew", () => {
    const step: AgentPart = { type: "start-step" };
    const output = outputOf([step, START, delta("kept "), step, START, delta("half")]);
    output.news();
    output.add({ type: "step-restart" });
    output.add(START);
    output.add(delta("whole"));
    const answer = { artifactId: "answer", parts: [text("kept "), text("whole")] };
    assert.deepEqual(output.news(), [{ artifact: answer, append: false }]);
    assert.deepEqual(output.artifacts(), [answer]);
    assert.equal(charactersOf(output.artifacts()), 10);
  });

  test("the output of an A2A task leaves out what sub-agents say and everything that is no answer", () => {
    const output = new TaskOutput([]);
    output.add(delta("inner", { subAgentId: "writer" }));
    output.add({ type: "reasoning-delta", id: "r", delta: "hm" });
    output.add(delta("outer"));
    assert.deepEqual(output.artifacts(), [{ artifactId: "answer", parts: [text("outer")] }]);
  });
});
