/**
 * The budget of bytes that the bodies of all requests and the messages on sockets together may take up in memory: while they arrive, and
 * until the work that they ask for has ended.
 */
import { type User, userIdOf } from "../identity/user.ts";
import { rateLimited, unavailable } from "../lib/errors.ts";
import { KeyCounts } from "../lib/key-counts.ts";
import { Uses } from "../lib/uses.ts";
import type { CountRefusal } from "../observability/metrics/limit-meters.ts";

/** This part of the budget is left to users who have less than as much at work, so that one user cannot keep all others out. */
const LAST_PART = 8;

export const TOO_MUCH_AT_WORK = rateLimited("too many bytes of this user are worked on: try again");

export const CROWDED = unavailable("too many bytes are being uploaded at once, or worked on: try again");

/**
 * The bytes of one body or message, and of what it has copied. They are counted until the last work on them has ended, beginning with
 * that of whoever got this.
 */
export class Charge extends Uses {
  readonly #uploads: Uploads;
  readonly #user: string | null;
  #bytes: number;
  #copies = 0;

  constructor(uploads: Uploads, user: string | null, bytes: number) {
    super();
    this.#uploads = uploads;
    this.#user = user;
    this.#bytes = bytes;
    this.enter();
  }

  /**
   * The work holds copies of what is stored, of at most so many bytes at once. Those above half of the budget are not counted, or they
   * could never be made.
   *
   * @throws ServiceError `unavailable` or `rate_limited` when they do not fit
   */
  copies(bytes: number): void {
    const more = Math.min(bytes, this.#uploads.maxBytes / 2) - this.#copies;
    // Work that a plugin begins after the end is not counted any more.
    if (more <= 0 || this.count === 0) return;
    if (!this.#uploads.reserve(more)) throw CROWDED;
    if (!this.#uploads.begin(more, this.#user)) throw TOO_MUCH_AT_WORK;
    this.#copies += more;
    this.#bytes += more;
  }

  override leave(): void {
    super.leave();
    if (this.count > 0) return;
    this.#uploads.end(this.#bytes, this.#user);
    this.#bytes = 0;
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

  /** The work on reserved bytes begins. Null, and they are released, when this user has too many: the answer is TOO_MUCH_AT_WORK. */
  charge(bytes: number, user: User | null): Charge | null {
    const id = userIdOf(user);
    return this.begin(bytes, id) ? new Charge(this, id, bytes) : null;
  }

  /** False, and reserved bytes are released, when this user has too many at work. */
  begin(bytes: number, user: string | null): boolean {
    const part = this.maxBytes / LAST_PART;
    const isWithin = user === null || this.#ofUsers.add(user, bytes) <= part || this.#bytes <= this.maxBytes - part;
    if (isWithin) return true;
    this.end(bytes, user);
    this.#refused?.("server.limits.uploads");
    return false;
  }

  end(bytes: number, user: string | null): void {
    if (user !== null) this.#ofUsers.add(user, -bytes);
    this.release(bytes);
  }
}
