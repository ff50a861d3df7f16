/** The loop of a run: a model call, its tool calls, the next model call, until a step has no tool calls. */
import type { LanguageModelV3Message } from "@ai-sdk/provider";
import { ServiceError } from "../../lib/errors.ts";
import type { ModelStream } from "../../models/chained-answer.ts";
import { acceptable, tidy } from "../prompt/acceptable.ts";
import { CALL_WAITS, type ToolContent } from "../prompt/model-input.ts";
import { callsLeft } from "../prompt/results.ts";
import { KeptParts, type RecordedAnswer, RunWaits, recordedStream } from "./journal.ts";
import { CallOptions, ModelStep, type PendingCall } from "./model-step.ts";
import type { OutputSpec } from "./options.ts";
import type { Finish, PartSink } from "./parts.ts";
import { Aborted, type RunPlan, type RunResult } from "./run.ts";
import { RunCalls } from "./run-calls.ts";
import { beginModelCallSpan, endModelCallSpan } from "./spans.ts";
import { runAwaitedCalls, runToolCalls } from "./tool-calls.ts";
import { ownToolName } from "./tool-set.ts";
import { addUsage, CUT, costOf } from "./usage.ts";

/** A run under way. */
interface Run {
  readonly plan: RunPlan;
  /** Whether it has begun with calls of an earlier answer. */
  readonly isResumed: boolean;
  readonly options: CallOptions;
  readonly calls: RunCalls;
  readonly sink: PartSink;
  readonly outcome: RunResult;
}

/**
 * Runs the plan. `outcome` is filled on the way and complete when the promise resolves.
 *
 * @throws ServiceError `provider_failed` when the model fails or its answer does not match the schema, and `unavailable`
 * when the turn cannot be stored; Aborted when the sink has closed; the signal's reason once it aborts
 */
export async function runLoop(plan: RunPlan, sink: PartSink, outcome: RunResult): Promise<void> {
  const isResumed = plan.awaited.length > 0;
  const { record } = plan;
  if (record !== null && (isResumed || record.journal.isRepeated)) await record.journal.flush();
  if (isResumed) begin(sink);
  if ((isResumed && (await runAwaitedCalls(plan, sink, outcome))) || isLeft(plan, isResumed)) {
    if (!isResumed) begin(sink);
    outcome.finishReason = "tool-calls";
    record?.goOn();
    await finish(plan, sink, outcome);
    return;
  }
  const prompt = acceptable(plan.prompt);
  const options = new CallOptions(plan, prompt);
  const run: Run = { plan, isResumed, options, calls: new RunCalls(plan.tools, prompt), sink, outcome };
  const { maxSteps } = plan.settings;
  let cuts = 0;
  for (let count = 1; ; count++) {
    const { step, answers, open } = await runStep(run, count);
    // The client posts the results of its calls: the answer goes on from them.
    if (open) break;
    const hasCalls = step.calls.length > 0;
    if (CUT[step.finishReason] !== undefined) cuts++;
    const isOver = !hasCalls || cuts > 1;
    if (!isOver && count >= maxSteps)
      plan.call.logger.warn({ maxSteps }, "a run has ended at its maxSteps: its model still called tools");
    if (isOver || count >= maxSteps) {
      if (plan.output !== null) {
        extendPrompt(options, step, answers);
        await resolveResult(run, plan.output, count + 1);
      }
      break;
    }
    extendPrompt(options, step, answers);
  }
  record?.goOn();
  await finish(plan, sink, outcome);
}

function begin(sink: PartSink): void {
  sink.accepted?.();
  sink.part({ type: "start" });
}

/** Whether the client has brought results of the last answer, and still runs others of its calls: the model is asked when it has all. */
function isLeft({ clientRunsTools, prompt, tools }: RunPlan, isResumed: boolean): boolean {
  if (!clientRunsTools) return false;
  const left = callsLeft(
    prompt,
    (name) => tools.byName.get(ownToolName(tools, name))?.clientInput !== undefined,
    isResumed,
  );
  return left.length > 0;
}

