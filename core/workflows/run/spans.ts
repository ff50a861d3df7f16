/**
 * The trace of an execution, from its start or resume until it settles: one span per step. The spans are derived from the entries of
 * the journal, so that trace and record agree. A later resume is a trace of its own, linked to the first one.
 */
import { CommitConflict } from "../../lib/errors.ts";
import type { StepOutcome, WorkflowMeter } from "../../observability/metrics/meters.ts";
import {
  CONTENT,
  cancelSpan,
  type Entity,
  failSpan,
  type Span,
  type SpanContext,
  type SpanOrigin,
  STEP_RETRY,
  stepAttributes,
  stepSpan,
  workflowAttributes,
  workflowSpan,
} from "../../observability/span.ts";
import type { Outline } from "../definition/definition.ts";
import type { EntryKind, ExecutionStart, JournalEntry, StepPath } from "../journal/entries.ts";
import type { JournalState } from "../journal/state.ts";

/** Why an execution runs. */
export type RunReason = "execute" | "resume" | "replay" | "recovery";

const OK = Object.freeze({ code: 1 } as const);

const toEntity = ({
  workflowId: id,
  workflowName: name,
}: Pick<ExecutionStart, "workflowId" | "workflowName">): Entity => ({
  type: "workflow",
  id,
  name,
});

type TracedStart = Pick<ExecutionStart, "workflowId" | "workflowName" | "userId">;

/** @returns null when the execution is not traced */
export function beginWorkflow(origin: SpanOrigin | undefined, start: TracedStart): Span | null {
  return origin?.begin(workflowSpan(start.workflowName), 0, toEntity(start), start.userId) ?? null;
}

/** A span as `ExecutionStart.trace` stores it. */
export const contextText = ({ traceId, spanId }: SpanContext): string => `${traceId}-${spanId}`;

function parseContext(text: string): SpanContext {
  const [traceId = "", spanId = ""] = text.split("-");
  return { traceId, spanId };
}

/** The status of a step that is still open when its execution settles, by the entry with which that happens. */
const STATUS_WHEN_LEFT_OPEN: Readonly<Partial<Record<JournalEntry[0], "suspended" | "cancelled">>> = {
  suspend: "suspended",
  end: "cancelled",
  error: "cancelled",
  cancel: "cancelled",
};

export class ExecutionSpans {
  readonly root: Span;
  readonly #outline: Outline;
  /** Spans of steps that have started and not ended, by path. The span of a called workflow has the path of its step and `/`. */
  readonly #open = new Map<string, Span>();
  /** The open spans directly inside a span, by the same keys. */
  readonly #inside = new Map<string, Set<string>>();

  /** @param before `ExecutionStart.trace` of the execution that is resumed or replayed */
  constructor(root: Span, { start }: JournalState, outline: Outline, occasion: RunReason, before: string | undefined) {
    this.root = root;
    this.#outline = outline;
    root.set(workflowAttributes(start.workflowName, start.id, start.conversationId, occasion));
    root.content(CONTENT.input, start.input);
    if (before !== undefined) root.link(parseContext(before));
  }

  /** The span of a running step. A step that started before a restart gets a new span. */
  of(path: StepPath): Span {
    return this.#open.get(path) ?? this.#begin(path);
  }

  /** Starts and ends spans for an entry that was appended. `state` is the state after it. */
  entry(entry: JournalEntry, state: JournalState): void {
    const [kind, path] = entry;
    const left = STATUS_WHEN_LEFT_OPEN[kind];
    if (left !== undefined) this.#closeAll(left);
    else if (kind === "begin") this.of(path);
    else if (kind === "done" || kind === "same") this.#done(path, state);
    else if (kind === "fail") this.#end(path, "error", entry[3]);
    else if (kind === "wait") this.#end(path, "suspended");
    else if (kind === "retry") this.#open.get(path)?.event(STEP_RETRY, { "workflow.step.attempt": entry[3] });
  }

