/** The stored conversation for a client that sends no messages: it has been reloaded, or runs elsewhere. */
import type { AgUiEvent, AgUiOutcome } from "../../generated/types.ts";
import type { Approvals } from "../approvals/approvals.ts";
import { actingUser } from "../identity/acting-user.ts";
import { ANONYMOUS } from "../identity/ownership.ts";
import type { Principal, Requester } from "../identity/principal.ts";
import type { EventProducer } from "../lib/event-sink.ts";
import type { Memory } from "../memory/memory.ts";
import { type RunIdentity, runStarted } from "./events.ts";
import { interruptsOf } from "./interrupts.ts";
import type { SharedState } from "./state.ts";
import { threadMessages, type WaitingCall } from "./thread-messages.ts";

interface Thread {
  readonly run: Omit<RunIdentity, "messageId" | "open">;
  readonly memory: Memory;
  readonly principal: Principal;
  /** The state of an agent that keeps one, else null. */
  readonly state: SharedState | null;
  readonly approvals: Approvals;
  readonly requester: Requester;
}

/** Most messages; the limit of other lists. */
const MAX_MESSAGES = 1000;
/** Most characters of these messages together, the same as when an agent summarizes. */
const MAX_CHARACTERS = 8 * 1024 * 1024;

const THREAD = { limit: MAX_MESSAGES, most: MAX_CHARACTERS };

/** @throws ServiceError `not_found` for the conversation of another user, `unavailable` when the store fails */
export async function sendStored({ run, memory, principal, state, ...asking }: Thread): Promise<EventProducer> {
  const { threadId, runId, isCurrent } = run;
  const userId = actingUser(principal, undefined) ?? ANONYMOUS;
  const { messages: stored } = await memory.for(principal).earlier(threadId, THREAD, userId);
  const { messages, waiting } = threadMessages(stored);
  const { interrupts, pending } = await openQuestions(waiting, asking);
  const outcome: AgUiOutcome =
    interrupts.length > 0
      ? { type: "interrupt", interrupts }
      : { type: "success", ...(isCurrent && pending.length > 0 && { pendingToolCallIds: pending }) };
  const events: AgUiEvent[] = [
    runStarted(run),
    { type: "MESSAGES_SNAPSHOT", messages },
    ...(state?.begun() ?? []),
    { type: "RUN_FINISHED", threadId, runId, outcome },
  ];
  return async (sink) => {
    for (const event of events) await sink.send(JSON.stringify(event));
  };
}

/** What the calls of the last answer wait for: a person, or the client. */
async function openQuestions(
  waiting: readonly WaitingCall[],
  { approvals, requester }: Pick<Thread, "approvals" | "requester">,
) {
  const pending = waiting.flatMap(({ approvalId, toolCallId }) => (approvalId === undefined ? [toolCallId] : []));
  const asked = waiting.flatMap(({ approvalId, ...call }) =>
    approvalId === undefined ? [] : [{ ...call, approvalId }],
  );
  return { interrupts: await interruptsOf(asked, approvals, requester), pending };
}
