/**
 * Replies to requests with an `Idempotency-Key`, kept for a day. The first request with a key claims its row, and puts its reply there
 * before it is sent. Others with that key wait for it. A claim names the process that works on it: when that is gone, the next request
 * takes the claim over, with the id of what the first one may have started.
 *
 *   ik/REQUEST              -> who works on a request, or its reply. REQUEST is a digest
 *   it/#claimedAt/REQUEST   the same by time
 */
import { randomUUID } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import type { Logger } from "pino";
import { isFinal, type KeptReply, type KeyClaim, type KeyedRequest, type ReplyKeeper } from "../http/idempotency.ts";
import { Deferred, untilAborted } from "../lib/abortable.ts";
import { systemTime } from "../lib/clock.ts";
import { CommitConflict, messageOf, ServiceError } from "../lib/errors.ts";
import { Interval } from "../lib/interval.ts";
import { Collection, type Found } from "./collection.ts";
import { type Membership, nameProcess } from "./membership.ts";
import { Watch } from "./ranges.ts";
import { type Store, unlessConflict } from "./store.ts";

const MAX_BODY_BYTES = 1024 * 1024;

/** The row of an `Idempotency-Key`. */
interface KeyRow {
  readonly fingerprint: string;
  /** When it was claimed: milliseconds since 1970. */
  readonly at: number;
  readonly runId: string;
  /** Who works on it; empty: nobody. Absent once there is a reply. */
  readonly process?: string;
  readonly reply?: { readonly status: number; readonly headers: readonly string[]; readonly body: string | null };
}

/** A claim as it was written. */
interface Claimed extends Pick<Found<KeyRow>, "id" | "record" | "revision"> {
  readonly isRepeated: boolean;
}

/**
 * What becomes of a claim: its reply, or undefined: the key is free again.
 *
 * @param mayGoOn whether what the request has started may go on without it: then the next one is told of it
 */
function endOfClaim(record: KeyRow, kept: KeptReply | null, mayGoOn: boolean): KeyRow | undefined {
  if (kept === null) return mayGoOn ? { ...record, process: "" } : undefined;
  const { process: _, ...rest } = record;
  const { status, headers, body } = kept;
  return {
    ...rest,
    reply: { status, headers, body: body instanceof Uint8Array ? Buffer.from(body).toString() : body },
  };
}

function bounded(reply: KeptReply): KeptReply {
  const { body } = reply;
  return body !== null && Buffer.byteLength(body) > MAX_BODY_BYTES ? { ...reply, body: null } : reply;
}

/** @throws ServiceError `conflict` for one that was too large: the request was carried out, and must not be again */
function readable(reply: KeptReply): KeptReply {
  if (reply.body !== null) return reply;
  const what = `it was carried out with status ${reply.status}, and its reply is over the 1 MiB that is kept`;
  throw new ServiceError("conflict", `a request with this Idempotency-Key came before: ${what}`);
}

const REUSED = "this Idempotency-Key was used for another request: send a new key with a new request";
const keyReused = () => new ServiceError("key_reused", REUSED);

const KEPT_MS = 24 * 60 * 60 * 1_000;
/** Between two looks at a request that another process works on, where nobody tells of its reply. */
const POLL_INTERVAL_MS = 500;
const RETRY_INTERVAL_MS = 1_000;

/** A key of which a request of this process is at work, or finds out whether one is elsewhere. */
interface Pending {
  readonly fingerprint: string;
  /** Resolves with the reply; null when none is kept. */
  readonly done: Promise<KeptReply | null>;
}

export class KeptReplies implements ReplyKeeper {
  readonly rows: Collection<KeyRow>;
  readonly #membership: Membership | null;
  readonly #alone = nameProcess();
  readonly #pending = new Map<string, Pending>();
  /** Changes that could not be written when their requests ended. */
  readonly #late = new Set<() => Promise<void>>();
  readonly #retries: Interval;
  readonly #removal: ReturnType<Collection<KeyRow>["removal"]>;

