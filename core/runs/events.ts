/** The events of a run in another form: its parts, given to a sink that writes them as it does for a run that is not kept. */
import type { ReplyForm } from "../agents/keeper.ts";
import type { AwaitedCall } from "../agents/prompt/awaited-calls.ts";
import type { ToolAnswer } from "../agents/run/journal.ts";
import type { AgentPart, PartSink, StoredIds } from "../agents/run/parts.ts";
import { emptyRunResult, type RunResult } from "../agents/run/run.ts";
import { addUsage } from "../agents/run/usage.ts";
import { ServiceError } from "../lib/errors.ts";
import type { EventProducer, EventSink } from "../lib/event-sink.ts";
import type { Watch } from "../storage/watch.ts";

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

/** How long a follower of a run that rests looks no further, when nobody tells that the run goes on. */
const REST_MS = 1_000;
/** What such a follower waits for when it waits for the end alone. */
export const THE_END: readonly string[] = [""];

/**
 * All events of a run, also of what it does when it goes on after a rest.
 *
 * @param awaited ids of calls: it ends in a rest when it has told of all of them
 * @param watch wakes when the run goes on
 */
export const followOn =
  (
    awaited: readonly string[],
    { signal }: { readonly signal?: AbortSignal },
    attach: (after: number) => Promise<EventProducer>,
    watch: () => Promise<Watch>,
  ): EventProducer =>
  async (events) => {
    const left = new Set(awaited);
    let last = 0;
    const sink = sending(events, (json, id = last + 1) => {
      last = id;
      const part = JSON.parse(json) as AgentPart;
      if (ANSWERS.has(part.type)) left.delete((part as ToolAnswer).toolCallId);
      else if (ENDS.has(part.type) && part.subAgentId === undefined) left.clear();
      return events.send(json, id);
    });
    const resting = await watch();
    try {
      for (;;) {
        await (await attach(last))(sink);
        if (left.size === 0 || events.closed || signal?.aborted) return;
        await resting.wait(REST_MS, signal);
      }
    } finally {
      resting.end();
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
  let last: AgentPart | null = null;
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
          last = part;
        }
        return isKnown ? undefined : reader.part(part);
      },
    };
  };
  await follow(partEvents(events, reply));
  if (sink === null || (last !== null && ENDS.has((last as AgentPart).type))) return;
  if (asked.length > 0) for (const part of open.values()) (sink as PartSink).part(part);
  const { model = "", finishReason } = wordsIn(last);
  await endReply(sink, { usage, model, finishReason });
}

/** What a client that cannot answer was told is a step of its own. A question is the middle of one. */
const wordsIn = (last: AgentPart | null): Pick<FinishPart, "model" | "finishReason"> =>
  last?.type === "finish-step" ? last : { finishReason: "tool-calls" };

type FinishPart = Extract<AgentPart, { type: "finish-step" }>;
type Reply = Pick<RunResult, "usage" | "model" | "finishReason" | keyof StoredIds> & Partial<Pick<RunResult, "output">>;

/** The end of a reply whose run waits for a person. */
export async function endReply(
  reader: PartSink,
  { usage, model, finishReason, output, messageId, userMessageId }: Reply,
): Promise<void> {
  if (reader.closed) return;
  const by = model === "" ? undefined : { model };
  if (finishReason === "tool-calls") reader.part({ type: "finish-step", usage, finishReason, ...by });
  const ids = { ...(messageId && { messageId }), ...(userMessageId && { userMessageId }) };
  const whole = output === undefined ? undefined : { output };
  await reader.part({ type: "finish", finishReason, totalUsage: usage, ...by, ...whole, ...ids });
}

/**
 * The parts of a run that are its events.
 *
 * @throws ServiceError `provider_failed` when it has failed after its beginning, otherwise what made it fail
 */
export async function partsInto(events: (form: ReplyForm) => EventProducer, sink: PartSink): Promise<void> {
  let failure: string | undefined;
  const parts: PartSink = {
    get closed() {
      return sink.closed;
    },
    part(part) {
      if (part.type !== "error") return sink.part(part);
      failure = part.error;
      return undefined;
    },
  };
  await events(() => parts)({
    open: () => sink.accepted?.(),
    send: () => undefined,
    get closed() {
      return sink.closed;
    },
    onLeave: (listener) => sink.onLeave?.(listener),
  });
  if (failure !== undefined) throw new ServiceError("provider_failed", failure);
}
