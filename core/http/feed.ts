/**
 * One stream of items for many sockets: a ring of what was published last, a cursor for each follower, and a pump that serves
 * them in slices of the event loop's time. A follower that falls out of the ring loses what it has missed and is told how
 * much; nothing waits for it, and nothing is kept for it.
 */
import { messageOf } from "../lib/errors.ts";
import type { Text } from "../lib/serialized.ts";
import type { Peer } from "./socket.ts";

/** Milliseconds of work in one turn of the event loop. */
const SLICE = 4;
/** Items looked at for one follower before the clock is. */
const STRIDE = 64;
/** Bytes that wait for a peer before it is passed over until it has taken them. */
const BEHIND = 64 * 1024;

/** What a follower wants of an item: the text of its message, or null for nothing. Give one text to all: it is made once. */
type Select<T> = (item: T) => Text | null;

/** A place in the feed, of one peer. */
interface Follower {
  /** To be called when the peer has drained. */
  wake(): void;
  /** To be called when the socket is over. */
  stop(): void;
}

type FeedPeer = Pick<Peer, "send" | "drop" | "cork" | "buffered" | "close" | "logger">;

class Place<T> implements Follower {
  previous: Place<T> | null = null;
  next: Place<T> | null = null;
  stopped = false;
  /** Number of the item that comes next. */
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
  /** The item with number n is at n modulo the capacity. Empty while nobody follows. */
  #ring: (T | undefined)[] = [];
  /** Number of the item that will be published next. */
  #end = 0;
  #first: Place<T> | null = null;
  #size = 0;
  /** The follower whose turn it is; null: a round begins. */
  #at: Place<T> | null = null;
  /** Where the last item was when the round began. */
  #roundEnd = 0;
  /** Somebody who was passed over in this round can take something again. */
  #again = false;
  #scheduled = false;

  /** @param capacity items that are kept for followers that are behind */
  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  /** Followers. While it is 0 nothing needs to be made or published. */
  get size(): number {
    return this.#size;
  }

  publish(item: T): void {
    if (this.#size === 0) return;
    this.#ring[this.#end % this.#capacity] = item;
    this.#end++;
    this.#schedule();
  }

  /** Everything that is published from now on, for one peer. */
  follow(peer: FeedPeer, select: Select<T>): Follower {
    if (this.#size === 0) this.#ring = new Array(this.#capacity);
    const place = new Place(this, peer, select, this.#end);
    place.next = this.#first;
    if (this.#first !== null) this.#first.previous = place;
    this.#first = place;
    this.#size++;
    return place;
  }

  remove(place: Place<T>): void {
    if (this.#at === place) this.#at = place.next;
    if (place.previous !== null) place.previous.next = place.next;
    else this.#first = place.next;
    if (place.next !== null) place.next.previous = place.previous;
    if (--this.#size === 0) this.#ring = [];
  }

  wake(cursor: number): void {
    if (cursor === this.#end) return;
    this.#again = true;
    this.#schedule();
  }

  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    setImmediate(pump, this);
  }

  /** One slice: goes on where the one before stopped, until everybody has had a turn since the last item. */
  pump(): void {
    this.#scheduled = false;
    const until = performance.now() + SLICE;
    if (this.#at === null) this.#begin();
    while (this.#at !== null) {
      const place = this.#at;
      const done = this.#turn(place);
      // Serving it may have ended it, or another.
      if (done && this.#at === place) this.#at = place.next;
      if (performance.now() >= until) break;
    }
    if (this.#at !== null || this.#again || this.#roundEnd < this.#end) this.#schedule();
  }

  #begin(): void {
    this.#at = this.#first;
    this.#roundEnd = this.#end;
    this.#again = false;
  }

  /** What goes wrong with one follower ends it alone. */
  #turn(place: Place<T>): boolean {
    try {
      return this.#serve(place);
    } catch (error) {
      const { peer } = place;
      place.stop();
      peer.logger.error({ err: error }, `a feed failed: ${messageOf(error)}`);
      peer.close(1011, "internal error");
      return true;
    }
  }

  /** True when the follower has had its turn; false after one stride of more. */
  #serve(place: Place<T>): boolean {
    const { peer } = place;
    if (place.cursor >= this.#roundEnd || peer.buffered > BEHIND) return true;
    const oldest = this.#end - this.#capacity;
    if (place.cursor < oldest) {
      peer.drop(oldest - place.cursor);
      place.cursor = oldest;
    }
    const stride = Math.min(this.#roundEnd, place.cursor + STRIDE);
    const first = this.#wanted(place, stride);
    if (first !== null) peer.cork(() => this.#send(place, first, stride));
    return place.stopped || place.cursor >= this.#roundEnd || peer.buffered > BEHIND;
  }

  /** The text of the next item that the follower wants; null: none up to `end`. */
  #wanted(place: Place<T>, end: number): Text | null {
    while (place.cursor < end) {
      const text = place.select(this.#ring[place.cursor++ % this.#capacity] as T);
      if (text !== null) return text;
    }
    return null;
  }

  #send(place: Place<T>, first: Text, end: number): void {
    for (let text: Text | null = first; text !== null && !place.stopped; text = this.#wanted(place, end))
      place.peer.send(text);
  }
}

function pump<T>(feed: Feed<T>): void {
  feed.pump();
}
