/** Contract, "Workflow stream": the events of an execution, from a journal made by hand. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { EVENT_COUNTS, type ExecutionStart, type JournalEntry } from "../../../core/workflows/journal/entries.ts";
import { eventTexts, startEvent } from "../../../core/workflows/journal/record.ts";
import { applyEntry, type JournalState } from "../../../core/workflows/journal/state.ts";
import { validators } from "../../../generated/all-validators.js";
import { at, COMPLETED, folded, iso, OUTLINE, outlineWith, SUSPENDED } from "../../support/journals.ts";

type Event = Record<string, unknown>;

function parse(texts: readonly string[]): Event[] {
  return texts.map((text) => {
    const event = JSON.parse(text) as Event;
    const validate = validators.WorkflowStreamEvent;
    assert.ok(validate(event), `${text} ${JSON.stringify(validate.errors)}`);
    return event;
  });
}

/** All events of a journal, told by its last fold. */
function streamOf(entries: readonly JournalEntry[], overrides: Partial<ExecutionStart> = {}): Event[] {
  const state = folded(entries, overrides);
  return parse([startEvent(state, OUTLINE), ...entries.flatMap((entry) => eventTexts(entry, state, OUTLINE))]);
}

/** The events of the last entry. */
function last(entries: readonly JournalEntry[], overrides: Partial<ExecutionStart> = {}): Event[] {
  return parse(eventTexts(entries.at(-1)!, folded(entries, overrides), OUTLINE));
}

const HEAD = { executionId: "e1" };
const step = (path: string, stepIndex: number, stepType = "andThen") => ({ ...HEAD, from: path, stepIndex, stepType });
const flow = { ...HEAD, from: "expense" };
const BEGUN: JournalEntry = ["begin", "total", at(1), ""];

