/** Ports for what must be told its port, or come back at the same one. Everything else listens on port 0 and says what it was given. */

/** Below what Linux, macOS and Windows give to connections and to `listen(0)`, so that none of those takes one that is free for a moment. */
const FIRST = 20_000;
const COUNT = 12_000;
const TRIES = 20;
const TAKEN = /EADDRINUSE|address already in use|port is in use/i;

/** Starts something on a port of the loopback; again on another one while it rejects because the port is taken. */
export async function onPort<T>(start: (port: number) => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await start(FIRST + Math.floor(Math.random() * COUNT));
    } catch (error) {
      if (tries === TRIES || !TAKEN.test(String(error))) throw error;
    }
  }
}
