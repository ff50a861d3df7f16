/**
 * The budget of bytes that the bodies of all requests and the messages on sockets together may take up in memory: while they arrive, and
 * until the work that they ask for has ended.
 */
import { type User, userIdOf } from "../identity/user.ts";
import { rateLimited } from "../lib/errors.ts";
import { KeyCounts } from "../lib/key-counts.ts";
import { Uses } from "../lib/uses.ts";
import type { CountRefusal } from "../observability/metrics/limit-meters.ts";

/** This part of the budget is left to users who have less than as much at work, so that one user cannot keep all others out. */
const LAST_PART = 8;

export const TOO_MUCH_AT_WORK = rateLimited("too many bytes of this user are worked on: try again");

/** The bytes of one body or message. They are counted until the last work on them has ended, beginning with that of whoever got this. */
export class Charge extends Uses {
  #release: () => void;

  constructor(release: () => void) {
    super();
    this.#release = release;
    this.enter();
  }

  override leave(): void {
    super.leave();
    if (this.count > 0) return;
    this.#release();
    // Work that a plugin begins after the end is not counted any more.
    this.#release = () => {};
  }
}

export class Uploads {
  readonly maxBytes: number;
  readonly #refused: CountRefusal | undefined;
  #bytes = 0;
  /** Bytes at work, by user. */
  readonly #ofUsers = new KeyCounts();

  constructor(maxBytes: number, refused?: CountRefusal) {
    this.maxBytes = maxBytes;
    this.#refused = refused;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Whether that many bytes fit now; if not, that is a refusal. An announced length is not reserved: it is merely a claim. */
  fits(bytes: number): boolean {
    const isRefused = this.#bytes + bytes > this.maxBytes;
    if (isRefused) this.#refused?.("server.limits.uploads");
    return !isRefused;
  }

  /** Reserves the bytes. False, and nothing is reserved, when they do not fit. */
  reserve(bytes: number): boolean {
    if (!this.fits(bytes)) return false;
    this.#bytes += bytes;
    return true;
  }

  release(bytes: number): void {
    this.#bytes -= bytes;
  }

  /**
   * The work on reserved bytes begins. Null, and they are released, when this user has too many at work: the answer is TOO_MUCH_AT_WORK.
   */
  charge(bytes: number, user: User | null): Charge | null {
    const id = userIdOf(user);
    const part = this.maxBytes / LAST_PART;
    if (id !== null && this.#ofUsers.add(id, bytes) > part && this.#bytes > this.maxBytes - part) {
      this.#ofUsers.add(id, -bytes);
      this.release(bytes);
      this.#refused?.("server.limits.uploads");
      return null;
    }
    return new Charge(() => {
      if (id !== null) this.#ofUsers.add(id, -bytes);
      this.release(bytes);
    });
  }
}
