/** The work of an andAgent step: runs an agent. */

import type { Agent } from "../../agents/agent.ts";
import { type RunEntry, type RunJournal, RunWaits, runIdFrom } from "../../agents/run/journal.ts";
import { type AgentPart, type PartSink, plainDelta } from "../../agents/run/parts.ts";
import { unfinished } from "../../agents/run/usage.ts";
import type { TaskBody } from "../../agents/run-requests.ts";
import { cloneJson } from "../../lib/canonical-json.ts";
import { ServiceError } from "../../lib/errors.ts";
import type { AgentStepManifest, Path } from "../../manifest/manifest.ts";
import {
  compileCheck,
  compileText,
  type LinkContext,
  type StepCall,
  type StepScope,
  type Work,
} from "../definition/definition.ts";
import { StepCaller, suspendForApproval } from "./tool.ts";

/** @returns null when there is no such agent */
export function compileAgent(
  linking: LinkContext,
  work: AgentStepManifest,
  at: Path,
  names: readonly string[],
): Work | null {
  const prompt = compileText(linking, work.prompt, [...at, "prompt"], names);
  const { schema, stream, accept } = work;
  const check = compileCheck(linking, schema, [...at, "schema"]);
  const agent = linking.parts.agents.get(work.agent);
  if (agent === undefined) {
    linking.missing.add(`agent ${JSON.stringify(work.agent)}`);
    return null;
  }
  const result =
    schema === undefined || check === null
      ? undefined
      : { schema, problems: (value: unknown) => check(value, "result") };
  return { run: (call) => runAgent(agent, { prompt, result, stream, accept }, call), readOnly: false };
}

interface AgentTask {
  prompt(scope: StepScope): string;
  readonly result: TaskBody["result"];
  readonly stream: boolean;
  /** How the run may end beside `stop`; undefined: in no other way. */
  readonly accept: readonly Accepted[] | undefined;
}

type Accepted = NonNullable<AgentStepManifest["accept"]>[number];

/** The output is an object when the step has a schema, else `{ text }`, with `finishReason` where others than `stop` are accepted. */
async function runAgent(agent: Agent, { prompt, result, stream, accept }: AgentTask, call: StepCall): Promise<unknown> {
  const { conversationId, userId, scope } = call;
  const options = { context: cloneJson(scope.context), memory: { conversationId, userId } };
  const body: TaskBody = { input: prompt(scope), options, result };
  try {
    const sink = stream ? new StepSink(call) : undefined;
    const outcome = await agent.run(
      {
        ...body,
        ...{
          runId: runIdFrom(call.tryKey),
          journal: stepJournal(call, agent.id),
        },
      },
      new StepCaller(call),
      sink,
    );
    const { text, finishReason } = outcome;
    const problem = accept?.includes(finishReason as Accepted) === true ? null : unfinished(agent.id, finishReason);
    if (problem !== null) throw new ServiceError("step_failed", problem);
    if (result !== undefined) return outcome.output;
    return accept === undefined ? { text } : { text, finishReason };
  } catch (error) {
    if (error instanceof RunWaits) return suspendForApproval(error.approvals[0]!);
    // The message of any other error is for the log only. When the step was stopped, the error does not matter.
    if (error instanceof ServiceError || call.signal.aborted) throw error;
    throw new Error(`agent ${JSON.stringify(agent.id)} failed`, { cause: error });
  }
}

/** The journal of a run inside a step. */
const stepJournal = (call: StepCall, stepAgentId: string): RunJournal => ({
  recorded: call.kept as readonly RunEntry[],
  isRepeated: call.isRepeated,
  hasStreamed: call.hasStreamed,
  begunAt: call.begunAt,
  since: call.startedAt,
  waitsAt: { workflowId: call.workflowId, executionId: call.executionId, stepId: call.path, stepAgentId },
  get isInterrupted() {
    return call.isInterrupted;
  },
  flush: () => call.flush(),
  record: (entry) => call.keep(entry),
  // Once the step has ended, a note no longer matters.
  note: (entry) => void call.keep(entry, true).catch(() => {}),
});

/** Sends the parts of the run to the stream of the execution. Only the signal of the step ends the run. */
class StepSink implements PartSink {
  readonly closed = false;
  readonly #call: StepCall;

  constructor(call: StepCall) {
    this.#call = call;
  }

  part(part: AgentPart): Promise<void> | undefined {
    const isText = part.type === "text-delta" || part.type === "reasoning-delta";
    return this.#call.part(isText ? plainDelta(part) : part);
  }
}
