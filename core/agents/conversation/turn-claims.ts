/**
 * Which process has the turn of a conversation, on a store that several share: one row for each conversation at work, which names the
 * process by its lease. A turn takes the row before it reads the conversation, commits its messages only while the row is unchanged, and
 * removes it with its last commit. The row of a process that is gone is taken over.
 */
import { randomUUID } from "node:crypto";
import type { Logger } from "pino";
import { CommitConflict, messageOf, ServiceError } from "../../lib/errors.ts";
import { Interval } from "../../lib/interval.ts";
import type { MemoryManifest } from "../../manifest/manifest.ts";
import type { JoinedChanges } from "../../storage/joined.ts";
import { TURN_CLAIMS, TURN_INTERRUPTS, turnInterruptKey } from "../../storage/keys.ts";
import type { Membership } from "../../storage/membership.ts";
import { allRows, Watch } from "../../storage/ranges.ts";
import { type Row, type Store, unlessConflict } from "../../storage/store.ts";
import type { RunCaller } from "../run/caller.ts";

/** Most messages that are deleted while a turn is at work. */
const MAX_DROPPED = 10_000;
/** Between two looks at a row that another process has, where nobody tells of its end. */
const POLL_INTERVAL_MS = 500;
const WITHDRAWN_MS = 4 * POLL_INTERVAL_MS;
const ROWS_PER_READ = 1_000;

/** What takes the turn with a claim. */
interface ClaimedTurn {
  readonly key: string;
  readonly runId: string;
  readonly mode: MemoryManifest["turns"];
  readonly call: RunCaller;
  claim: Claim | null;
  /** Why the turn may not write any more; null while it may. */
  withdrawn: ServiceError | null;
  /** Whether its run waits for the store that has failed with `error`. */
  outlasts(error: unknown): boolean;
  /** Cancels the run, or its wait. */
  interrupt(): void;
}

export interface Claim {
  readonly key: string;
  /** Its number in this process. */
  readonly turn: number;
  value: string;
  revision: number;
  readonly ticket: ClaimedTurn;
}

/**
 * Whose turn it is, a number that no other turn of that process has (a run may take its turn twice), the ids of messages that others have
 * deleted since, and the deletion of the conversation before it. Without a run that process deletes the conversation, without a process it
 * is deleted: whoever had the turn or waited for it may not write.
 */
type ClaimValue = [process: string, runId: string, turn: number, dropped: readonly string[], deletion: string | null];

function claimText(process: string, runId: string, turn: number, dropped: readonly string[], deletion: string | null) {
  const rest = dropped.length === 0 && deletion === null ? [] : [dropped, deletion];
  return JSON.stringify([process, runId, turn, ...rest]);
}
function parseClaim({ value }: Row): ClaimValue {
  const [process = "", runId = "", turn = 0, dropped = [], deletion = null] = JSON.parse(value) as Partial<ClaimValue>;
  return [process, runId, turn, dropped, deletion];
}
const isDeletion = (row: Row): boolean => parseClaim(row)[1] === "";

/** The turn of a conversation that is being deleted. */
interface Withdrawal {
  /** Whether another turn had it. */
  readonly wasAtWork: boolean;
  /** Lets others begin. Never rejects. */
  end(): Promise<void>;
}

export class TurnClaims {
  readonly #store: Store;
  readonly #membership: Membership;
  readonly #logger: Logger;
  /** How many turns this process has taken. */
  #turns = 0;
  /** The turns that have a row of this process, or are about to, by their numbers. */
  readonly #held = new Map<number, ClaimedTurn>();
  /** Rows that may be there although their turns are over: their keys, their values, and from when they are removed. */
  readonly #left = new Map<string, readonly [value: string, from: number]>();
  /** Called with the key of a conversation of this process that another one deletes. */
  onWithdrawn: (key: string) => void = () => {};
  /** Whether another process has told that it stops turns. */
  #told = false;
  readonly #rounds: Interval;
  #endWatch: (() => void) | undefined;

