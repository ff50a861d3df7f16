/**
 * The receivers of a task and their outstanding notifications. A change of the task's status increases its event number in the same
 * commit; a notification contains the task as it is when it is sent. So a receiver that was away gets the last status, and not each
 * one before it.
 *
 *   a2c/TASK        -> who is told of a task: push configurations, and what they have not taken yet
 *   a2n/#due/TASK   -> [agent, owner, process]; tasks that somebody is to be told of, by when
 */
import { systemTime } from "../lib/clock.ts";
import { CommitConflict } from "../lib/errors.ts";
import { Collection, type Found } from "../storage/collection.ts";
import { type Commit, changeInTurn, type Store } from "../storage/store.ts";
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
interface Pushes {
  readonly agent: string;
  readonly owner: string;
  /** Number of the last change of the status. */
  readonly event: number;
  readonly pushes: readonly Push[];
  /** The process that sends notifications now, and the time until which no other one does. */
  readonly claim?: { readonly process: string; readonly until: number };
}

export const TASK_NOTICES = "a2n/";
/** The value of the row by which a task with outstanding notifications is found. */
export type NoticeValue = readonly [agent: string, owner: string, process?: string];

export class PushRows extends Collection<Pushes> {
  constructor(store: Store) {
    super(store, {
      prefix: "a2c/",
      times: TASK_NOTICES,
      timeOf: ({ pushes, claim }) =>
        claim?.until ?? Math.min(...pushes.flatMap(({ pending }) => (pending === undefined ? [] : [pending.due]))),
      factsOf: ({ agent, owner, claim }): NoticeValue =>
        claim === undefined ? [agent, owner] : [agent, owner, claim.process],
    });
  }

  /** Changes the row of a task that has one; without receivers it is removed. @param change undefined: it stays as it is */
  async change(task: string, change: (before: Pushes) => Pushes | undefined): Promise<Pushes | undefined> {
    const [changed] = await changeInTurn("who is told of the task", async () => {
      const found = await this.read(task);
      const after = found && change(found.record);
      if (after !== undefined) await this.write(task, found, after.pushes.length === 0 ? undefined : after);
      return [after];
    });
    return changed;
  }

  /**
   * Commits a change of a task's status together with the notifications that it requires, so that a crash cannot separate the two. Most
   * tasks have no receivers, so the row is read only if it turns out to exist.
   *
   * @returns the revision of the rows, and whether there are notifications to send
   * @throws CommitConflict when the task itself has changed
   */
  async commitEvent(
    task: string,
    commit: Required<Pick<Commit, "expect">> & Commit,
    found?: Found<Pushes>,
  ): Promise<readonly [revision: number, isTold: boolean]> {
    const key = this.key(task);
    const expect = [...commit.expect, [key, found?.revision ?? null] as const];
    try {
      const revision = await this.write(task, found, found && withEvent(found.record, systemTime()), {
        ...commit,
        expect,
      });
      return [revision, found !== undefined];
    } catch (error) {
      if (!(error instanceof CommitConflict) || error.keys.some((each) => each !== key)) throw error;
      return this.commitEvent(task, commit, await this.read(task));
    }
  }
}

export const noPushes = (agent: string, owner: string): Pushes => ({ agent, owner, event: 0, pushes: [] });

const pendingNow = (event: number, now: number): Pending => ({ event, since: now, tries: 0, due: now });

/** The row after a change of the status: all receivers must be notified. */
function withEvent(before: Pushes, now: number): Pushes {
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