describe("eventTexts", () => {
  test("eventTexts of an execution that suspends: start, its steps, workflow-suspended, workflow-result", () => {
    const suspension = { suspendedAt: iso(5), reason: "Manager approval needed" };
    const more = { stepId: "ask", suspendData: { amount: 120 } };
    assert.deepEqual(streamOf(SUSPENDED), [
      { type: "workflow-start", ...flow, timestamp: iso(0), status: "running", input: { amount: 100 } },
      { type: "step-start", ...step("total", 0), timestamp: iso(1), status: "running", input: { amount: 100 } },
      { type: "step-complete", ...step("total", 0), timestamp: iso(2), status: "success", output: { total: 120 } },
      {
        type: "step-start",
        ...step("gate", 1, "andWhen"),
        timestamp: iso(3),
        status: "running",
        input: { total: 120 },
      },
      { type: "step-start", ...step("ask", 1), timestamp: iso(3), status: "running", input: { total: 120 } },
      {
        type: "workflow-suspended",
        ...flow,
        timestamp: iso(5),
        status: "suspended",
        suspension: { ...suspension, stepIndex: 1, ...more },
      },
      {
        type: "workflow-result",
        ...HEAD,
        timestamp: iso(5),
        startAt: iso(0),
        endAt: null,
        status: "suspended",
        result: null,
        suspension: { ...suspension, suspendedStepIndex: 1, ...more },
      },
    ]);
  });

  test("eventTexts of an execution that goes on and ends: those of before stay as they were told, then workflow-start says that it was resumed", () => {
    const before = streamOf(SUSPENDED);
    const after = streamOf(COMPLETED);
    assert.deepEqual(after.slice(0, before.length), before);
    const result = { total: 120, approved: true };
    assert.deepEqual(after.slice(before.length), [
      {
        type: "workflow-start",
        ...flow,
        timestamp: iso(100),
        status: "running",
        input: { amount: 100 },
        metadata: { resumed: true, stepId: "ask" },
      },
      { type: "step-start", ...step("ask", 1), timestamp: iso(101), status: "running", input: { total: 120 } },
      { type: "step-complete", ...step("ask", 1), timestamp: iso(102), status: "success", output: result },
      { type: "step-complete", ...step("gate", 1, "andWhen"), timestamp: iso(103), status: "success", output: result },
      { type: "workflow-complete", ...flow, timestamp: iso(104), status: "completed", output: result },
      {
        type: "workflow-result",
        ...HEAD,
        timestamp: iso(104),
        startAt: iso(0),
        endAt: iso(104),
        status: "completed",
        result,
      },
    ]);
  });

  test("an entry is as many events as the table says, so that their numbers hold", () => {
    const state = folded(COMPLETED);
    const others: JournalEntry[] = [
      ["fail", "total", at(9), "x"],
      ["retry", "total", at(9), 1, "x"],
      ["part", "letter", at(9), { type: "text-delta", id: "1", delta: "x" }],
      ["error", "total", at(9), "x"],
      ["cancel", "", at(9), "x"],
    ];
    for (const entry of [...COMPLETED, ...others]) {
      assert.equal(eventTexts(entry, state, OUTLINE).length, EVENT_COUNTS[entry[0]], entry[0]);
    }
    assert.equal(state.sequence, streamOf(COMPLETED).length);
  });

  test("a step that fails, and with it the workflow: step-error, workflow-error, workflow-result", () => {
    const failed: JournalEntry[] = [BEGUN, ["fail", "total", at(2), 'no "tax"'], ["error", "total", at(3), 'no "tax"']];
    const error = { message: 'no "tax"', stepId: "total" };
    assert.deepEqual(streamOf(failed).slice(2), [
      { type: "step-error", ...step("total", 0), timestamp: iso(2), status: "error", error },
      { type: "workflow-error", ...flow, timestamp: iso(3), status: "error", error },
      {
        type: "workflow-result",
        ...HEAD,
        timestamp: iso(3),
        startAt: iso(0),
        endAt: iso(3),
        status: "error",
        result: null,
        error,
      },
    ]);
  });

  test("an error of no step names none", () => {
    const [error, result] = last([["error", "", at(3), "the workflow timed out after 1m"]]);
    assert.deepEqual(error!.error, { message: "the workflow timed out after 1m" });
    assert.deepEqual(result!.error, error!.error);
  });

  test("cancelled: workflow-cancelled and workflow-result say when and why", () => {
    const cancellation = { cancelledAt: iso(6), reason: "No longer needed" };
    const [cancelled, result] = last([BEGUN, ["cancel", "", at(6), "No longer needed"]]);
    assert.deepEqual(cancelled, {
      type: "workflow-cancelled",
      ...flow,
      timestamp: iso(6),
      status: "cancelled",
      cancellation,
    });
    assert.equal(result!.status, "cancelled");
    assert.equal(result!.result, null);
    assert.deepEqual(result!.cancellation, cancellation);
  });

  test("andWhen without a branch to take: step-complete with status skipped and the data passed through", () => {
    const skipped: JournalEntry[] = [
      ["begin", "gate", at(1), "", "none"],
      ["same", "gate", at(2), ""],
    ];
    const [event] = last(skipped);
    assert.equal(event!.type, "step-complete");
    assert.equal(event!.status, "skipped");
    assert.deepEqual(event!.output, { amount: 100 });
  });

  test("a step in a sub-workflow is named by its path, has the sub-workflow's input and the place of the step at the top", () => {
    const [event] = last([
      ["begin", "sub", at(1), "", { input: { n: 1 } }],
      ["begin", "sub/mark", at(2), "sub/"],
    ]);
    assert.deepEqual(event, {
      type: "step-start",
      ...step("sub/mark", 3),
      timestamp: iso(2),
      status: "running",
      input: { n: 1 },
    });
  });

  test("agent-part hands on the part as it is", () => {
    const part = { type: "text-delta", id: "1", delta: 'a "b"\n' };
    const [event] = last([
      ["begin", "letter", at(1), ""],
      ["part", "letter", at(2), part],
    ]);
    assert.deepEqual(event, { type: "agent-part", ...step("letter", 4, "andAgent"), timestamp: iso(2), data: part });
  });

  test("suspended by the API: no data is handed out; between steps no step is named", () => {
    const [suspended] = last([["suspend", "ask", at(5), "API request", null]]);
    const suspension = { suspendedAt: iso(5), reason: "API request", stepIndex: 1, stepId: "ask" };
    assert.deepEqual(suspended!.suspension, suspension);
    const [nowhere] = last([["suspend", "", at(5), "API request", null]]);
    assert.deepEqual(nowhere!.suspension, { suspendedAt: iso(5), reason: "API request", stepIndex: 0 });
  });

  test("resumed at no step in particular: the metadata names none", () => {
    const [event] = last([
      ["suspend", "", at(5), "API request", null],
      ["resume", "", at(6)],
    ]);
    assert.deepEqual(event!.metadata, { resumed: true });
  });

  test("a replay that gives its step another input: step-start shows that one", () => {
    const replay = { executionId: "e0", stepId: "total", kept: [], input: { value: { amount: 5 } } };
    const [event] = last([["begin", "total", at(1), "!"]], { replay });
    assert.deepEqual(event!.input, { amount: 5 });
  });

  test("a value that is null or missing is null", () => {
    const state = folded([], { input: undefined });
    assert.equal(parse([startEvent(state, OUTLINE)])[0]!.input, null);
    const [done] = last([BEGUN, ["done", "total", at(2), null]]);
    assert.equal(done!.output, null);
    const [, result] = last([["end", "", at(2), undefined]]);
    assert.equal(result!.result, null);
  });

  test("eventTexts: names with quotes do not break the JSON; a step that the outline does not know has neither place nor type", () => {
    const state: JournalState = folded([], { workflowId: 'a "b" \\ c' });
    assert.equal(parse([startEvent(state, OUTLINE)])[0]!.from, 'a "b" \\ c');
    applyEntry(state, BEGUN);
    const [event] = parse(eventTexts(BEGUN, state, outlineWith({})));
    assert.deepEqual(Object.keys(event!), ["type", "executionId", "timestamp", "from", "status", "input"]);
  });
});
