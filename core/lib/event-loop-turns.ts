/** Shares the event loop among runs whose models send without a pause: each does a slice of work, then yields to the others. */

const waiting: (() => void)[] = [];

/** Resolves in a later turn of the event loop, in the order of the calls, one caller per turn. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    if (waiting.push(resolve) === 1) setImmediate(serve);
  });
}

function serve(): void {
  waiting.shift()!();
  if (waiting.length > 0) setImmediate(serve);
}
