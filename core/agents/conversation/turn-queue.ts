/**
 * One turn at a time in a conversation, so that the prompt of each has all that was said before it. Who comes while another turn is at
 * work waits for it, is refused, or cancels it. The turns of this process are a list for each conversation in which one is at work; on a
 * store that several processes share a row says which of them has the turn (turn-claims.ts).
 */

import type { Logger } from "pino";
import { type AbortListener, AbortSource, type Aborts, abortsOf } from "../../lib/aborts.ts";
import { ServiceError } from "../../lib/errors.ts";
import type { Manifest, MemoryManifest } from "../../manifest/manifest.ts";
import { isStoreUnavailable } from "../../storage/away.ts";
import type { JoinedChanges } from "../../storage/joined.ts";
import { turnClaimKey } from "../../storage/keys.ts";
import type { Membership } from "../../storage/membership.ts";
import type { Store } from "../../storage/store.ts";
import type { RunCaller } from "../run/caller.ts";
import type { RunRecord } from "../run/journal.ts";
import { type Claim, conversationBusy, conversationDeleted, TurnClaims } from "./turn-claims.ts";

/** Most turns of a conversation that wait in this process. */
const MAX_WAITING = 16;
/** The reply to a request that waits in vain goes out this long before the request would be cut, if that is not half of its time. */
const REPLY_MARGIN_MS = 500;

interface TicketOptions {
  readonly mode: MemoryManifest["turns"];
  readonly memory: string;
  readonly conversation: string;
  readonly user: string;
  readonly runId: string;
  /** Whether a run above waits for this one: then it waits for as long as that run goes on, and cancels nobody. */
  readonly isDelegated: boolean;
  /** Null for a run that ends with its request. */
  readonly record: RunRecord | null;
  readonly call: RunCaller;
}

type TurnPlace = Pick<TicketOptions, "memory" | "conversation" | "user">;
const placeKey = ({ memory, conversation, user }: TurnPlace): string => turnClaimKey(memory, conversation, user);

/** Conversations at work, by their keys: the ticket at work, and those that wait. */
type Lines = Map<string, TurnTicket[]>;

export class TurnQueue {
  readonly #lines: Lines = new Map();
  /** The end of the deletions that are under way, by the keys of their conversations. */
  readonly #deletions = new Map<string, Promise<unknown>>();
  readonly #claims: TurnClaims | null;
  readonly #requestLimit: () => number;

  /**
   * @param claims null where no other process uses the store
   * @param requestLimit milliseconds after which a request without an answer is cut, at present
   */
  constructor(claims: TurnClaims | null, requestLimit: () => number) {
    this.#claims = claims;
    if (claims !== null) claims.onWithdrawn = (key) => this.#withdrawHere(key);
    this.#requestLimit = requestLimit;
  }

  /**
   * Resolves when it is the turn of the ticket; undefined when that is now.
   *
   * @throws ServiceError `conflict` when the conversation is busy for too long, or at once as its mode says; the reason of the call's
   * signal when its client leaves
   */
  enter(ticket: TurnTicket): Promise<void> | undefined {
    const deletion = this.#deletions.get(ticket.key);
    if (deletion !== undefined) return deletion.then(() => this.enter(ticket));
    ticket.call.makeInterruptible();
    const { stopped } = ticket.call;
    if (stopped !== undefined) throw stopped;
    const line = this.#lines.get(ticket.key);
    if (line === undefined) {
      this.#lines.set(ticket.key, [ticket]);
      return this.#claims === null ? undefined : this.#claim(ticket, this.#claims);
    }
    if (ticket.mode === "reject") throw conversationBusy("another turn of the conversation is at work");
    if (ticket.mode === "interrupt") for (const other of line) other.interrupt();
    else if (line.length > MAX_WAITING && !ticket.isDelegated)
      throw conversationBusy(`${MAX_WAITING} turns of the conversation are waiting already`);
    line.push(ticket);
    return this.#wait(ticket);
  }

  /** Lets the next turn begin. A promise where other processes have to be told first; it never rejects. */
  leave(ticket: TurnTicket): Promise<void> | undefined {
    const { claim } = ticket;
    if (claim === null) return this.#stepAside(ticket);
    ticket.claim = null;
    return this.#claims!.release(claim).then(() => this.#stepAside(ticket));
  }