/** The last part tells the client that all is done: the turn is stored first, or in one commit with it. */
async function finish({ turn, record }: RunPlan, sink: PartSink, outcome: RunResult): Promise<void> {
  const { finishReason, usage: totalUsage, model, output } = outcome;
  const last: Finish = { type: "finish", finishReason, totalUsage, model };
  if (output !== undefined) last.output = output;
  if (turn !== null) {
    // Filled as the messages get their ids, which is in the commit that the last part is written with.
    turn.ids = Object.assign(last, turn.ids);
    const ended = record !== null && (await record.end(last, (joined) => turn.finish(last, joined)));
    if (!ended) await turn.finish(last);
    const { messageId, userMessageId } = last;
    if (messageId !== undefined) outcome.messageId = messageId;
    if (userMessageId !== undefined) outcome.userMessageId = userMessageId;
    if (ended) return;
  }
  const wait = sink.part(last);
  if (wait !== undefined) await wait;
}

/** @param count its number, from 1 */
async function runStep(run: Run, count: number) {
  const { plan, sink, outcome } = run;
  const recorded = plan.record?.answers.get(count);
  const { step, model } = recorded === undefined ? await askModel(run, count) : await readAgain(run, count, recorded);
  const own = plan.clientRunsTools ? step.calls.filter((call) => !isForClient(plan, call)) : step.calls;
  if (step.kept !== null && own.length > 0) {
    const cost = step.usage.cost;
    await plan.record!.recordAnswer(count, { parts: step.kept.parts, model, cost });
  }
  let answers: ToolContent = [];
  if (own.length > 0) {
    const words = plan.record?.answers.get(-count);
    if (words !== undefined) await endWords(run, await readAgain(run, -count, words));
    try {
      answers = await runToolCalls(plan, count, own, sink, outcome, () => finishStep(run, step, own.length, model));
    } catch (error) {
      if (error instanceof RunWaits) await beforeRest(run, count, step, error.told);
      throw error;
    }
  } else {
    const wait = finishStep(run, step, 0, model);
    if (wait !== undefined) await wait;
  }
  if (sink.closed) throw new Aborted();
  return { step, answers, open: areCallsLeft(step, own.length, outcome) };
}

/**
 * The run comes to rest. A client that cannot answer is not shown the question: the model is told, once, and its words are the reply.
 * Readers of a run that goes on again have their reply already.
 */
async function beforeRest(run: Run, count: number, step: ModelStep, told: ToolContent | null): Promise<void> {
  const { plan, options, outcome } = run;
  outcome.finishReason = "tool-calls";
  if (told === null || !plan.clientRunsTools || plan.record!.journal.isRepeated) return;
  plan.call.nameApproval(outcome.approvals[0]!.approvalId);
  extendPrompt(options, step, told);
  if (options.tools !== undefined) options.toolChoice = { type: "none" };
  try {
    const words = await askModel(run, -count);
    const { kept, usage } = words.step;
    await plan.record!.recordAnswer(-count, { parts: kept!.parts, model: words.model, cost: usage.cost });
    await endWords(run, words);
  } catch (error) {
    if (plan.call.signal.aborted) throw error;
    plan.call.logger.warn({ err: error }, "a run waits for a person, and its model could not say so");
  }
}

/** @param words of a model that is told not to call, and may call all the same */
async function endWords({ plan, sink, outcome }: Run, { step, model }: Asked): Promise<void> {
  for (const { part } of step.calls) {
    const { toolCallId, toolName, input } = part;
    sink.part({ type: "tool-error", toolCallId, toolName, input, error: CALL_WAITS });
  }
  const said = plan.output?.read(outcome.text);
  if (said !== undefined && "value" in said) outcome.output = said.value;
  await sink.part({ type: "finish-step", usage: step.usage, model, finishReason: step.finishReason });
}

function finishStep({ sink, outcome }: Run, step: ModelStep, own: number, model: string): Promise<void> | undefined {
  if (areCallsLeft(step, own, outcome)) {
    step.finishReason = "tool-calls";
    outcome.finishReason = "tool-calls";
  }
  return sink.part({ type: "finish-step", usage: step.usage, model, finishReason: step.finishReason });
}

/** Whether calls of a step wait for the client, or for a person. @param own how many of its calls are not the client's */
function areCallsLeft({ calls }: ModelStep, own: number, { approvals }: RunResult): boolean {
  return own < calls.length || approvals.length > 0;
}

/** A step of a run, and the model that it was answered by. */
interface Asked {
  readonly step: ModelStep;
  readonly model: string;
}

