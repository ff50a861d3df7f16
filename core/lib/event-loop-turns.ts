/** Shares the event loop between runs whose models send without a pause: each does a slice of work, then others get their turn. */

const waiting: (() => void)[] = [];

/** Resolves in a later turn of the event loop, first come first served: one caller in each turn. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    if (waiting.push(resolve) === 1) setImmediate(serve);
  });
}

function serve(): void {
  waiting.shift()!();
  if (waiting.length > 0) setImmediate(serve);
}
