/** The run: a model call, its tool calls, the next model call, until the model has said what it had to say. */
import type { LanguageModelV3Message } from "@ai-sdk/provider";
import { ServiceError } from "../../lib/errors.ts";
import type { ModelStream } from "../../models/chain.ts";
import { Aborted } from "./abort.ts";
import { ModelStep } from "./model-step.ts";
import type { OutputSpec } from "./output.ts";
import type { PartSink } from "./parts.ts";
import { CallOptions, type RunPlan, type RunResult, type ToolContent } from "./run.ts";
import { beginModelCallSpan, endModelCallSpan } from "./spans.ts";
import { runToolCalls } from "./tool-calls.ts";
import { addUsage } from "./usage.ts";

/**
 * Runs the plan. `outcome` grows on the way and is whole when the promise resolves.
 *
 * @throws ServiceError `provider_failed` when the model fails or its answer does not fit, whatever the signal's reason
 * is once it aborts, Aborted when the sink has closed, and `unavailable` when the turn cannot be stored.
 */
export async function runLoop(plan: RunPlan, sink: PartSink, outcome: RunResult): Promise<void> {
  const options = new CallOptions(plan);
  for (let count = 1; ; count++) {
    const { step, answers } = await takeStep(plan, options, sink, outcome, count === 1);
    if (step.calls.length === 0 || count >= plan.settings.maxSteps) {
      if (plan.output !== null) await settleOutput(plan, plan.output, extended(options, step, answers), sink, outcome);
      break;
    }
    options.prompt = extended(options, step, answers).prompt;
  }
  // The last part says that all is done: it does not go out before what was said is stored.
  if (plan.turn !== null) await plan.turn.finish();
  const { finishReason, usage: totalUsage, output } = outcome;
  const finish = { type: "finish", finishReason, totalUsage } as const;
  const wait = sink.part(output === undefined ? finish : { ...finish, output });
  if (wait !== undefined) await wait;
}

async function takeStep(plan: RunPlan, options: CallOptions, sink: PartSink, outcome: RunResult, first: boolean) {
  const span = plan.span === null ? null : beginModelCallSpan(plan.span, plan.chain);
  const step = new ModelStep(sink, outcome, span);
  let stream: ModelStream;
  try {
    stream = await plan.chain.stream(options, span);
  } catch (error) {
    if (span !== null) endModelCallSpan(span, plan, options, step, error);
    throw error;
  }
  if (first) {
    sink.accepted?.();
    sink.part({ type: "start" });
  }
  sink.part({ type: "start-step" });
  try {
    await step.read(stream);
    if (span !== null) endModelCallSpan(span, plan, options, step, null);
  } catch (error) {
    if (span !== null) endModelCallSpan(span, plan, options, step, error);
    throw error;
  } finally {
    outcome.text = step.text;
    outcome.finishReason = step.finishReason;
    addUsage(outcome.usage, step.usage);
    stream.meter?.used(step.usage);
  }
  const answers = step.calls.length === 0 ? [] : await runToolCalls(plan, step.calls, sink, outcome);
  const wait = sink.part({ type: "finish-step", usage: step.usage, finishReason: step.finishReason });
  if (wait !== undefined) await wait;
  if (sink.closed) throw new Aborted();
  return { step, answers };
}

/** The options of the next call: the prompt goes on with what was said and answered. */
function extended(options: CallOptions, step: ModelStep, answers: ToolContent): CallOptions {
  const prompt: LanguageModelV3Message[] = [...options.prompt];
  const content = step.content.filter((part) => part.type !== "text" || part.text !== "");
  if (content.length > 0) prompt.push({ role: "assistant", content });
  if (answers.length > 0) prompt.push({ role: "tool", content: answers });
  options.prompt = prompt;
  return options;
}

/** Reads the result out of the last answer; one that does not fit gets one more try. */
async function settleOutput(
  plan: RunPlan,
  output: OutputSpec,
  options: CallOptions,
  sink: PartSink,
  outcome: RunResult,
): Promise<void> {
  let read = output.read(outcome.text);
  if ("problem" in read) {
    options.prompt.push({
      role: "user",
      content: [{ type: "text", text: complaint(read.problem, output.schemaText) }],
    });
    if (options.tools !== undefined) options.toolChoice = { type: "none" };
    await takeStep(plan, options, sink, outcome, false);
    read = output.read(outcome.text);
  }
  if ("problem" in read) {
    throw new ServiceError("provider_failed", `the model's answer does not fit the schema: ${read.problem}`);
  }
  outcome.output = read.value;
}

/** Some models are never told the schema by their provider: here they get to read it. */
function complaint(problem: string, schema: string): string {
  const ask = `That answer does not fit: ${problem}. Answer again with the corrected JSON alone, without any other text.`;
  return schema === "" ? ask : `${ask} It must conform to this JSON Schema: ${schema}`;
}
