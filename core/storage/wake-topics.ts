/**
 * Wake-ups between processes that share a store: who waits for a change of a topic (the key of a row, say) watches it, and who has
 * changed it wakes those who watch. What crosses the wire are short notices to all processes, which may be lost.
 *
 * A notice is sent only for topics that another process has said it watches, so that commits which nobody waits for cost nothing.
 * Topics are hashed into a fixed number of slots: every notice fits into its bound, however many topics there are, and two topics of
 * one slot cost a needless look.
 */
import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

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