  constructor(store: Store, membership: Membership | null, logger: Logger) {
    this.rows = new Collection(store, { prefix: "ik/", times: "it/", timeOf: ({ at }) => at });
    this.#membership = membership;
    const failed = (error: unknown) => {
      logger.warn({ err: error }, `replies to requests with an Idempotency-Key: ${messageOf(error)}`);
    };
    this.#retries = new Interval(RETRY_INTERVAL_MS, () => this.#writeLate(), failed);
    this.#removal = this.rows.removal({
      room: "replies",
      kept: () => KEPT_MS,
      // Without a reply it names a run that may go on, which a repeated request must find.
      stays: ({ id, record }, isFirst) => this.#pending.has(id) || (isFirst && record.reply === undefined),
      failed,
    });
  }

  start(): void {
    this.#removal.start();
    this.#retries.start();
  }

  async close(): Promise<void> {
    await Promise.all([this.#removal.stop(), this.#retries.stop()]);
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
    const done = new Deferred<KeptReply | null>();
    const own: Pending = { fingerprint, done: done.promise };
    this.#pending.set(id, own);
    const end: End = (reply, isWritten) => {
      if (isWritten && this.#pending.get(id) === own) this.#pending.delete(id);
      done.resolve(reply);
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
    for (;;) {
      const found = await this.rows.read(id);
      if (found !== undefined && !isOver(found.record)) {
        const { fingerprint: first, runId, at } = found.record;
        if (first !== fingerprint) throw keyReused();
        return { runId, at, isRepeated: true, settle: async () => {}, free: async () => {} };
      }
      const claimed = await this.#write(id, { fingerprint, runId: randomUUID() }, signal, found);
      if (claimed !== null) return this.#asName(claimed);
    }
  }

  /** A first request that failed has started nothing, but for one that was cut short. Nothing is kept of what it streams. */
  #asName(claimed: Claimed): KeyClaim {
    const { runId, at } = claimed.record;
    const free = () => this.#settle(claimed, null, () => {});
    return {
      runId,
      at,
      isRepeated: false,
      settle: ({ status }) => (status < 400 || status === 503 ? Promise.resolve() : free()),
      free,
    };
  }

  async #claim({ id, fingerprint }: KeyedRequest, signal: AbortSignal): Promise<Claimed | KeptReply> {
    const first = await this.#write(id, { fingerprint, runId: randomUUID() }, signal);
    if (first !== null) return first;
    const watch = new Watch(this.rows.store, this.rows.key(id));
    try {
      for (;;) {
        signal.throwIfAborted();
        const found = await this.rows.read(id);
        const row = found === undefined || isOver(found.record) ? undefined : found.record;
        if (row !== undefined && row.fingerprint !== fingerprint) throw keyReused();
        if (row?.reply !== undefined) return row.reply;
        if (row === undefined || (await this.#isAbandoned(row))) {
          const claimed = await this.#write(id, { fingerprint, runId: row?.runId ?? randomUUID() }, signal, found);
          if (claimed !== null) return claimed;
        } else await watch.wait(POLL_INTERVAL_MS, signal);
      }
    } finally {
      watch.end();
    }
  }

  /** Null when somebody else was first, or may be by now. @param before the claim that is taken over */
  async #write(
    id: string,
    claim: Pick<KeyRow, "fingerprint" | "runId">,
    signal: AbortSignal,
    before?: Found<KeyRow>,
  ): Promise<Claimed | null> {
    const record: KeyRow = { ...claim, at: systemTime(), process: this.#process };
    try {
      const revision = await this.rows.write(id, before, record);
      // The answer of the store may have come after others took this process for gone.
      if (this.#membership?.isHeld() === false) {
        await this.#membership.confirm(signal);
        signal.throwIfAborted();
      }
      if (record.process !== this.#process) return null;
      return { id, record, revision, isRepeated: before?.record.runId === record.runId };
    } catch (error) {
      if (error instanceof CommitConflict) return null;
      // Whether it happened is not known, or nobody asks for it any more.
      this.#late.add(async () => {
        const found = await this.rows.read(id);
        if (found !== undefined && isDeepStrictEqual(found.record, record))
          await unlessConflict(this.rows.write(id, found, undefined));
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
    const { runId, at } = claimed.record;
    return {
      runId,
      at,
      isRepeated: claimed.isRepeated,
      settle: (reply) => this.#settle(claimed, reply, end),
      free: () => this.#settle(claimed, null, end),
    };
  }

  /** @param reply null: the request was not begun */
  async #settle(claimed: Claimed, reply: KeptReply | null, end: End): Promise<void> {
    const kept = reply !== null && isFinal(reply) ? bounded(reply) : null;
    const { id, record } = claimed;
    const after = endOfClaim(record, kept, reply?.status === 503);
    const write = async () => {
      await unlessConflict(this.rows.write(id, claimed, after));
      this.rows.store.wake?.(this.rows.key(id));
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

const isOver = ({ at }: KeyRow): boolean => at + KEPT_MS <= systemTime();

/** Tells those who wait for the reply. @param isWritten whether the store has it too */
type End = (reply: KeptReply | null, isWritten: boolean) => void;
