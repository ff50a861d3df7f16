/** The events of a run in another form: its parts, given to a sink that writes them as it does for a run that is not kept. */
import { setTimeout as sleep } from "node:timers/promises";
import type { RunCall } from "../agents/agent.ts";
import type { AwaitedCall } from "../agents/prompt/awaited-calls.ts";
import type { ToolAnswer } from "../agents/run/journal.ts";
import type { AgentPart, PartSink, StoredIds } from "../agents/run/parts.ts";
import { emptyRunResult, type RunResult } from "../agents/run/run.ts";
import { addUsage } from "../agents/run/usage.ts";
import type { EventProducer, EventSink } from "../lib/event-sink.ts";

/** A sink for the raw events. What `form` makes of a part has the number of that part. */
export function partEvents(events: EventSink, form: (sink: EventSink) => PartSink): EventSink {
  let number = 0;
  const sink = form(sending(events, (json) => events.send(json, number)));
  return sending(events, (json, id = number + 1) => {
    number = id;
    return sink.part(JSON.parse(json) as AgentPart);
  });
}

/** The sink, to which events are sent in another way. */
const sending = (events: EventSink, send: EventSink["send"]): EventSink => ({
  open: () => events.open(),
  send,
  get closed() {
    return events.closed;
  },
  onLeave: (listener) => events.onLeave(listener),
});

/** A call that waits for a person, as a client knows of it. */
export type KnownCall = Pick<AwaitedCall, "approvalId" | "toolCallId"> & { readonly isAnswered: boolean };

/** How long to wait for a run that has its answer and does not go on yet, because it comes to rest just now, or many run. */
const ANSWER_DELAY_MS = 50;

/** All events of a run until it comes to rest with nothing left that its client has an answer to. */
export const followAnswered =
  (
    asked: readonly KnownCall[],
    { signal }: Pick<RunCall, "signal">,
    attach: (after: number) => Promise<EventProducer>,
  ): EventProducer =>
  async (events) => {
    const left = new Set(asked.flatMap(({ toolCallId, isAnswered }) => (isAnswered ? [toolCallId] : [])));
    let last = 0;
    const sink = sending(events, (json, id = last + 1) => {
      last = id;
      const part = JSON.parse(json) as AgentPart;
      if (ANSWERS.has(part.type)) left.delete((part as ToolAnswer).toolCallId);
      else if (ENDS.has(part.type) && part.subAgentId === undefined) left.clear();
      return events.send(json, id);
    });
    for (;;) {
      await (await attach(last))(sink);
      if (left.size === 0 || events.closed || signal.aborted) return;
      await sleep(ANSWER_DELAY_MS);
    }
  };

const ANSWERS: ReadonlySet<string> = new Set<ToolAnswer["type"]>(["tool-result", "tool-error", "tool-output-denied"]);
const ENDS: ReadonlySet<string> = new Set<AgentPart["type"]>(["finish", "error", "abort"]);

/**
 * The events of a run as the reply to a request. Where the run waits for a person, the reply ends as that of a run that leaves a call to
 * its client.
 *
 * @param asked calls of which the client knows already, and of all that came before: the reply goes on behind them
 */
export async function replyWith(
  follow: EventProducer,
  events: EventSink,
  form: (events: EventSink) => PartSink,
  asked: readonly KnownCall[] = [],
): Promise<void> {
  const known = new Set(asked.map(({ approvalId }) => approvalId));
  const open = new Map<string, AgentPart>();
  const { usage } = emptyRunResult();
  let isInStep = asked.length > 0;
  let hasEnded = false;
  let sink: PartSink | null = null;
  const reply = (to: EventSink): PartSink => {
    const reader = form(to);
    sink = reader;
    return {
      get closed() {
        return reader.closed;
      },
      part(part) {
        let isKnown = known.size > 0 && part.type !== "start";
        if (part.subAgentId === undefined) {
          if (part.type === "tool-approval-request") {
            open.set(part.toolCallId, part);
            known.delete(part.approvalId);
          } else if (ANSWERS.has(part.type)) open.delete((part as ToolAnswer).toolCallId);
          else if (part.type === "finish-step") {
            addUsage(usage, part.usage);
            // With the question the client has seen the end of the step.
            if (known.size === 0 && isInStep) isKnown = true;
            isInStep &&= known.size > 0;
          }
          hasEnded ||= ENDS.has(part.type);
        }
        return isKnown ? undefined : reader.part(part);
      },
    };
  };
  await follow(partEvents(events, reply));
  if (hasEnded || sink === null) return;
  if (asked.length > 0) for (const part of open.values()) (sink as PartSink).part(part);
  await endWithQuestion(sink, { usage, model: "" });
}

/** The end of a reply whose run waits for a person. */
export async function endWithQuestion(
  reader: PartSink,
  { usage, model, messageId, userMessageId }: Pick<RunResult, "usage" | "model" | keyof StoredIds>,
): Promise<void> {
  if (reader.closed) return;
  const by = model === "" ? undefined : { model };
  reader.part({ type: "finish-step", usage, finishReason: "tool-calls", ...by });
  const ids = { ...(messageId && { messageId }), ...(userMessageId && { userMessageId }) };
  await reader.part({ type: "finish", finishReason: "tool-calls", totalUsage: usage, ...by, ...ids });
}
