/** The connection on which a process hears the notices of the others and sends its own: LISTEN and NOTIFY. */

import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { Pool } from "pg";
import type { Logger } from "pino";
import { messageOf } from "../lib/errors.ts";
import { Interval } from "../lib/interval.ts";
import type { Session } from "./postgres-connections.ts";
import type { PostgresDatabase } from "./postgres-database.ts";
import { isStatementError } from "./postgres-errors.ts";

/*
 * Wake-ups between processes that share a store: who waits for a change of a topic (the key of a row, say) watches it, and who has
 * changed it wakes those who watch. What crosses the wire are short notices to all processes, which may be lost.
 *
 * A notice is sent only for topics that another process has said it watches, so that commits which nobody waits for cost nothing.
 * Topics are hashed into a fixed number of slots: every notice fits into its bound, however many topics there are, and two topics of
 * one slot cost a needless look.
 */

/** A slot is two characters, so that a notice of all slots has 4 KiB: NOTIFY takes less than 8,000 bytes. */
const SLOTS = 2_048;
const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/** Between two notices of one process; what is woken meanwhile goes together. */
const PAUSE_MS = 5;
/** How often a process says again what it watches, and when that is forgotten if it does not. */
export const ANNOUNCEMENT_INTERVAL_MS = 10_000;
const FORGET_AFTER_MS = 35_000;
/** Wakes so recent are told to a process that has just said it watches: it may have looked before the change. */
const RECENT_MS = 2_000;

/** What a notice says: slots that were woken, or that its sender watches; with `?` it asks for what the others watch, too. */
type Kind = "woken" | "watches" | "watches?";
const NOTICE = /^(woken|watches\??) ([\w-]{1,32}) ((?:[\w-]{2})*)$/;

interface Watched {
  readonly slots: ReadonlySet<number>;
  /** By `performance.now()`. */
  readonly until: number;
}

export class WakeTopics {
  /** The name of this process in notices. */
  readonly name = randomBytes(6).toString("hex");
  readonly #send: (notice: string) => Promise<void>;
  readonly #watchers = new Map<number, Set<() => void>>();
  /** What is called when another process watches a slot. */
  readonly #whenWatched = new Map<number, Set<() => void>>();
  /** What the other processes have been told that this one watches. */
  #announced: ReadonlySet<number> = new Set();
  #announcement: Exclude<Kind, "woken"> | null = null;
  /** What other processes watch, by their names, and all of it together. */
  readonly #others = new Map<string, Watched>();
  #watchedByOthers: ReadonlySet<number> = new Set();
  /** When each slot was last woken here. */
  readonly #lastWoken = new Float64Array(SLOTS).fill(Number.NEGATIVE_INFINITY);
  readonly #toWake = new Set<number>();
  #sending: Promise<void> | null = null;

  /** @param send hands a notice to the other processes; it may reach this one too */
  constructor(send: (notice: string) => Promise<void>) {
    this.#send = send;
  }

