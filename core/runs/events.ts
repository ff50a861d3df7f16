/** The events of a run in another form: its parts, given to a sink that writes them as it does for a run that is not kept. */
import type { ReplyForm } from "../agents/keeper.ts";
import type { ToolAnswer } from "../agents/run/journal.ts";
import type { AgentPart, PartSink } from "../agents/run/parts.ts";
import { emptyRunResult, type RunResult } from "../agents/run/run.ts";
import { addUsage } from "../agents/run/usage.ts";
import { hearing, sending } from "../agents/stream/raw.ts";
import type { EventProducer, EventSink } from "../lib/event-sink.ts";

/** A sink for the raw events. What `form` makes of a part has the number of that part. */
export function partEvents(events: EventSink, form: (sink: EventSink) => PartSink): EventSink {
  let number = 0;
  const sink = form(sending(events, (json) => events.send(json, number)));
  return hearing((part, id) => {
    number = id;
    return sink.part(part);
  }, events);
}

export const ANSWERS: ReadonlySet<string> = new Set<ToolAnswer["type"]>([
  "tool-result",
  "tool-error",
  "tool-output-denied",
]);
export const ENDS: ReadonlySet<string> = new Set<AgentPart["type"]>(["finish", "error", "abort"]);

/**
 * The events of a run as the reply to a request. Where the run waits for a person, the reply ends as that of a run that leaves a call to
 * its client.
 *
 * @param asked approvals of which the client knows already, and of all that came before: the reply goes on behind them
 */
export async function replyWith(
  follow: EventProducer,
  events: EventSink,
  form: ReplyForm,
  asked: readonly string[] = [],
): Promise<void> {
  const known = new Set(asked);
  const open = new Map<string, AgentPart>();
  const { usage } = emptyRunResult();
  let isInStep = asked.length > 0;
  let sink!: PartSink;
  let last!: AgentPart | undefined;
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
            isKnown ||= isInStep;
            isInStep &&= known.size > 0;
          }
          last = part;
        }
        return isKnown ? undefined : reader.part(part);
      },
    };
  };
  await follow(partEvents(events, reply));
  if (last !== undefined && ENDS.has(last.type)) return;
  if (asked.length > 0) for (const part of open.values()) sink.part(part);
  // What a client that cannot answer was told is a step of its own. A question is the middle of one.
  const words = last?.type === "finish-step" ? last : undefined;
  await endReply(sink, { usage, model: words?.model ?? "", finishReason: words?.finishReason ?? "tool-calls" });
}

/** The end of a reply whose run waits for a person. */
export async function endReply(
  reader: PartSink,
  {
    usage,
    model,
    finishReason,
    output,
    messageId,
    userMessageId,
  }: Partial<RunResult> & Pick<RunResult, "usage" | "model" | "finishReason">,
): Promise<void> {
  if (reader.closed) return;
  const end = { finishReason, ...(model !== "" && { model }) };
  if (finishReason === "tool-calls") reader.part({ type: "finish-step", usage, ...end });
  const ids = { ...(messageId && { messageId }), ...(userMessageId && { userMessageId }) };
  await reader.part({ type: "finish", totalUsage: usage, ...end, ...(output !== undefined && { output }), ...ids });
}
