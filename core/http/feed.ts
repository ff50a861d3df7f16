/**
 * One stream of items for many sockets: a ring of the newest items, a cursor for each follower, and a pump that serves the followers in
 * short slices so that the event loop stays free. A follower that falls out of the ring loses what it missed and is notified of how much;
 * nothing waits for it, and nothing is kept for it.
 */
import { messageOf } from "../lib/errors.ts";
import type { Text } from "../lib/serialized.ts";
import type { Peer } from "./route.ts";

/** How long one slice of the pump may keep the event loop busy. */
const SLICE_MS = 4;
/** Items handled for one follower before the clock is read. */
const STRIDE_ITEMS = 64;
/** A peer with more bytes waiting is skipped until it has read them. */
const MAX_WAITING_BYTES = 64 * 1024;

/** Makes the message of an item for one follower; null: it does not want the item. Followers should share one text per item. */
type Select<T> = (item: T) => Text | null;

/** The handle that a peer keeps for its subscription. */
interface Follower {
  /** Must be called when the peer has drained. */
  wake(): void;
  /** Must be called when the socket is closed. */
  stop(): void;
}

type FeedPeer = Pick<Peer, "send" | "drop" | "cork" | "buffered" | "close" | "logger">;

class Subscription<T> implements Follower {
  previous: Subscription<T> | null = null;
  next: Subscription<T> | null = null;
  stopped = false;
  /** Number of the next item. */
  cursor: number;
  readonly peer: FeedPeer;
  readonly select: Select<T>;
  readonly #feed: Feed<T>;

  constructor(feed: Feed<T>, peer: FeedPeer, select: Select<T>, cursor: number) {
    this.#feed = feed;
    this.peer = peer;
    this.select = select;
    this.cursor = cursor;
  }

  wake(): void {
    if (!this.stopped) this.#feed.wake(this.cursor);
  }

  stop(): void {
    if (this.stopped) return;
    this.stopped = true;
    this.#feed.remove(this);
  }
}

export class Feed<T> {
  readonly #capacity: number;
  /** Item n is at index n modulo the capacity. Empty while there are no followers. */
  #ring: (T | undefined)[] = [];
  /** Number that the next published item gets. */
  #end = 0;
  #first: Subscription<T> | null = null;
  #size = 0;
  /** The subscription to serve next; null when a new round is to begin. */
  #current: Subscription<T> | null = null;
  /** Value of `#end` when the round began. */
  #roundEnd = 0;
  /** A follower that was skipped in this round can take messages again. */
  #wokenUp = false;
  #scheduled = false;

  /** @param capacity items that are kept for slow followers */
  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  /** Number of followers. While it is 0 nothing needs to be made or published. */
  get size(): number {
    return this.#size;
  }

  publish(item: T): void {
    if (this.#size === 0) return;
    this.#ring[this.#end % this.#capacity] = item;
    this.#end++;
    this.#schedule();
  }

  /** Subscribes a peer to everything that is published from now on. */
  follow(peer: FeedPeer, select: Select<T>): Follower {
    if (this.#size === 0) this.#ring = new Array(this.#capacity);
    const subscription = new Subscription(this, peer, select, this.#end);
    subscription.next = this.#first;
    if (this.#first !== null) this.#first.previous = subscription;
    this.#first = subscription;
    this.#size++;
    return subscription;
  }

  remove(subscription: Subscription<T>): void {
    if (this.#current === subscription) this.#current = subscription.next;
    if (subscription.previous !== null) subscription.previous.next = subscription.next;
    else this.#first = subscription.next;
    if (subscription.next !== null) subscription.next.previous = subscription.previous;
    if (--this.#size === 0) this.#ring = [];
  }

  wake(cursor: number): void {
    if (cursor === this.#end) return;
    this.#wokenUp = true;
    this.#schedule();
  }

  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(pump, this);
  }

  /** Runs one slice: continues where the last one stopped, until every follower has had a turn since the last item. */
  pump(): void {
    this.#scheduled = false;
    const until = performance.now() + SLICE_MS;
    if (this.#current === null) this.#begin();
    while (this.#current !== null) {
      const subscription = this.#current;
      const done = this.#turn(subscription);
      // Serving a follower may have removed this one, or another.
      if (done && this.#current === subscription) this.#current = subscription.next;
      if (performance.now() >= until) break;
    }
    if (this.#current !== null || this.#wokenUp || this.#roundEnd < this.#end) this.#schedule();
  }

  #begin(): void {
    this.#current = this.#first;
    this.#roundEnd = this.#end;
    this.#wokenUp = false;
  }

  /** Serves one follower. An error closes only the follower that caused it. */
  #turn(subscription: Subscription<T>): boolean {
    try {
      return this.#serve(subscription);
    } catch (error) {
      const { peer } = subscription;
      subscription.stop();
      peer.logger.error({ err: error }, `a feed failed: ${messageOf(error)}`);
      peer.close(1011, "internal error");
      return true;
    }
  }

  /** Sends what the follower wants. False when its turn must continue, because one stride was not enough. */
  #serve(subscription: Subscription<T>): boolean {
    const { peer } = subscription;
    if (subscription.cursor >= this.#roundEnd || peer.buffered > MAX_WAITING_BYTES) return true;
    const oldest = this.#end - this.#capacity;
    if (subscription.cursor < oldest) {
      peer.drop(oldest - subscription.cursor);
      subscription.cursor = oldest;
    }
    const stride = Math.min(this.#roundEnd, subscription.cursor + STRIDE_ITEMS);
    const first = this.#wanted(subscription, stride);
    if (first !== null) peer.cork(() => this.#send(subscription, first, stride));
    return subscription.stopped || subscription.cursor >= this.#roundEnd || peer.buffered > MAX_WAITING_BYTES;
  }

  /** The message of the next item before `end` that the follower wants; null when there is none. */
  #wanted(subscription: Subscription<T>, end: number): Text | null {
    while (subscription.cursor < end) {
      const text = subscription.select(this.#ring[subscription.cursor++ % this.#capacity] as T);
      if (text !== null) return text;
    }
    return null;
  }

  #send(subscription: Subscription<T>, first: Text, end: number): void {
    for (let text: Text | null = first; text !== null && !subscription.stopped; text = this.#wanted(subscription, end))
      subscription.peer.send(text);
  }
}

function pump<T>(feed: Feed<T>): void {
  feed.pump();
}