  /** Ends all spans: the execution has settled, or this process gives it up because of `thrown`. */
  end({ status, error, output }: JournalState, thrown?: unknown): void {
    const { root } = this;
    this.#closeAll("cancelled");
    root.set({ "workflow.execution.status": status });
    if (status === "completed") root.content(CONTENT.output, output);
    if (thrown instanceof CommitConflict) root.fail("conflict", "another process was first");
    else if (thrown !== undefined) failSpan(root, thrown);
    else if (status === "error") root.fail("step_failed", error?.message ?? "");
    else if (status === "cancelled") cancelSpan(root);
    else if (status === "running") root.fail("interrupted", "the process stopped: the execution goes on later");
    else root.finish(OK);
  }

  #begin(path: StepPath): Span {
    const place = this.#outline.get(path);
    const above = place?.parents.at(-1);
    const parent = above === undefined ? this.root : this.#parentInside(above);
    if (above !== undefined) this.#put(this.#keyInside(above), path);
    const type = place?.type ?? "andThen";
    const span = parent.child(stepSpan(type, place?.id ?? path), 0);
    span.set(stepAttributes(path, place?.name ?? path, type));
    this.#open.set(path, span);
    return span;
  }

  /** The parent of the spans in a container step: the step itself, or the workflow that it calls. */
  #parentInside(path: StepPath): Span {
    const step = this.of(path);
    const calls = this.#outline.get(path)?.calls;
    if (calls === undefined) return step;
    const key = this.#keyInside(path);
    const known = this.#open.get(key);
    if (known !== undefined) return known;
    const span = step.begin(workflowSpan(calls.workflowName), 0, toEntity(calls));
    span.set(workflowAttributes(calls.workflowName, undefined, undefined, undefined));
    this.#open.set(key, span);
    this.#put(path, key);
    return span;
  }

  /** The key of the span that contains the spans of the steps inside a container step. */
  #keyInside(path: StepPath): string {
    return this.#outline.get(path)?.calls === undefined ? path : `${path}/`;
  }

  #put(outer: string, key: string): void {
    const inside = this.#inside.get(outer);
    if (inside === undefined) this.#inside.set(outer, new Set([key]));
    else inside.add(key);
  }

  #done(path: StepPath, { steps, values }: JournalState): void {
    const step = steps.get(path);
    const span = this.#open.get(path);
    if (span?.wantsContent && step !== undefined) span.content(CONTENT.output, values.get(step.output));
    this.#end(path, step?.status === "skipped" ? "skipped" : "success");
  }

  /** Ends the span of a step, of the workflow that it calls, and of steps inside it that were stopped with it. */
  #end(path: StepPath, status: string, message?: string): void {
    for (const key of [`${path}/`, path]) {
      this.#closeInside(key, status === "suspended" ? status : "cancelled");
      this.#close(key, status, message);
    }
  }

  /** Ends the spans inside a span, the latest first, and before each those inside it. */
  #closeInside(outer: string, status: "suspended" | "cancelled"): void {
    const inside = this.#inside.get(outer);
    if (inside === undefined) return;
    this.#inside.delete(outer);
    for (const key of [...inside].reverse()) {
      this.#closeInside(key, status);
      this.#close(key, status);
    }
  }

  #closeAll(status: "suspended" | "cancelled"): void {
    for (const open of [...this.#open.keys()].reverse()) this.#close(open, status);
  }

  #close(key: string, status: string, message?: string): void {
    const span = this.#open.get(key);
    if (span === undefined) return;
    this.#open.delete(key);
    span.set({ "workflow.step.status": status });
    if (status === "error") span.fail("step_failed", message ?? "");
    else if (status === "cancelled") cancelSpan(span);
    else span.finish(status === "suspended" ? OK : undefined);
  }
}

// Counts steps by the entries of the journal.

/** The outcome of a step that an entry records. */
const OUTCOMES: Readonly<Partial<Record<EntryKind, StepOutcome>>> = {
  done: "done",
  same: "done",
  fail: "failed",
  retry: "retried",
  wait: "suspended",
};

export function countStep(meter: WorkflowMeter | undefined, [kind, path]: JournalEntry): void {
  const outcome = OUTCOMES[kind];
  if (outcome !== undefined) meter?.steps.of(path).count(outcome);
}
