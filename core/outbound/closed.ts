/** Connections that the other side has closed. */

const CLOSED_CODES: readonly unknown[] = ["UND_ERR_SOCKET", "ECONNRESET", "EPIPE"];
/** One that is closed as it is used again is closed at once. Later, the request may have been worked on, and be paid for. */
const AT_ONCE_MS = 5_000;

/**
 * Whether the other side has closed the connection as it was used: of a kept one that says nothing of the server.
 *
 * @param since when it was used, on the clock of `performance.now()`
 */
export const isClosed = (error: unknown, since: number): boolean =>
  CLOSED_CODES.includes((error as NodeJS.ErrnoException).code) && performance.now() - since < AT_ONCE_MS;

/** Asks once more where the connection was closed before there was an answer: most likely a kept one. @param isFree whether it may */
export async function askAgain<T>(ask: () => Promise<T>, isFree = () => true): Promise<T> {
  const since = performance.now();
  try {
    return await ask();
  } catch (error) {
    if (isClosed(error, since) && isFree()) return ask();
    throw error;
  }
}
