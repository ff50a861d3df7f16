/**
 * Replies to requests with an `Idempotency-Key`, kept for a day. The first request with a key claims its row, and puts its reply there
 * before it is sent. Others with that key wait for it. A claim names the process that works on it: when that is gone, the next request
 * takes the claim over, with the id of what the first one may have started.
 */
import { randomUUID } from "node:crypto";
import type { Logger } from "pino";
import { isFinal, type KeptReply, type KeyClaim, type KeyedRequest, type ReplyKeeper } from "../http/idempotency.ts";
import { untilAborted } from "../lib/abortable.ts";
import { systemTime } from "../lib/clock.ts";
import { CommitConflict, messageOf } from "../lib/errors.ts";
import { Interval } from "../lib/interval.ts";
import { unlessConflict } from "./conflict.ts";
import { bounded, type Claimed, type KeyRow, keyReused, keyRows, readable, settling } from "./key-row.ts";
import { KEPT_REPLY_TIMES, keptRepliesBefore, keptReplyKey, keptReplyOfTime, keptReplyTime } from "./keys.ts";
import type { Membership } from "./membership.ts";
import { nameProcess } from "./process-name.ts";
import { pagesInBackground } from "./ranges.ts";
import { roomKeeper } from "./remove-oldest.ts";
import type { Row, Store } from "./store.ts";
import { Watch } from "./watch.ts";

const KEPT_MS = 24 * 60 * 60 * 1_000;
/** Between two looks at a request that another process works on, where nobody tells of its reply. */
const POLL_INTERVAL_MS = 500;
const RETENTION_INTERVAL_MS = 60_000;
const RETRY_INTERVAL_MS = 1_000;
const ROWS_PER_COMMIT = 100;

/** A key of which a request of this process is at work, or finds out whether one is elsewhere. */
interface Pending {
  readonly fingerprint: string;
  /** Resolves with the reply; null when none is kept. */
  readonly done: Promise<KeptReply | null>;
}

export class KeptReplies implements ReplyKeeper {
  readonly #store: Store;
  readonly #membership: Membership | null;
  readonly #alone = nameProcess();
  readonly #pending = new Map<string, Pending>();
  /** Changes that could not be written when their requests ended. */
  readonly #late = new Set<() => Promise<void>>();
  readonly #retention: Interval;
  readonly #retries: Interval;
  readonly #room: Interval | null;