async function askModel({ plan, isResumed, options, calls, sink, outcome }: Run, count: number): Promise<Asked> {
  const { record } = plan;
  const span = plan.span === null ? null : beginModelCallSpan(plan.span, plan.chain);
  const step = new ModelStep(sink, outcome, calls, span, record === null ? null : new KeptParts());
  let stream: ModelStream;
  options.fit();
  try {
    stream = await plan.chain.stream(options, span);
  } catch (error) {
    if (span !== null) endModelCallSpan(span, plan, options, step, error);
    throw error;
  }
  if (count === 1 && !isResumed) begin(sink);
  const isRepeated = record?.begin(count) === true;
  sink.part({ type: isRepeated ? "step-restart" : "start-step" });
  try {
    await step.read(stream);
  } catch (error) {
    const answered = step.content.length === 0 ? "" : stream.id;
    settle(outcome, step, stream, answered);
    if (span !== null) endModelCallSpan(span, plan, options, step, error, answered === "" ? undefined : stream);
    throw error;
  } finally {
    options.learn(stream.learned, step);
  }
  settle(outcome, step, stream, stream.id);
  if (span !== null) endModelCallSpan(span, plan, options, step, null, stream);
  return { step, model: stream.id };
}

/** A step whose answer is recorded: what the model has said then. */
async function readAgain(
  { calls, isResumed, sink, outcome }: Run,
  count: number,
  recorded: RecordedAnswer,
): Promise<Asked> {
  const step = new ModelStep(sink, outcome, calls, null, null);
  const { model, cost } = recorded;
  if (count === 1 && !isResumed) begin(sink);
  sink.part({ type: "start-step" });
  await step.read(recordedStream(recorded));
  if (cost !== undefined) step.usage.cost = cost;
  settle(outcome, step, {}, model);
  return { step, model };
}

/** Whether the client runs the call. One with invalid input is answered here, so that the model can correct it. */
function isForClient(plan: RunPlan, { part, problem }: PendingCall): boolean {
  const tool = plan.tools.byName.get(part.toolName);
  return problem === null && tool?.clientInput !== undefined && tool.clientInput(part.input) === null;
}

/** Adds a step to the result of the run. @param answered the model, or an empty text when none has said anything */
function settle(
  outcome: RunResult,
  step: ModelStep,
  { prices, meter }: Partial<Pick<ModelStream, "prices" | "meter">>,
  answered: string,
): void {
  const { usage } = step;
  if (prices !== undefined && usage.totalTokens > 0) usage.cost = costOf(usage, prices);
  outcome.text = step.text;
  outcome.finishReason = step.finishReason;
  outcome.model = answered || outcome.model;
  addUsage(outcome.usage, usage);
  meter?.used(usage);
}

/** Adds the answer of a step and the results of its tool calls to the prompt of the next call, as a new list. */
function extendPrompt(options: CallOptions, step: ModelStep, answers: ToolContent): void {
  const prompt: LanguageModelV3Message[] = [...options.prompt];
  const said = tidy({ role: "assistant", content: step.content });
  if (said.content.length > 0) prompt.push(said);
  if (answers.length > 0) prompt.push(tidy({ role: "tool", content: answers }));
  options.prompt = prompt;
}

/** Parses the result from the last answer. If that is not valid, the model is asked once more, unless it would be cut off again. */
async function resolveResult(run: Run, output: OutputSpec, count: number): Promise<void> {
  const { options, outcome } = run;
  let parsed = output.read(outcome.text);
  if ("problem" in parsed && CUT[outcome.finishReason] === undefined) {
    options.prompt.push({
      role: "user",
      content: [{ type: "text", text: correctionRequest(parsed.problem, output.schemaText) }],
    });
    if (options.tools !== undefined) options.toolChoice = { type: "none" };
    await runStep(run, count);
    parsed = output.read(outcome.text);
  }
  if ("problem" in parsed) {
    const cut = CUT[outcome.finishReason];
    const answer = cut === undefined ? "the model's answer" : `the model's answer ${cut}, and`;
    throw new ServiceError("provider_failed", `${answer} does not fit the schema: ${parsed.problem}`);
  }
  outcome.output = parsed.value;
}

/** Has the schema in it, since some providers do not pass it on to their models. */
function correctionRequest(problem: string, schema: string): string {
  const request = `That answer does not fit: ${problem}. Answer again with the corrected JSON alone, without any other text.`;
  return schema === "" ? request : `${request} It must conform to this JSON Schema: ${schema}`;
}
