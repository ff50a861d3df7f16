/** The time for stored objects. The clock of a machine may be set back, and may show a date before 1970 until it is set. */

/** Returns milliseconds since 1970. */
export type Clock = () => number;

/** The system clock, but never before 1970: keys of the store cannot contain an earlier time. */
export const systemTime: Clock = () => Math.max(0, Date.now());

/** A clock that stands still while `source` is behind its latest time: later events never get an earlier time. */
export function risingClock(source: Clock): Clock {
  let last = 0;
  return () => {
    last = Math.max(last, source());
    return last;
  };
}

/** The clock for everything that this process stores. Times that other processes stored may be ahead of it. */
export const storedTime: Clock = risingClock(systemTime);