  /**
   * Cancels the turns of a conversation, those at work and those that wait, and lets none begin before `work` has deleted it.
   *
   * @param work is told whether there were any: none of them writes any more
   */
  async whileDeleting<T>(place: TurnPlace, work: (wereTurns: boolean) => Promise<T>): Promise<T> {
    const key = placeKey(place);
    const deleted = this.#delete(key, work);
    const ended = Promise.allSettled([this.#deletions.get(key), deleted]);
    this.#deletions.set(key, ended);
    try {
      return await deleted;
    } finally {
      if (this.#deletions.get(key) === ended) this.#deletions.delete(key);
    }
  }

  async #delete<T>(key: string, work: (wereTurns: boolean) => Promise<T>): Promise<T> {
    const here = this.#withdrawHere(key);
    const withdrawal = await this.#claims?.withdraw(key);
    try {
      await Promise.allSettled(here.map(({ writing }) => writing));
      return await work(here.length > 0 || withdrawal?.wasAtWork === true);
    } finally {
      await withdrawal?.end();
    }
  }

  /** The run of another process that has the turn of a conversation; null for none. */
  async runElsewhere(place: TurnPlace): Promise<string | null> {
    return (await this.#claims?.runElsewhere(placeKey(place))) ?? null;
  }

  /** Messages of a conversation that are about to be deleted: once it resolves, no turn stores them any more. */
  async drop(place: TurnPlace, ids: readonly string[]): Promise<void> {
    const key = placeKey(place);
    const line = this.#lines.get(key) ?? [];
    for (const ticket of line) ticket.drop(ids);
    await Promise.allSettled(line.map(({ writing }) => writing));
    await this.#claims?.drop(key, ids);
  }

  /** Whether what a turn could not commit may be tried again: others have deleted messages, which it has taken note of. */
  async renew(ticket: TurnTicket): Promise<boolean> {
    const ids = ticket.claim === null ? null : await this.#claims!.renew(ticket.claim);
    if (ids !== null) ticket.drop(ids);
    return ids !== null;
  }

  #withdrawHere(key: string): readonly TurnTicket[] {
    const line = [...(this.#lines.get(key) ?? [])];
    for (const ticket of line) ticket.withdraw();
    return line;
  }

  /** What makes sure that the messages of a turn are committed only while it is its turn. @param isLast whether its commit ends the turn */
  guard({ claim }: TurnTicket, isLast: boolean): JoinedChanges | undefined {
    return claim === null ? undefined : this.#claims!.guard(claim, isLast);
  }

  /** Whether the conversation has a row that says whose turn it is. */
  async isTaken({ key }: TurnTicket): Promise<boolean> {
    return (await this.#claims?.isTaken(key)) === true;
  }

  #stepAside(ticket: TurnTicket): undefined {
    const line = this.#lines.get(ticket.key);
    const index = line?.indexOf(ticket) ?? -1;
    if (line === undefined || index === -1) return;
    line.splice(index, 1);
    if (line.length === 0) this.#lines.delete(ticket.key);
    else if (index === 0) line[0]!.wait?.called();
  }

  async #claim(ticket: TurnTicket, claims: TurnClaims): Promise<void> {
    try {
      ticket.claim = await claims.take(ticket);
    } catch (error) {
      this.#stepAside(ticket);
      throw error;
    }
    if (ticket.claim === null) await this.#wait(ticket);
  }

  async #wait(ticket: TurnTicket): Promise<void> {
    const wait = new Wait(ticket.call, ticket.isDelegated ? null : longestWait(this.#requestLimit()));
    ticket.wait = wait;
    try {
      if (this.#lines.get(ticket.key)![0] !== ticket) await wait.forCall();
      if (this.#claims !== null) ticket.claim = await this.#claims.wait(ticket, wait.stop.signal);
    } catch (error) {
      this.#stepAside(ticket);
      throw error;
    } finally {
      wait.end();
      ticket.wait = null;
    }
  }
}

const longestWait = (requestLimit: number): number => Math.max(requestLimit / 2, requestLimit - REPLY_MARGIN_MS);

/** What one run shows to take its turn. */
export class TurnTicket {
  readonly key: string;
  readonly runId: string;
  readonly mode: MemoryManifest["turns"];
  readonly isDelegated: boolean;
  readonly call: RunCaller;
  /** Its row, where processes share the store. */
  claim: Claim | null = null;
  wait: Wait | null = null;
  /** Why the turn may not write any more; null while it may. */
  withdrawn: ServiceError | null = null;
  /** Ids of messages that were deleted while the turn is at work. */
  dropped: ReadonlySet<string> | null = null;
  /** Settles when what it has begun to write is written. */
  writing: Promise<unknown> | null = null;

  readonly #record: RunRecord | null;

  constructor({ mode, memory, conversation, user, runId, isDelegated, record, call }: TicketOptions) {
    this.key = turnClaimKey(memory, conversation, user);
    this.runId = runId;
    this.mode = isDelegated ? "queue" : mode;
    this.isDelegated = isDelegated;
    this.call = call;
    this.#record = record;
  }

  /** Whether its run waits for the store that has failed with `error`: one that outlives its process does. */
  outlasts(error: unknown): boolean {
    if (this.#record === null || !isStoreUnavailable(error)) return false;
    this.#record.away(error);
    return true;
  }

  /** Cancels the run, or its wait, where another turn may take its place. */
  interrupt(): void {
    if (this.mode === "interrupt")
      this.#stop(new ServiceError("conflict", "another turn of the conversation has taken the place of this one"));
  }

  /** Cancels the run, or its wait: the conversation is being deleted. */
  withdraw(): void {
    this.withdrawn = conversationDeleted();
    this.#stop(this.withdrawn);
  }

  drop(ids: readonly string[]): void {
    this.dropped = new Set([...(this.dropped ?? []), ...ids]);
  }

  /** Begins to write, unless the conversation is being deleted. */
  write<T>(work: () => Promise<T>): Promise<T> {
    if (this.withdrawn !== null) throw this.withdrawn;
    const written = work();
    this.writing = this.writing === null ? written : Promise.allSettled([this.writing, written]);
    return written;
  }

  #stop(reason: ServiceError): void {
    if (this.wait !== null) this.wait.stop.abort(reason);
    else this.call.interrupt(reason);
  }
}

/** The wait of one ticket: it ends early when the time is over, the client leaves, or another turn takes its place. */
class Wait implements AbortListener {
  readonly stop = new AbortSource();
  readonly #aborts: Aborts;
  readonly #timer: NodeJS.Timeout | null;
  #resolve: () => void = () => {};

  constructor(call: RunCaller, longest: number | null) {
    this.#aborts = call.aborts ?? abortsOf(call.signal)!;
    this.#timer =
      longest === null
        ? null
        : setTimeout(
            () => this.aborted(conversationBusy("the turns before this one in the conversation take too long")),
            longest,
          );
    this.#aborts.add(this);
  }

  aborted(reason: unknown): void {
    this.stop.abort(reason);
  }

  /** Resolves when `called` is called. */
  forCall(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.stop.add({ aborted: reject });
    });
  }

  called(): void {
    this.#resolve();
  }

  end(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#aborts.remove(this);
  }
}

// What lets the turns of each conversation of a service go one after the other, whichever agents take them.

interface TurnParts {
  readonly store: Store;
  readonly logger: Logger;
  /** The processes that share the store. */
  readonly membership?: Membership | null;
}

export interface Turns {
  readonly queue: TurnQueue;
  /** Called once before the service listens: frees the conversations of processes that are gone. */
  start(): Promise<void>;
  /** Called after the last turn and before `store.close()`. */
  close(): Promise<void>;
}

export function openTurns(manifest: Manifest, { store, logger, membership = null }: TurnParts): Turns {
  const claims = membership === null ? null : new TurnClaims(store, membership, logger);
  // The limit is read for every wait, since a reload may change it.
  const queue = new TurnQueue(claims, () => manifest.server.limits.request);
  return { queue, start: async () => claims?.start(), close: async () => claims?.close() };
}
