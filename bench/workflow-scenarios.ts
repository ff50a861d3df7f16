/** Workflows: three steps on a SQLite file at `synchronous=FULL` and in memory, a stream of them, and pairs of suspend and resume. */
import { ID } from "./numbers.ts";
import { enveloped, eventsOf } from "./replies.ts";
import type { HttpScenario } from "./scenarios.ts";

const STEPS = ["total", "shape", "rate"];
const REASON = "Manager approval needed";
const input = { employee: "Ada", amount: 100 };
const execute = {
  kind: "http",
  method: "POST",
  path: "/workflows/expense/execute",
  body: JSON.stringify({ input }),
  check: enveloped(({ status, result }) =>
    status === "completed" && (result as { sum: number }).sum === 121 ? null : "another result",
  ),
} as const;

/** The reply of the first request of a pair, or of the second. */
const paired = enveloped(({ status, result, suspension }) => {
  if (status === "suspended") return (suspension as { reason: string }).reason === REASON ? null : "another reason";
  return status === "completed" && (result as { approved: boolean }).approved ? null : "another result";
});

function streamed(body: string): string | null {
  const events = eventsOf(body);
  const steps = events.filter(({ type }) => type === "step-complete").map(({ from }) => from);
  if (steps.join() !== STEPS.join()) return `steps ${steps.join()} are complete`;
  const last = events.at(-1);
  if (last?.type !== "workflow-result" || last.status !== "completed")
    return `the last event is ${JSON.stringify(last)}`;
  return (last.result as { sum: number }).sum === 121 ? null : "another result";
}

const PAIR: HttpScenario = {
  kind: "http",
  service: "workflow",
  name: "workflow-resume",
  title: "suspend and resume, two requests a pair",
  method: "POST",
  path: "/workflows/approval/execute",
  body: JSON.stringify({ input: { amount: 100 } }),
  next: {
    id: '"executionId":"([^"]+)".*"status":"suspended"',
    path: `/workflows/approval/executions/${ID}/resume`,
    body: JSON.stringify({ resumeData: { approved: true } }),
  },
  aim: { measure: "requests/s", least: 10_000 },
  check: paired,
};

export const WORKFLOW_SCENARIOS: readonly HttpScenario[] = [
  {
    ...execute,
    service: "workflow",
    name: "workflow",
    title: "POST /workflows/:id/execute, three steps",
    aim: { measure: "requests/s", least: 10_000 },
  },
  {
    ...execute,
    service: "workflow-memory",
    name: "workflow-memory",
    title: "the same in memory",
    aim: { measure: "requests/s", least: 30_000 },
  },
  {
    ...execute,
    service: "workflow",
    name: "workflow-stream",
    title: "POST /workflows/:id/stream, three steps",
    path: "/workflows/expense/stream",
    aim: { measure: "requests/s", least: 10_000 },
    check: streamed,
  },
  PAIR,
  {
    ...PAIR,
    service: "workflow-memory",
    name: "workflow-resume-memory",
    title: "suspend and resume in memory, two requests a pair",
    aim: { measure: "requests/s", least: 20_000 },
  },
];