  constructor(store: Store, membership: Membership | null, logger: Logger) {
    this.#store = store;
    this.#membership = membership;
    const failed = (error: unknown) => {
      logger.warn({ err: error }, `replies to requests with an Idempotency-Key: ${messageOf(error)}`);
    };
    this.#retention = new Interval(RETENTION_INTERVAL_MS, () => this.removeBefore(systemTime() - KEPT_MS), failed);
    this.#retries = new Interval(RETRY_INTERVAL_MS, () => this.#writeLate(), failed);
    this.#room = roomKeeper(store, {
      kind: "replies",
      times: KEPT_REPLY_TIMES,
      idOf: keptReplyOfTime,
      keyOf: (id) => (this.#pending.has(id) ? null : keptReplyKey(id)),
      // Without a reply it names a run that may go on, which a repeated request must find.
      isNeeded: async (key) => !(await store.get(key))?.value.includes('"reply":'),
      failed,
    });
  }

  start(): void {
    this.#retention.start();
    this.#retries.start();
    this.#room?.start();
  }

  async close(): Promise<void> {
    await Promise.all([this.#retention.stop(), this.#retries.stop(), this.#room?.stop()]);
  }

  async take(request: KeyedRequest, signal: AbortSignal): Promise<KeptReply | KeyClaim> {
    const { id, fingerprint } = request;
    for (;;) {
      const known = this.#pending.get(id);
      if (known === undefined) break;
      if (known.fingerprint !== fingerprint) throw keyReused();
      const reply = await untilAborted(known.done, signal);
      if (reply !== null) return readable(reply);
    }
    let resolve: (reply: KeptReply | null) => void = () => {};
    const done = new Promise<KeptReply | null>((settled) => {
      resolve = settled;
    });
    const own: Pending = { fingerprint, done };
    this.#pending.set(id, own);
    const end: End = (reply, isWritten) => {
      if (isWritten && this.#pending.get(id) === own) this.#pending.delete(id);
      resolve(reply);
    };
    try {
      const found = await this.#claim(request, signal);
      if ("revision" in found) return this.#asClaim(found, end);
      end(found, true);
      return readable(found);
    } catch (error) {
      end(null, true);
      throw error;
    }
  }

  async name({ id, fingerprint }: KeyedRequest, signal: AbortSignal): Promise<KeyClaim> {
    if (this.#membership?.isHeld() === false) await this.#membership.confirm(signal);
    for (;;) {
      const found = await this.#store.get(keptReplyKey(id));
      const row = found === undefined ? undefined : (JSON.parse(found.value) as KeyRow);
      if (row !== undefined && row.at + KEPT_MS > systemTime()) {
        if (row.fingerprint !== fingerprint) throw keyReused();
        return { runId: row.runId, at: row.at, isRepeated: true, settle: async () => {}, free: async () => {} };
      }
      const claimed = await this.#write(id, { fingerprint, runId: randomUUID() }, found, row);
      if (claimed !== null) return this.#asName(claimed);
    }
  }

  /** A first request that failed has started nothing, but for one that was cut short. Nothing is kept of what it streams. */
  #asName(claimed: Claimed): KeyClaim {
    const free = () => this.#settle(claimed, null, () => {});
    return {
      runId: claimed.row.runId,
      at: claimed.row.at,
      isRepeated: false,
      settle: ({ status }) => (status < 400 || status === 503 ? Promise.resolve() : free()),
      free,
    };
  }

  /** Removes what was claimed before `time`, in milliseconds since 1970. */
  async removeBefore(time: number): Promise<void> {
    const range = { prefix: KEPT_REPLY_TIMES, before: keptRepliesBefore(Math.max(0, time)) };
    for await (const rows of pagesInBackground(this.#store, range, ROWS_PER_COMMIT, this.#retention.signal)) {
      const keys = rows.flatMap(({ key }) => [key, keptReplyKey(keptReplyOfTime(key))]);
      // A key that is claimed anew just now has another row of its time.
      const expect = rows.map(({ key, revision }) => [key, revision] as const);
      await unlessConflict(this.#store.commit({ delete: keys, expect }));
    }
  }

  async #claim({ id, fingerprint }: KeyedRequest, signal: AbortSignal): Promise<Claimed | KeptReply> {
    if (this.#membership?.isHeld() === false) await this.#membership.confirm(signal);
    const first = await this.#write(id, { fingerprint, runId: randomUUID() });
    if (first !== null) return first;
    const key = keptReplyKey(id);
    const watch = new Watch(this.#store, key);
    try {
      for (;;) {
        signal.throwIfAborted();
        const found = await this.#store.get(key);
        const row = found === undefined ? undefined : (JSON.parse(found.value) as KeyRow);
        const isOver = row === undefined || row.at + KEPT_MS <= systemTime();
        if (!isOver && row.fingerprint !== fingerprint) throw keyReused();
        if (!isOver && row.reply !== undefined) return row.reply;
        if (isOver || (await this.#isAbandoned(row))) {
          const runId = isOver ? randomUUID() : row.runId;
          const claimed = await this.#write(id, { fingerprint, runId }, found, row);
          if (claimed !== null) return claimed;
        } else await watch.wait(POLL_INTERVAL_MS, signal);
      }
    } finally {
      watch.end();
    }
  }

  /** Null when somebody else was first. @param before the row that is taken over, and what it says */
  async #write(
    id: string,
    claim: Pick<KeyRow, "fingerprint" | "runId">,
    before?: Row,
    old?: KeyRow,
  ): Promise<Claimed | null> {
    const row: KeyRow = { ...claim, at: systemTime(), process: this.#process };
    const [[key, text], byTime] = keyRows(id, row);
    try {
      const revision = await this.#store.commit({
        delete: old === undefined ? [] : [keptReplyTime(old.at, id)],
        put: [[key, text], byTime],
        expect: [[key, before?.revision ?? null]],
      });
      return { id, row, revision, isRepeated: old?.runId === row.runId };
    } catch (error) {
      if (error instanceof CommitConflict) return null;
      // Whether it happened is not known.
      this.#late.add(async () => {
        const found = await this.#store.get(key);
        if (found?.value !== text) return;
        await unlessConflict(this.#store.commit({ delete: [key, byTime[0]], expect: [[key, found.revision]] }));
      });
      throw error;
    }
  }

  /** One of this process is at work only where it is pending here, and then nobody else looks. */
  async #isAbandoned({ process = "" }: KeyRow): Promise<boolean> {
    if (process === "" || process === this.#process || this.#membership === null) return true;
    return this.#membership.goneCheck()(process);
  }

  get #process(): string {
    return this.#membership?.name ?? this.#alone;
  }

  #asClaim(claimed: Claimed, end: End): KeyClaim {
    const { row, isRepeated } = claimed;
    return {
      runId: row.runId,
      at: row.at,
      isRepeated,
      settle: (reply) => this.#settle(claimed, reply, end),
      free: () => this.#settle(claimed, null, end),
    };
  }

  /** @param reply null: the request was not begun */
  async #settle(claimed: Claimed, reply: KeptReply | null, end: End): Promise<void> {
    const kept = reply !== null && isFinal(reply) ? bounded(reply) : null;
    const change = settling(claimed, kept, reply?.status === 503);
    const write = async () => {
      await unlessConflict(this.#store.commit(change));
      this.#store.wake?.(keptReplyKey(claimed.id));
      end(kept, true);
    };
    try {
      await write();
    } catch {
      // What was done must not be done again: the reply is known here until it is written.
      end(kept, kept === null);
      this.#late.add(write);
    }
  }

  async #writeLate(): Promise<void> {
    for (const write of this.#late) {
      await write();
      this.#late.delete(write);
    }
  }
}

/** Tells those who wait for the reply. @param isWritten whether the store has it too */
type End = (reply: KeptReply | null, isWritten: boolean) => void;
