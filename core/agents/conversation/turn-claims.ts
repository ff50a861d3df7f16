/**
 * Which process has the turn of a conversation, on a store that several share: one row for each conversation at work, which names the
 * process by its lease. A turn takes the row before it reads the conversation, commits its messages only while the row is unchanged, and
 * removes it with its last commit. The row of a process that is gone is taken over.
 */
import type { Logger } from "pino";
import { CommitConflict, messageOf, ServiceError } from "../../lib/errors.ts";
import { Interval } from "../../lib/interval.ts";
import { unlessConflict } from "../../storage/conflict.ts";
import type { JoinedChanges } from "../../storage/joined.ts";
import { TURN_CLAIMS, TURN_INTERRUPTS, turnInterruptKey } from "../../storage/keys.ts";
import type { Membership } from "../../storage/membership.ts";
import { allRows } from "../../storage/ranges.ts";
import type { Row, Store } from "../../storage/store.ts";
import { Watch } from "../../storage/watch.ts";
import { conversationBusy, conversationDeleted, type TurnTicket } from "./turn-queue.ts";

/** In the place of the process and the run: the conversation was deleted, and whoever had the turn or waited for it may not write. */
const WITHDRAWN = "[]";
/** Between two looks at a row that another process has, where nobody tells of its end. */
const POLL_INTERVAL_MS = 500;
const WITHDRAWN_MS = 4 * POLL_INTERVAL_MS;
const ROWS_PER_READ = 1_000;

export interface Claim {
  readonly key: string;
  readonly value: string;
  readonly revision: number;
  readonly ticket: TurnTicket;
}

const parseClaim = (value: string): [process: string, runId: string] => JSON.parse(value);

export class TurnClaims {
  readonly #store: Store;
  readonly #membership: Membership;
  readonly #logger: Logger;
  /** How many rows it has written. */
  #written = 0;
  /** The turns that have a row of this process, or are about to, by its value: no two are alike, though a run may take its turn twice. */
  readonly #held = new Map<string, TurnTicket>();
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
  take(ticket: TurnTicket): Promise<Claim | null> {
    return this.#write(ticket, null).catch((error) => {
      if (ticket.outlasts(error)) return null;
      throw error;
    });
  }

  async isTaken(key: string): Promise<boolean> {
    return (await this.#store.get(key)) !== undefined;
  }

  /** Takes the turn as soon as the other process has ended its own. @throws the reason of `signal` once that aborts */
  async wait(ticket: TurnTicket, signal: AbortSignal): Promise<Claim> {
    const { key, mode } = ticket;
    const watch = new Watch(this.#store, key);
    let asked: number | undefined;
    try {
      for (;;) {
        signal.throwIfAborted();
        try {
          const row = await this.#store.get(key);
          // Who comes after the deletion finds this row at its first look.
          if (row?.value === WITHDRAWN && asked !== undefined) throw conversationDeleted();
          if (row === undefined || (await this.#isAbandoned(row))) {
            const claim = await this.#write(ticket, row?.revision ?? null);
            if (claim !== null && !signal.aborted) return claim;
            if (claim !== null) await this.release(claim);
            continue;
          }
          if (mode === "reject") throw conversationBusy("another turn of the conversation is at work");
          if (mode === "interrupt" && asked !== row.revision) await this.#askToStop(row);
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
      ticket.withdrawn = turnLost(conflict);
      return ticket.withdrawn;
    };
    if (!isLast) return { changes: { expect }, committed: () => {}, lost };
    const committed = () => {
      ticket.claim = null;
      this.#over(claim);
    };
    return { changes: { expect, delete: [key, turnInterruptKey(key)] }, committed, lost };
  }

  /** Takes the turn of a conversation from the process that has it. @returns whether there was one */
  async withdraw(key: string): Promise<boolean> {
    for (;;) {
      const row = await this.#store.get(key);
      if (row === undefined || row.value === WITHDRAWN) return false;
      const put = [[key, WITHDRAWN]] as const;
      const commit = { put, delete: [turnInterruptKey(key)], expect: [[key, row.revision]] as const };
      if (await unlessConflict(this.#store.commit(commit))) break;
    }
    // Not before those that wait have seen it.
    this.#left.set(key, [WITHDRAWN, performance.now() + WITHDRAWN_MS]);
    this.#store.wake?.(key);
    this.#store.wake?.(TURN_INTERRUPTS);
    return true;
  }

  /** Never rejects: a row that cannot be removed now is removed later. */
  async release(claim: Claim): Promise<void> {
    const { key, value, revision } = claim;
    try {
      await unlessConflict(this.#store.commit({ delete: [key, turnInterruptKey(key)], expect: [[key, revision]] }));
    } catch {
      this.#left.set(key, [value, 0]);
    }
    this.#over(claim);
  }

  #over({ key, value }: Claim): void {
    this.#held.delete(value);
    this.#store.wake?.(key);
  }

  /** @param before revision of the row that is taken over; null: there is none */
  async #write(ticket: TurnTicket, before: number | null): Promise<Claim | null> {
    const { key, runId, call } = ticket;
    if (!this.#membership.isHeld()) await this.#membership.confirm(call.signal);
    const value = JSON.stringify([this.#membership.name, runId, ++this.#written]);
    this.#held.set(value, ticket);
    try {
      const put = [[key, value]] as const;
      const interrupt = before === null ? [] : [turnInterruptKey(key)];
      const revision = await this.#store.commit({ put, delete: interrupt, expect: [[key, before]] });
      return { key, value, revision, ticket };
    } catch (error) {
      this.#held.delete(value);
      if (error instanceof CommitConflict) return null;
      // Whether it happened is not known.
      this.#left.set(key, [value, 0]);
      throw error;
    }
  }

  async #isAbandoned({ value }: Row): Promise<boolean> {
    if (value === WITHDRAWN) return true;
    const [process] = parseClaim(value);
    if (process === this.#membership.name) return !this.#held.has(value);
    return this.#membership.goneCheck()(process);
  }

  /** The request goes with the row of the turn that it is for. */
  async #askToStop({ key, value, revision }: Row): Promise<void> {
    const [, runId] = parseClaim(value);
    const put = [[turnInterruptKey(key), JSON.stringify(runId)]] as const;
    await unlessConflict(this.#store.commit({ put, expect: [[key, revision]] }));
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
      for (const row of rows) if (row?.value === WITHDRAWN) this.onWithdrawn(row.key);
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

const turnLost = (cause: CommitConflict): ServiceError =>
  new ServiceError(
    "unavailable",
    "the conversation has been deleted, or another process has taken it over because this one was silent",
    { cause },
  );
