/** The time that is stored. Clocks of machines are set back, and begin before 1970 where nobody has set them yet. */

/** Gives milliseconds since 1970. */
export type Clock = () => number;

/** The system's clock. Keys of the store hold no time before 1970, which is where it stands until it is set. */
export const systemTime: Clock = () => Math.max(0, Date.now());

/** A clock that stands still where `source` goes back: what comes later is never dated before what came earlier. */
export function risingClock(source: Clock): Clock {
  let last = 0;
  return () => {
    last = Math.max(last, source());
    return last;
  };
}

/** The clock of everything that this process stores; what another process reads of it may be later than its own. */
export const storedTime: Clock = risingClock(systemTime);
