/** Runs whose models send without pause share the event loop: each does one slice, then everything else has its turn. */

const waiting: (() => void)[] = [];

/** Settles in a later turn of the event loop, after those that asked before: one in each turn. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    if (waiting.push(resolve) === 1) setImmediate(serve);
  });
}

function serve(): void {
  waiting.shift()!();
  if (waiting.length > 0) setImmediate(serve);
}
