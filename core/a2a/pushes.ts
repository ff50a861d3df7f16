/**
 * Who is told of a task, and what they have not taken yet. A change of the task's status counts up the number of its events, in the commit
 * of the change; whoever is told takes the task as it is then. So a receiver that was away gets the last status, and not each one before.
 */
import { taskNoticeKey } from "../storage/push-keys.ts";
import type { PushConfig } from "./push-config.ts";

/** An event of the task that a receiver has not taken. Times are milliseconds since 1970. */
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

/** The row of a task that somebody is told of. */
export interface Pushes {
  readonly agent: string;
  readonly owner: string;
  /** Of the last change of the status. */
  readonly event: number;
  readonly pushes: readonly Push[];
  /** Who tells them now, and until when nobody else does. */
  readonly claim?: { readonly process: string; readonly until: number };
}

/** The value of the row that finds a task when somebody is to be told of it. */
export type NoticeValue = [agent: string, owner: string, process?: string];

export const noPushes = (agent: string, owner: string): Pushes => ({ agent, owner, event: 0, pushes: [] });

const pendingNow = (event: number, now: number): Pending => ({ event, since: now, tries: 0, due: now });

/** The status has changed: everybody is to be told. */
export function withEvent(before: Pushes, now: number): Pushes {
  const event = before.event + 1;
  return { ...before, event, pushes: before.pushes.map(({ config }) => ({ config, pending: pendingNow(event, now) })) };
}

/**
 * With a configuration, which takes the place of one with its id.
 *
 * @param isTold whether the present status is told at once: a client that asks must not miss what has just happened
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

/** The pushes of a task that are due. */
export const duePushes = ({ pushes }: Pushes, now: number): Push[] =>
  pushes.filter(({ pending }) => pending !== undefined && pending.due <= now);

/**
 * After a try. An event that came meanwhile is still to be told.
 *
 * @param left what is to be tried again; null: nothing, because the receiver has taken it or never will
 */
export function withTry(before: Pushes, id: string, tried: Pending, left: Pending | null): Pushes {
  const pushes = before.pushes.map((push) => {
    if (push.config.id !== id || push.pending?.event !== tried.event) return push;
    return { config: push.config, ...(left !== null && { pending: left }) };
  });
  return { ...before, pushes };
}

/** The row by which the task is found when somebody is to be told. None where nobody is. */
export function noticeRows(task: string, { agent, owner, pushes, claim }: Pushes): [key: string, value: string][] {
  const dues = pushes.flatMap(({ pending }) => (pending === undefined ? [] : [pending.due]));
  if (dues.length === 0 && claim === undefined) return [];
  const value: NoticeValue = claim === undefined ? [agent, owner] : [agent, owner, claim.process];
  return [[taskNoticeKey(claim?.until ?? Math.min(...dues), task), JSON.stringify(value)]];
}
