/** The tool calls of one step: all at once, each failure told to the model. */
import { messageOf, ServiceError } from "../../lib/errors.ts";
import type { Span } from "../../observability/span.ts";
import { cancelSpan } from "../../observability/spans.ts";
import { toolResultText } from "../../tools/execute.ts";
import { toolFailure, toolOutput } from "../prompt/tool-output.ts";
import type { PartSink, ToolResult } from "./parts.ts";
import type { RunPlan, RunResult, ToolContent } from "./run.ts";
import { beginToolCallSpan, endToolCallSpan } from "./spans.ts";
import type { PendingCall } from "./tool-input.ts";
import type { ToolRun } from "./tool-set.ts";

type Answer = ToolContent[number];

/** Calls that run in one step: a model that has lost its way may ask for thousands. */
const MOST_CALLS = 128;

/**
 * Runs the calls side by side; results go to the sink as they come, and to the next prompt in the order of the calls.
 *
 * @throws only when the run is aborted.
 */
export async function runToolCalls(
  plan: RunPlan,
  calls: readonly PendingCall[],
  sink: PartSink,
  outcome: RunResult,
): Promise<ToolContent> {
  const results: (ToolResult | null)[] = new Array(calls.length).fill(null);
  const answers = await Promise.all(
    calls.map(async (call, index): Promise<Answer> => {
      const { toolCallId, toolName, input } = call.part;
      const span = plan.span === null ? null : beginToolCallSpan(plan.span, call.part);
      let output: unknown;
      try {
        if (index >= MOST_CALLS) throw new Error(`too many calls in one step: at most ${MOST_CALLS} run`);
        const given = callTool(plan, call, sink, span);
        // A tool that answers at once costs no wait, and its result keeps its place.
        output = checkJson(toolName, given instanceof Promise ? await given : given);
        if (span !== null) endToolCallSpan(span, output);
      } catch (error) {
        if (plan.call.signal.aborted) {
          if (span !== null) cancelSpan(span);
          throw error;
        }
        const message = messageOf(error);
        span?.fail(error instanceof ServiceError ? error.kind : "tool_failed", message);
        const wait = sink.part({ type: "tool-error", toolCallId, toolName, input, error: message });
        if (wait !== undefined) await wait;
        return { type: "tool-result", toolCallId, toolName, output: toolFailure(message) };
      }
      const result: ToolResult = { type: "tool-result", toolCallId, toolName, input, output };
      results[index] = result;
      const wait = sink.part(result);
      if (wait !== undefined) await wait;
      return { type: "tool-result", toolCallId, toolName, output: toolOutput(output) };
    }),
  );
  for (const result of results) if (result !== null) outcome.toolResults.push(result);
  return answers;
}

function callTool(plan: RunPlan, call: PendingCall, sink: PartSink, span: Span | null): unknown {
  const { toolName, toolCallId, input } = call.part;
  const tool = plan.tools.byName.get(toolName);
  if (tool === undefined) throw new Error(unknownTool(plan, toolName));
  if (call.problem !== null) throw new Error(call.problem);
  return tool.run(input, toolRun(plan, sink, toolCallId, span));
}

function toolRun(plan: RunPlan, sink: PartSink, toolCallId: string, span: Span | null): ToolRun {
  const { conversationId } = plan.settings.memory;
  const { context } = plan.settings;
  const origin = { call: plan.call, context, idempotencyKey: `${plan.id}:${toolCallId}`, span };
  return {
    origin: conversationId === undefined ? origin : { ...origin, conversationId },
    sink,
    depth: plan.depth,
    turn: plan.turn,
    span,
  };
}

function unknownTool(plan: RunPlan, name: string): string {
  const names = [...plan.tools.byName.keys()];
  return `there is no tool ${JSON.stringify(name)}; ${names.length === 0 ? "there are none" : `there is ${names.join(", ")}`}`;
}

/** Types that are JSON whatever the value. */
const PLAIN = new Set(["string", "number", "boolean"]);

/** What a reply could not carry is the tool's failure, not the reply's. */
function checkJson(name: string, output: unknown): unknown {
  if (output === undefined) return null;
  if (!PLAIN.has(typeof output)) toolResultText(name, output);
  return output;
}
