/**
 * The receivers of a task and their outstanding notifications. A change of the task's status increases its event number in the same
 * commit; a notification contains the task as it is when it is sent. So a receiver that was away gets the last status, and not each
 * one before it.
 */
import { taskNoticeKey } from "../storage/keys.ts";
import type { PushConfig } from "./push-config.ts";

/** An event of the task that a receiver has not accepted yet. Times are milliseconds since 1970. */
export interface Pending {
  readonly event: number;
  readonly since: number;
  readonly tries: number;
  readonly due: number;
}

export interface Push {
  readonly config: PushConfig;
  readonly pending?: Pending;
}

/** The row of a task that has receivers. */
export interface Pushes {
  readonly agent: string;
  readonly owner: string;
  /** Number of the last change of the status. */
  readonly event: number;
  readonly pushes: readonly Push[];
  /** The process that sends notifications now, and the time until which no other one does. */
  readonly claim?: { readonly process: string; readonly until: number };
}

/** The value of the row by which a task with outstanding notifications is found. */
export type NoticeValue = [agent: string, owner: string, process?: string];

export const noPushes = (agent: string, owner: string): Pushes => ({ agent, owner, event: 0, pushes: [] });

const pendingNow = (event: number, now: number): Pending => ({ event, since: now, tries: 0, due: now });

/** The row after a change of the status: all receivers must be notified. */
export function withEvent(before: Pushes, now: number): Pushes {
  const event = before.event + 1;
  return { ...before, event, pushes: before.pushes.map(({ config }) => ({ config, pending: pendingNow(event, now) })) };
}

/**
 * The row with a further configuration, which replaces one with the same id.
 *
 * @param isTold whether to notify the receiver of the present status: a client that asks must not miss what has just happened
 */
export function withConfig(before: Pushes, config: PushConfig, isTold: boolean, now: number): Pushes {
  const push = isTold ? { config, pending: pendingNow(before.event, now) } : { config };
  return { ...before, pushes: [...before.pushes.filter((each) => each.config.id !== config.id), push] };
}

export const withoutConfig = (before: Pushes, id: string): Pushes => ({
  ...before,
  pushes: before.pushes.filter(({ config }) => config.id !== id),
});

export const withClaim = (before: Pushes, process: string, until: number): Pushes => ({
  ...before,
  claim: { process, until },
});

export function withoutClaim({ claim: _, ...rest }: Pushes): Pushes {
  return rest;
}

/** The notifications of a task that are due. */
export const duePushes = ({ pushes }: Pushes, now: number): Push[] =>
  pushes.filter(({ pending }) => pending !== undefined && pending.due <= now);

/**
 * The row after a try. An event that came meanwhile is still outstanding.
 *
 * @param left what is to be retried; null when the receiver has accepted it or never will
 */
export function withTry(before: Pushes, id: string, tried: Pending, left: Pending | null): Pushes {
  const pushes = before.pushes.map((push) => {
    if (push.config.id !== id || push.pending?.event !== tried.event) return push;
    return { config: push.config, ...(left !== null && { pending: left }) };
  });
  return { ...before, pushes };
}

/** The row by which the task is found while it has outstanding notifications; none otherwise. */
export function noticeRows(task: string, { agent, owner, pushes, claim }: Pushes): [key: string, value: string][] {
  const dues = pushes.flatMap(({ pending }) => (pending === undefined ? [] : [pending.due]));
  if (dues.length === 0 && claim === undefined) return [];
  const value: NoticeValue = claim === undefined ? [agent, owner] : [agent, owner, claim.process];
  return [[taskNoticeKey(claim?.until ?? Math.min(...dues), task), JSON.stringify(value)]];
}