  wake(topic: string): void {
    const slot = slotOf(topic);
    this.#lastWoken[slot] = performance.now();
    this.#wakeOwn(slot);
    if (this.#watchedByOthers.has(slot)) this.#later(slot);
  }

  watch(topic: string, woken: () => void): () => void {
    const slot = slotOf(topic);
    const end = add(this.#watchers, slot, woken);
    if (!this.#announced.has(slot)) this.announce();
    return end;
  }

  /** Calls `listener` when another process begins to watch the topic, and now if one does, until the function that it returns is called. */
  watched(topic: string, listener: () => void): () => void {
    const slot = slotOf(topic);
    if (this.#watchedByOthers.has(slot)) listener();
    return add(this.#whenWatched, slot, listener);
  }

  /** Tells the others what this process watches. To be repeated, since they forget it. @param asks for what they watch too */
  announce(asks = false): void {
    this.#forgetSilent();
    this.#announcement = asks || this.#announcement === "watches?" ? "watches?" : "watches";
    this.#announced = new Set(this.#watchers.keys());
    this.#flush();
  }

  /** Takes a notice, whoever sent it. */
  heard(notice: string): void {
    const [, kind, name, text] = NOTICE.exec(notice) ?? [];
    if (kind === undefined || name === this.name) return;
    const slots = parseSlots(text!);
    if (kind === "woken") for (const slot of slots) this.#wakeOwn(slot);
    else this.#learn(name!, slots);
    if (kind === "watches?") this.announce();
  }

  /** Everybody looks: notices may have been missed. */
  wakeAllOwn(): void {
    for (const slot of this.#watchers.keys()) this.#wakeOwn(slot);
  }

  /** Says that this process watches nothing any more. */
  async close(): Promise<void> {
    this.#watchers.clear();
    if (this.#announced.size > 0) this.announce();
    await this.#sending;
  }

  #wakeOwn(slot: number): void {
    callAll(this.#watchers, slot);
  }

  #learn(name: string, slots: ReadonlySet<number>): void {
    const before = this.#others.get(name)?.slots;
    if (slots.size === 0) this.#others.delete(name);
    else this.#others.set(name, { slots, until: performance.now() + FORGET_AFTER_MS });
    this.#forgetSilent();
    const recent = performance.now() - RECENT_MS;
    for (const slot of slots) {
      if (before?.has(slot)) continue;
      callAll(this.#whenWatched, slot);
      if (this.#lastWoken[slot]! > recent) this.#later(slot);
    }
  }

  /** A process that was killed says nothing any more. */
  #forgetSilent(): void {
    const now = performance.now();
    const all = new Set<number>();
    for (const [name, { slots, until }] of this.#others) {
      if (until < now) this.#others.delete(name);
      else for (const slot of slots) all.add(slot);
    }
    this.#watchedByOthers = all;
  }

  #later(slot: number): void {
    this.#toWake.add(slot);
    this.#flush();
  }

  #flush(): void {
    this.#sending ??= this.#sendAll().finally(() => {
      this.#sending = null;
    });
  }

  /** In a later phase of the event loop, so that what one group of commits has changed goes together. */
  async #sendAll(): Promise<void> {
    for (let first = true; this.#toWake.size > 0 || this.#announcement !== null; first = false) {
      if (first) await new Promise(setImmediate);
      else await sleep(PAUSE_MS, undefined, { ref: false });
      const announcement = this.#announcement;
      this.#announcement = null;
      const woken = new Set(this.#toWake);
      this.#toWake.clear();
      if (announcement !== null) await this.#tell(announcement, this.#announced);
      if (woken.size > 0) await this.#tell("woken", woken);
    }
  }

  /** A notice that cannot be sent is lost: polling is there for that. */
  async #tell(kind: Kind, slots: ReadonlySet<number>): Promise<void> {
    const text = [...slots].map((slot) => ALPHABET[slot >> 6]! + ALPHABET[slot & 63]!).join("");
    await this.#send(`${kind} ${this.name} ${text}`).catch(() => {});
  }
}

/** @returns what removes it */
function add(all: Map<number, Set<() => void>>, slot: number, callback: () => void): () => void {
  const callbacks = all.get(slot) ?? new Set();
  all.set(slot, callbacks);
  // Apart from others that are the same function.
  const own = () => callback();
  callbacks.add(own);
  return () => {
    callbacks.delete(own);
    if (callbacks.size === 0 && all.get(slot) === callbacks) all.delete(slot);
  };
}

function callAll(all: ReadonlyMap<number, ReadonlySet<() => void>>, slot: number): void {
  const callbacks = all.get(slot);
  if (callbacks !== undefined) for (const callback of [...callbacks]) callback();
}

/** FNV-1a. */
function slotOf(topic: string): number {
  let hash = 0x811c9dc5;
  for (let index = 0; index < topic.length; index++) hash = Math.imul(hash ^ topic.charCodeAt(index), 0x01000193);
  return (hash ^ (hash >>> 15)) & (SLOTS - 1);
}

function parseSlots(text: string): Set<number> {
  const slots = new Set<number>();
  for (let index = 0; index < text.length; index += 2) {
    slots.add((ALPHABET.indexOf(text[index]!) << 6) | ALPHABET.indexOf(text[index + 1]!));
  }
  return slots;
}

const CHANNEL = "penstock";
const NOTIFY = "SELECT pg_notify($1, $2)";
/** A connection that does not answer for so long is given up. */
const ANSWER_TIMEOUT_MS = 5_000;
const RECONNECT_PAUSE_MS = 1_000;

/** LISTEN has no effect here. */
class Deaf extends Error {}

interface Connection {
  readonly session: Session;
  /** Gives it up. */
  lose(error: unknown): void;
}

/**
 * Wake-ups by NOTIFY. It is never part of a commit: with it a transaction takes a lock that all such commits share. While the connection
 * is away, or where LISTEN does not work, nothing is heard, and everybody polls.
 */
export class PostgresNotices {
  readonly #pool: Pool;
  readonly #database: PostgresDatabase;
  readonly #logger: Logger;
  readonly #topics = new WakeTopics((notice) => this.#send(notice));
  readonly #announcements = new Interval(
    ANNOUNCEMENT_INTERVAL_MS,
    async () => this.#topics.announce(),
    () => undefined,
  );
  readonly #closing = new AbortController();
  #connection: Connection | null = null;
  #running: Promise<void> | null = null;
  #heard: (notice: string) => void = () => {};

  /** @param pool of one connection, for this alone. It is made with the first `watch` */
  constructor(pool: Pool, database: PostgresDatabase, logger: Logger) {
    this.#pool = pool;
    this.#database = database;
    this.#logger = logger;
  }

  wake(topic: string): void {
    this.#topics.wake(topic);
  }

  watch(topic: string, woken: () => void): () => void {
    this.#running ??= this.#run();
    return this.#topics.watch(topic, woken);
  }

  /** As `Store.watched`: where nothing is heard, others may watch anything. */
  watched(topic: string, listener: () => void): () => void {
    if (this.#connection === null) listener();
    return this.#topics.watched(topic, listener);
  }

  async close(): Promise<void> {
    await this.#announcements.stop();
    await this.#topics.close();
    this.#closing.abort();
    await this.#running;
    await this.#pool.end();
  }

  /** Keeps a connection until it is closed, or until it shows that LISTEN does not work. */
  async #run(): Promise<void> {
    const { signal } = this.#closing;
    this.#announcements.start();
    while (!signal.aborted) {
      try {
        await this.#listen();
      } catch (error) {
        if (error instanceof Deaf || isStatementError(error)) {
          const pooler = this.#database.connections.server?.neon
            ? "which is that of Neon's pooler, take the address without -pooler"
            : "as behind PgBouncer in transaction mode";
          this.#logger.warn(
            `PostgreSQL: LISTEN does not work on this connection, ${pooler}: changes of other processes are found by polling`,
          );
          return;
        }
        this.#logger.debug({ err: error }, `PostgreSQL: notices of other processes are not heard: ${messageOf(error)}`);
      }
      await sleep(RECONNECT_PAUSE_MS, undefined, { signal, ref: false }).catch(() => {});
    }
  }