  constructor(store: Store, membership: Membership, logger: Logger) {
    this.#store = store;
    this.#membership = membership;
    this.#logger = logger;
    this.#rounds = new Interval(
      POLL_INTERVAL_MS,
      () => this.#round(),
      (error) => this.#failed(error),
    );
  }

  /** Frees the conversations of processes that are gone, now and whenever one goes. */
  async start(): Promise<void> {
    await this.#freeAbandoned();
    this.#membership.onGone(() => {
      this.#freeAbandoned().catch((error) => this.#failed(error));
    });
    this.#endWatch = this.#store.watch?.(TURN_INTERRUPTS, () => {
      this.#told = true;
      this.#rounds.hurry();
    });
    this.#rounds.start();
  }

  async close(): Promise<void> {
    this.#endWatch?.();
    await this.#rounds.stop();
  }

  /** Null when another process has the turn, or when it is to be waited for because the store is away. */
  take(ticket: ClaimedTurn): Promise<Claim | null> {
    return this.#write(ticket).catch((error) => {
      if (ticket.outlasts(error)) return null;
      throw error;
    });
  }

  async isTaken(key: string): Promise<boolean> {
    return (await this.#store.get(key)) !== undefined;
  }

  /** Takes the turn as soon as the other process has ended its own. @throws the reason of `signal` once that aborts */
  async wait(ticket: ClaimedTurn, signal: AbortSignal): Promise<Claim> {
    const { key, mode } = ticket;
    const watch = new Watch(this.#store, key);
    let asked: number | undefined;
    /** That before the first look: who comes after a deletion, or while it goes on, may begin anew. */
    let known: string | undefined;
    try {
      for (;;) {
        signal.throwIfAborted();
        try {
          const row = await this.#store.get(key);
          const deletion = row === undefined ? null : parseClaim(row)[4];
          known ??= deletion ?? "";
          if (deletion !== null && deletion !== known) throw conversationDeleted();
          if (row === undefined || (await this.#isAbandoned(row))) {
            const claim = await this.#write(ticket, row);
            if (claim === null) continue;
            if (!signal.aborted) return claim;
            await this.release(claim);
            continue;
          }
          if (mode === "reject") throw conversationBusy("another turn of the conversation is at work");
          if (mode === "interrupt" && asked !== row.revision && !isDeletion(row)) await this.#askToStop(row);
          asked = row.revision;
        } catch (error) {
          if (!ticket.outlasts(error)) throw error;
        }
        await watch.wait(POLL_INTERVAL_MS, signal);
      }
    } finally {
      watch.end();
    }
  }

  guard(claim: Claim, isLast: boolean): JoinedChanges {
    const { key, revision, ticket } = claim;
    const expect = [[key, revision]] as const;
    const lost = (conflict: CommitConflict) => {
      ticket.withdrawn = new ServiceError(
        "unavailable",
        "the conversation has been deleted, or another process has taken it over because this one was silent",
        { cause: conflict },
      );
      return ticket.withdrawn;
    };
    if (!isLast) return { changes: { expect }, committed: () => {}, lost };
    const committed = () => {
      ticket.claim = null;
      this.#over(claim);
    };
    return { changes: { expect, delete: [key, turnInterruptKey(key)] }, committed, lost };
  }

  /** The run of another process that has the turn of a conversation; null for none. */
  async runElsewhere(key: string): Promise<string | null> {
    const row = await this.#store.get(key);
    const [process, runId] = row === undefined ? [] : parseClaim(row);
    return process === this.#membership.name ? null : runId || null;
  }

  /** Takes the turn of a conversation from whoever has it, and gives it to nobody before the end. */
  async withdraw(key: string): Promise<Withdrawal> {
    const deletion = randomUUID();
    const value = claimText(this.#membership.name, "", 0, [], deletion);
    for (;;) {
      const row = await this.#store.get(key);
      const taken = this.#store.commit({
        put: [[key, value]],
        delete: [turnInterruptKey(key)],
        expect: [[key, row?.revision ?? null]],
      });
      if (!(await unlessConflict(taken))) continue;
      const wasAtWork = row !== undefined && !isDeletion(row);
      if (wasAtWork) this.#store.wake?.(TURN_INTERRUPTS);
      return { wasAtWork, end: () => this.#endDeletion(key, value, wasAtWork ? deletion : null) };
    }
  }

  /** Never rejects. @param deletion what those that have waited are told of */
  async #endDeletion(key: string, value: string, deletion: string | null): Promise<void> {
    try {
      const row = await this.#store.get(key);
      if (row?.value !== value) return;
      if (deletion === null) return await this.#remove(row);
      const over = claimText("", "", 0, [], deletion);
      // Not removed before those that wait have seen it.
      this.#left.set(key, [over, performance.now() + WITHDRAWN_MS]);
      await unlessConflict(this.#store.commit({ put: [[key, over]], expect: [[key, row.revision]] }));
      this.#store.wake?.(key);
    } catch {
      this.#left.set(key, [value, 0]);
    }
  }

  /** Tells the process that has the turn of messages that are about to be deleted: what it commits without having read that fails. */
  async drop(key: string, ids: readonly string[]): Promise<void> {
    for (;;) {
      const row = await this.#store.get(key);
      if (row === undefined || isDeletion(row)) return;
      const [process, runId, turn, dropped, deletion] = parseClaim(row);
      const all = [...new Set([...dropped, ...ids])];
      if (all.length > MAX_DROPPED) throw conversationBusy("too many of its messages are deleted during one turn");
      const text = claimText(process, runId, turn, all, deletion);
      if (await unlessConflict(this.#store.commit({ put: [[key, text]], expect: [[key, row.revision]] }))) return;
    }
  }

  /** The messages that others have deleted, where the row of a claim has changed for that; null where it has not, or is lost. */
  async renew(claim: Claim): Promise<readonly string[] | null> {
    const row = await this.#store.get(claim.key);
    if (row === undefined || row.revision === claim.revision) return null;
    const [process, , turn, dropped] = parseClaim(row);
    if (process !== this.#membership.name || turn !== claim.turn) return null;
    claim.revision = row.revision;
    claim.value = row.value;
    return dropped;
  }

  /** Never rejects: a row that cannot be removed now is removed later. */
  async release(claim: Claim): Promise<void> {
    const { key } = claim;
    try {
      for (;;) {
        const commit = this.#store.commit({ delete: [key, turnInterruptKey(key)], expect: [[key, claim.revision]] });
        if ((await unlessConflict(commit)) || (await this.renew(claim)) === null) break;
      }
    } catch {
      this.#left.set(key, [claim.value, 0]);
    }
    this.#over(claim);
  }

  #over({ key, turn }: Claim): void {
    this.#held.delete(turn);
    this.#store.wake?.(key);
  }

  /** @param before the row that is taken over, if there is one */
  async #write(ticket: ClaimedTurn, before?: Row): Promise<Claim | null> {
    const { key, runId, call } = ticket;
    const { name } = this.#membership;
    const turn = ++this.#turns;
    const deletion = before === undefined ? null : parseClaim(before)[4];
    const value = claimText(name, runId, turn, [], deletion);
    this.#held.set(turn, ticket);
    try {
      const revision = await this.#store.commit({
        put: [[key, value]],
        delete: before === undefined ? [] : [turnInterruptKey(key)],
        expect: [[key, before?.revision ?? null]],
      });
      // The answer of the store may have come after others took this process for gone.
      if (!this.#membership.isHeld()) {
        await this.#membership.confirm(call.signal);
        call.signal.throwIfAborted();
      }
      const claim = { key, turn, value, revision, ticket };
      if (name === this.#membership.name) return claim;
      await this.release(claim);
      return null;
    } catch (error) {
      this.#held.delete(turn);
      if (error instanceof CommitConflict) return null;
      // Whether it happened is not known, or nobody asks for it any more.
      this.#left.set(key, [value, 0]);
      throw error;
    }
  }

  async #isAbandoned(row: Row): Promise<boolean> {
    const [process, runId, turn] = parseClaim(row);
    if (process === "") return true;
    if (process === this.#membership.name) return runId !== "" && !this.#held.has(turn);
    return this.#membership.goneCheck()(process);
  }

  /** The request goes with the row of the turn that it is for. */
  async #askToStop(row: Row): Promise<void> {
    const { key, revision } = row;
    const runId = JSON.stringify(parseClaim(row)[1]);
    await unlessConflict(this.#store.commit({ put: [[turnInterruptKey(key), runId]], expect: [[key, revision]] }));
    this.#store.wake?.(TURN_INTERRUPTS);
  }

  async #round(): Promise<void> {
    for (const [key, [value, from]] of this.#left) {
      if (performance.now() < from) continue;
      const row = await this.#store.get(key);
      if (row?.value === value) await this.#remove(row);
      this.#left.delete(key);
    }
    if (this.#told) {
      this.#told = false;
      const keys = [...new Set([...this.#held.values()].map(({ key }) => key))];
      const rows = keys.length === 0 ? [] : await this.#store.getMany(keys);
      for (const row of rows) if (row !== undefined && isDeletion(row)) this.onWithdrawn(row.key);
    }
    const tickets = [...this.#held.values()].filter(({ mode }) => mode === "interrupt");
    if (tickets.length === 0) return;
    const rows = await this.#store.getMany(tickets.map(({ key }) => turnInterruptKey(key)));
    for (const [index, ticket] of tickets.entries())
      if (rows[index]?.value === JSON.stringify(ticket.runId)) ticket.interrupt();
  }

  async #freeAbandoned(): Promise<void> {
    for await (const rows of allRows(this.#store, { prefix: TURN_CLAIMS }, ROWS_PER_READ)) {
      for (const row of rows) if (await this.#isAbandoned(row)) await this.#remove(row);
    }
  }

  async #remove({ key, revision }: Row): Promise<void> {
    const commit = this.#store.commit({ delete: [key, turnInterruptKey(key)], expect: [[key, revision]] });
    if (await unlessConflict(commit)) this.#store.wake?.(key);
  }

  #failed(error: unknown): void {
    this.#logger.warn({ err: error }, `conversations whose turns are over cannot be freed: ${messageOf(error)}`);
  }
}

/** With a pause after which it may be worth to ask again, which marks it as passing. */
export const conversationBusy = (why: string): ServiceError =>
  new ServiceError("conflict", `${why}, try again`, { facts: { retryAfter: 1 } });

export const conversationDeleted = (): ServiceError =>
  new ServiceError("conflict", "the conversation has been deleted");
