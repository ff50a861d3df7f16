/** Contract, "Workflow execution record", "Execution result", "Execution state": made from a journal by hand. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { expand } from "../../../core/workflows/journal/compact-text.ts";
import type { JournalEntry } from "../../../core/workflows/journal/entries.ts";
import { executionRecord, executionResultText, executionStateView } from "../../../core/workflows/journal/record.ts";
import type { JournalState } from "../../../core/workflows/journal/state.ts";
import { validators } from "../../../generated/all-validators.js";
import type { ExecutionResult, ExecutionState, WorkflowExecution } from "../../../generated/types.ts";
import { at, COMPLETED, folded, iso, OUTLINE, SUSPENDED } from "../../support/journals.ts";

function recordOf(state: JournalState): WorkflowExecution {
  const record = JSON.parse(expand(executionRecord(state, OUTLINE)).join("")) as WorkflowExecution;
  assert.ok(validators.WorkflowExecution(record), JSON.stringify(validators.WorkflowExecution.errors));
  return record;
}

function resultOf(state: JournalState): ExecutionResult {
  const result = JSON.parse(executionResultText(state, OUTLINE)) as ExecutionResult;
  assert.ok(validators.ExecutionResult(result), JSON.stringify(validators.ExecutionResult.errors));
  return result;
}

function state(current: JournalState): ExecutionState {
  const value = executionStateView(current, OUTLINE);
  assert.ok(validators.ExecutionState(value), JSON.stringify(validators.ExecutionState.errors));
  return value;
}

/** How the steps stand: `total: step-complete success`. */
const standing = (state: JournalState) =>
  recordOf(state)
    .events.slice(1)
    .map(({ from, type, status }) => `${from}: ${type} ${status}`);

const FIRST = { name: "Expense approval", from: "expense" };
const START = { id: "start", type: "workflow-start", ...FIRST, startTime: iso(0), endTime: iso(0), status: "running" };
const RESULT = { total: 120, approved: true };

describe("executionRecord", () => {
  test("executionRecord of an execution that is completed: its start, every step with its times, status and output, its end", () => {
    const owner = { userId: "ada", conversationId: 'c "1"', metadata: { team: "sales" } };
    assert.deepEqual(recordOf(folded(COMPLETED, owner)), {
      id: "e1",
      workflowId: "expense",
      workflowName: "Expense approval",
      status: "completed",
      userId: "ada",
      conversationId: 'c "1"',
      input: { amount: 100 },
      metadata: { team: "sales" },
      events: [
        { ...START, input: { amount: 100 } },
        {
          id: "step:total",
          type: "step-complete",
          name: "Add tax",
          from: "total",
          startTime: iso(1),
          endTime: iso(2),
          status: "success",
          output: { total: 120 },
        },
        {
          id: "step:gate",
          type: "step-complete",
          name: "gate",
          from: "gate",
          startTime: iso(3),
          endTime: iso(103),
          status: "success",
          output: RESULT,
        },
        {
          id: "step:ask",
          type: "step-complete",
          name: "ask",
          from: "ask",
          startTime: iso(101),
          endTime: iso(102),
          status: "success",
          output: RESULT,
        },
        {
          id: "end",
          type: "workflow-complete",
          ...FIRST,
          startTime: iso(104),
          endTime: iso(104),
          status: "success",
          output: RESULT,
        },
      ],
      output: RESULT,
      createdAt: iso(0),
      updatedAt: iso(104),
    });
  });

  test("executionRecord of an execution that is suspended: the suspension, and a last event without an end", () => {
    const record = recordOf(folded(SUSPENDED));
    assert.equal(record.status, "suspended");
    assert.ok(!("output" in record) && !("userId" in record) && !("error" in record));
    assert.deepEqual(record.metadata, {});
    assert.deepEqual(record.suspension, {
      suspendedAt: iso(5),
      reason: "Manager approval needed",
      stepIndex: 1,
      stepId: "ask",
      suspendData: { amount: 120 },
    });
    assert.deepEqual(record.events.at(-1), {
      id: "end",
      type: "workflow-suspended",
      ...FIRST,
      startTime: iso(5),
      status: "suspended",
    });
    assert.deepEqual(standing(folded(SUSPENDED)), [
      "total: step-complete success",
      "gate: step-start suspended",
      "ask: step-start suspended",
      "expense: workflow-suspended suspended",
    ]);
  });

  test("executionRecord of an execution that runs: no end, and steps that run, wait, or are about to run again", () => {
    assert.deepEqual(standing(folded(SUSPENDED.slice(0, 5))), [
      "total: step-complete success",
      "gate: step-start running",
      "ask: step-start suspended",
    ]);
    assert.deepEqual(standing(folded(COMPLETED.slice(0, 7))).slice(1), [
      "gate: step-start running",
      "ask: step-start running",
    ]);
  });

  test("executionRecord of an execution that failed: the error, the failed step, and branches that were given up", () => {
    const state = folded([
      ["begin", "both", at(1), ""],
      ["begin", "a", at(1), ""],
      ["begin", "b", at(1), ""],
      ["fail", "a", at(2), "out of paper"],
      ["fail", "both", at(2), "out of paper"],
      ["error", "a", at(3), "out of paper"],
    ]);
    const record = recordOf(state);
    assert.equal(record.status, "error");
    assert.deepEqual(record.error, { message: "out of paper", stepId: "a" });
    assert.deepEqual(record.events.at(-1)!.error, record.error);
    assert.deepEqual(record.events[2]!.error, record.error);
    assert.deepEqual(standing(state), [
      "both: step-error error",
      "a: step-error error",
      "b: step-start cancelled",
      "expense: workflow-error error",
    ]);
  });

  test("executionRecord of an execution that was cancelled while it waited: the cancellation, and no suspension", () => {
    const state = folded([...SUSPENDED, ["cancel", "", at(9), "No longer needed"]]);
    const record = recordOf(state);
    assert.deepEqual(record.cancellation, { cancelledAt: iso(9), reason: "No longer needed" });
    assert.ok(!("suspension" in record));
    assert.deepEqual(standing(state).slice(1), [
      "gate: step-start cancelled",
      "ask: step-start cancelled",
      "expense: workflow-cancelled cancelled",
    ]);
  });

  test("executionRecord of a replay: where it comes from; what it took over is done since it began", () => {
    const replay = { executionId: "e0", stepId: "gate", kept: [["done", "total", { total: 1 }]] as const };
    const record = recordOf(
      folded(
        [
          ["begin", "gate", at(1), "total", "none"],
          ["same", "gate", at(2), "total"],
        ],
        { replay },
      ),
    );
    assert.equal(record.replayedFromExecutionId, "e0");
    assert.equal(record.replayFromStepId, "gate");
    const [, total, gate] = record.events;
    assert.deepEqual([total!.startTime, total!.endTime, total!.output], [iso(0), iso(0), { total: 1 }]);
    assert.deepEqual([gate!.status, gate!.output], ["skipped", { total: 1 }]);
  });

  test("a step that hands on what came before shows it, whatever lies between", () => {
    const state = folded([
      ["begin", "total", at(1), ""],
      ["done", "total", at(1), 1],
      ["begin", "gate", at(1), "total", "then"],
      ["begin", "ask", at(1), "total"],
      ["done", "ask", at(1), null],
      ["same", "gate", at(2), "total"],
      ["end", "", at(3), 1],
    ]);
    const record = recordOf(state);
    assert.deepEqual(
      record.events.slice(1).map(({ output }) => output),
      [1, 1, null, 1],
    );
    assert.equal(record.output, 1);
  });

  test("executionRecord: names and texts with quotes do not break the JSON", () => {
    const name = 'Say "hi" \\ \u2028';
    const record = recordOf(
      folded(
        [
          ["begin", "sub/mark", at(1), ""],
          ["fail", "sub/mark", at(2), name],
        ],
        { workflowName: name, userId: name },
      ),
    );
    assert.equal(record.workflowName, name);
    assert.equal(record.userId, name);
    assert.equal(record.events[1]!.name, 'Mark "it"');
    assert.equal(record.events[1]!.error!.message, name);
  });
});