  /** Resolves when it is closed, rejects when the connection ends or does not answer. */
  async #listen(): Promise<void> {
    const { signal } = this.#closing;
    const session = await this.#database.connections.hold(this.#pool);
    const { client } = session;
    let stop = () => {};
    try {
      await new Promise<void>((resolve, reject) => {
        stop = resolve;
        // It may have been closed while the connection was made.
        if (signal.aborted) return resolve();
        signal.addEventListener("abort", stop);
        client.on("error", reject);
        client.on("end", () => reject(new Error("the connection has ended")));
        client.on("notification", ({ payload = "" }: { payload?: string }) => this.#heard(payload));
        this.#prove(session).then(() => this.#begin({ session, lose: reject }), reject);
      });
    } finally {
      signal.removeEventListener("abort", stop);
      this.#connection = null;
      client.release(true);
    }
  }

  #begin(connection: Connection): void {
    if (this.#closing.signal.aborted) return;
    this.#heard = (notice) => this.#topics.heard(notice);
    this.#connection = connection;
    this.#topics.announce(true);
    // What was told while nobody listened is found by looking.
    this.#topics.wakeAllOwn();
  }

  /**
   * Begins to listen, and makes sure that it does: a notice from another connection is heard before the next answer here. Behind a
   * pooler each statement may have a connection of its own.
   */
  async #prove(session: Session): Promise<void> {
    const proof = `proof ${this.#topics.name} ${Math.random()}`;
    let proved = false;
    this.#heard = (notice) => {
      proved ||= notice === proof;
    };
    await session.query({ text: `LISTEN ${CHANNEL}`, query_timeout: ANSWER_TIMEOUT_MS });
    await this.#database.read({ text: NOTIFY, values: [CHANNEL, proof], query_timeout: ANSWER_TIMEOUT_MS });
    await session.query({ text: "SELECT 1", query_timeout: ANSWER_TIMEOUT_MS });
    if (!proved) throw new Deaf("a notice was not heard");
  }

  async #send(notice: string): Promise<void> {
    const connection = this.#connection;
    if (connection === null) return;
    const statement = { name: "penstock-notify", text: NOTIFY, values: [CHANNEL, notice] };
    await connection.session.query({ ...statement, query_timeout: ANSWER_TIMEOUT_MS }).catch(connection.lose);
  }
}
