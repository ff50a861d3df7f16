/** Connections that the other side has closed. */

const CLOSED_CODES: readonly unknown[] = ["UND_ERR_SOCKET", "ECONNRESET", "EPIPE"];

/** Whether the other side has closed the connection: a kept one that was used at that moment says nothing of the server. */
export const isClosed = (error: unknown): boolean => CLOSED_CODES.includes((error as NodeJS.ErrnoException).code);

/** Asks once more where the connection was closed before there was an answer: most likely a kept one. @param isFree whether it may */
export async function askAgain<T>(ask: () => Promise<T>, isFree = () => true): Promise<T> {
  try {
    return await ask();
  } catch (error) {
    if (isClosed(error) && isFree()) return ask();
    throw error;
  }
}