describe("executionResultText", () => {
  test("executionResultText of one that suspended has no end, no result, and where it stands", () => {
    assert.deepEqual(resultOf(folded(SUSPENDED)), {
      executionId: "e1",
      startAt: iso(0),
      endAt: null,
      status: "suspended",
      result: null,
      suspension: {
        suspendedAt: iso(5),
        reason: "Manager approval needed",
        suspendedStepIndex: 1,
        stepId: "ask",
        suspendData: { amount: 120 },
      },
    });
  });

  test("executionResultText of one that was cancelled or failed meanwhile is its error", () => {
    const cancelled = resultOf(folded([["cancel", "", at(9), ""]]));
    assert.deepEqual([cancelled.status, cancelled.result, cancelled.endAt], ["cancelled", null, iso(9)]);
    const failed = resultOf(folded([["error", "", at(9), "x"]]));
    assert.deepEqual([failed.status, failed.error], ["error", { message: "x" }]);
  });

  test("executionResultText throws while the execution runs", () => {
    assert.throws(() => executionResultText(folded([]), OUTLINE), /has no result yet/);
  });
});

describe("executionStateView", () => {
  test("executionStateView of a suspended execution: its context, shared state and where it stands", () => {
    assert.deepEqual(state(folded(SUSPENDED, { context: { language: "de" }, state: { n: 1 }, userId: "ada" })), {
      executionId: "e1",
      workflowId: "expense",
      status: "suspended",
      startAt: iso(0),
      input: { amount: 100 },
      context: { language: "de" },
      workflowState: { n: 1, seen: true },
      userId: "ada",
      suspension: {
        suspendedAt: iso(5),
        reason: "Manager approval needed",
        stepIndex: 1,
        stepId: "ask",
        suspendData: { amount: 120 },
      },
    });
  });

  test("executionStateView of an execution that ended: when, and why", () => {
    const rests: [entry: JournalEntry, expected: object][] = [
      [["end", "", at(9), 1], { status: "completed" }],
      [["error", "total", at(9), "x"], { status: "error", error: { message: "x", stepId: "total" } }],
      [["cancel", "", at(9), "y"], { status: "cancelled", cancellation: { cancelledAt: iso(9), reason: "y" } }],
    ];
    for (const [entry, expected] of rests) {
      const { executionId, workflowId, startAt, input, context, workflowState, ...rest } = state(folded([entry]));
      assert.deepEqual(rest, { endAt: iso(9), ...expected });
    }
  });

  test("executionStateView of a replay: where it comes from", () => {
    const { replayedFromExecutionId, replayFromStepId, status } = state(
      folded([], { replay: { executionId: "e0", stepId: "sub/mark", kept: [] } }),
    );
    assert.deepEqual([replayedFromExecutionId, replayFromStepId, status], ["e0", "sub/mark", "running"]);
  });
});
