/** `POST /agents/:id/ag-ui`: a run for an AG-UI client, from its input to its last event. */
import type { AgUiRequest, GenerateOptions } from "../../generated/types.ts";
import type { Agent } from "../agents/agent.ts";
import type { PendingApproval } from "../agents/run/parts.ts";
import type { Service } from "../app/service.ts";
import type { Context } from "../http/route.ts";
import { principalOf } from "../identity/principal.ts";
import { invalid } from "../lib/errors.ts";
import type { EventProducer, EventSink } from "../lib/event-sink.ts";
import { isObject } from "../lib/is-object.ts";
import { RunEvents } from "./events.ts";
import { giveAnswer, interruptsOf, markAwaited, openCalls, readResume } from "./interrupts.ts";
import { readMessages, type UiMessage } from "./messages.ts";
import { AgUiSink } from "./sink.ts";
import { keepsState, SharedState } from "./state.ts";
import { sendStored } from "./stored-thread.ts";
import { tellContext } from "./told.ts";

/** @throws ServiceError `invalid_input` that names the field, and the errors of `Agent.prepare` */
export async function answerAgUi(agent: Agent, body: AgUiRequest, call: Context<Service>): Promise<EventProducer> {
  const { service } = call;
  const { threadId, runId, parentRunId, tools = [], context = [], resume = [] } = body;
  const run = { threadId, runId, parentRunId, isCurrent: isCurrentVersion(body.protocolVersion) };
  const memory = agent.detail().memory === null ? null : service.chooseMemory(agent.id).memory;
  const principal = principalOf(call, service.isolated);
  const state =
    memory !== null && keepsState(memory) ? await SharedState.open(memory, principal, threadId, body.state) : null;
  if (body.messages.length === 0 && memory !== null)
    return sendStored({ run, memory, principal, state, approvals: service.approvals, requester: call });

  const messages = readMessages(body.messages);
  if (messages.length === 0) throw invalid("messages must not be empty");
  const answers = readResume(resume);
  const resumed = { agentId: agent.id, threadId, approvals: service.approvals, requester: call };
  const known =
    answers.length === 0 && openCalls(messages.at(-1)).size === 0 ? [] : await markAwaited(messages, answers, resumed);
  if (known.length < answers.length)
    call.logger.warn({ agentId: agent.id, conversationId: threadId }, "a run answers interrupts that nobody waits for");

  const prepared = agent.prepare(
    {
      input: [...systemMessage(tellContext(context, state === null ? body.state : null)), ...messages],
      field: "messages",
      options: optionsOf(body),
      clientTools: { field: "tools", list: tools },
      workingMemory: state?.edited === undefined ? undefined : { field: "state", content: state.edited },
      streams: true,
    },
    call,
  );
  const asking = {
    interrupts: (approvals: readonly PendingApproval[]) => interruptsOf(approvals, service.approvals, call),
  };
  const identity = { ...run, messageId: prepared.messageId, open: openCalls(messages.at(-1)).keys() };
  const form = (events: EventSink) => new AgUiSink(events, new RunEvents(identity), asking, state);
  for (const answer of known) await giveAnswer(service.approvals, answer, call);
  return prepared.events(form);
}

/** Whether the client speaks version 1.0 or later. Older clients name no version. */
function isCurrentVersion(version: string | undefined): boolean {
  const major = /^(\d+)\.\d+/.exec(version ?? "")?.[1];
  return major !== undefined && Number(major) >= 1;
}

/** Options for the run: `forwardedProps` corresponds to `options.context` of other clients. */
function optionsOf({ threadId, forwardedProps }: AgUiRequest): GenerateOptions {
  const options: GenerateOptions = { memory: { conversationId: threadId } };
  if (isObject(forwardedProps)) options.context = forwardedProps as NonNullable<GenerateOptions["context"]>;
  return options;
}

const systemMessage = (text: string | null): UiMessage[] =>
  text === null ? [] : [{ role: "system", parts: [{ type: "text", text }] }];
