/** Executions made by hand: a start and the entries of a journal, without anything that ran them. */
import type { Outline, StepOutline, StepType } from "../../core/workflows/definition/definition.ts";
import type { ExecutionStart, JournalEntry } from "../../core/workflows/journal/entries.ts";
import { type JournalState, stateFromJournal } from "../../core/workflows/journal/state.ts";

/** When everything begins; entries count the milliseconds from there. */
const BEGIN = Date.parse("2026-11-20T09:30:00.000Z");
export const at = (milliseconds: number): number => BEGIN + milliseconds;
export const iso = (milliseconds: number): string => new Date(at(milliseconds)).toISOString();

export function startOf(overrides: Partial<ExecutionStart> = {}): ExecutionStart {
  return {
    id: "e1",
    number: 7,
    workflowId: "expense",
    workflowName: "Expense approval",
    definition: "hash",
    at: BEGIN,
    input: { amount: 100 },
    context: {},
    state: {},
    ...overrides,
  };
}

/** Every step with its type, in the order of the text. What is behind a `/` is in a sub-workflow; `in` names other holders. */
export function outlineWith(steps: Record<string, { type?: StepType; name?: string; in?: string }>): Outline {
  const outline = new Map<string, StepOutline>();
  let top = -1;
  for (const [path, { type = "andThen", name, in: holder }] of Object.entries(steps)) {
    const parent = holder ?? (path.includes("/") ? path.slice(0, path.lastIndexOf("/")) : undefined);
    const held = parent === undefined ? undefined : outline.get(parent)!;
    const index = held?.index ?? ++top;
    const parents = held === undefined ? [] : [...held.parents, held.path];
    const id = path.slice(path.lastIndexOf("/") + 1);
    outline.set(path, { path, id, name: name ?? id, type, index, order: outline.size, parents });
  }
  return outline;
}

/** A workflow with a step of every kind that stands differently in a journal. */
export const OUTLINE = outlineWith({
  total: { name: "Add tax" },
  gate: { type: "andWhen" },
  ask: { in: "gate" },
  both: { type: "andAll" },
  a: { in: "both" },
  b: { in: "both" },
  sub: { type: "andWorkflow" },
  "sub/mark": { name: 'Mark "it"' },
  letter: { type: "andAgent" },
});

/** Two steps, the second of which waits. */
export const SUSPENDED: readonly JournalEntry[] = [
  ["begin", "total", at(1), ""],
  ["done", "total", at(2), { total: 120 }, { seen: true }],
  ["begin", "gate", at(3), "total", "then"],
  ["begin", "ask", at(3), "total"],
  ["wait", "ask", at(4), "Manager approval needed", { amount: 120 }],
  ["suspend", "ask", at(5), "Manager approval needed", { amount: 120 }],
];

/** The same, resumed and done. */
export const COMPLETED: readonly JournalEntry[] = [
  ...SUSPENDED,
  ["resume", "ask", at(100), { approved: true }],
  ["begin", "ask", at(101), "total"],
  ["done", "ask", at(102), { total: 120, approved: true }],
  ["same", "gate", at(103), "ask"],
  ["end", "", at(104), { total: 120, approved: true }],
];

export const folded = (entries: readonly JournalEntry[], overrides: Partial<ExecutionStart> = {}): JournalState =>
  stateFromJournal(startOf(overrides), entries);
