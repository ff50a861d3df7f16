/** How long work may run: who is stopped by what, when work is given up, and that nothing stays behind. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { GivenUp, Lifetime, type Stop } from "../../../core/workflows/run/lifetime.ts";

const stop = (kind: Stop["kind"], gracePeriod = 0, reason: string = kind): Stop => ({ kind, reason, gracePeriod });
const FOREVER = new Promise<never>(() => {});

describe("a lifetime", () => {
  test("a lifetime that stops stops all below it, and nothing above or beside", () => {
    const root = new Lifetime(null);
    const [left, right] = [new Lifetime(root), new Lifetime(root)];
    const inner = new Lifetime(left);
    left.stop(stop("branch"));
    assert.deepEqual(
      [root, right].map(({ stopped }) => stopped),
      [null, null],
    );
    assert.deepEqual(
      [left, inner].map(({ stopped, stoppedItself }) => [stopped?.kind, stoppedItself]),
      [
        ["branch", true],
        ["branch", false],
      ],
    );
  });
  test("a lifetime that begins below one that is stopped is stopped from the beginning", () => {
    const root = new Lifetime(null);
    root.stop(stop("cancel", 10));
    const inner = new Lifetime(root);
    assert.equal(inner.stopped?.kind, "cancel");
    assert.ok(inner.signal.aborted);
  });
  for (const [first, second, kind] of [
    ["suspend", "cancel", "cancel"],
    ["cancel", "suspend", "cancel"],
    ["cancel", "timeout", "timeout"],
    ["branch", "suspend", "branch"],
    ["timeout", "closing", "closing"],
    ["closing", "timeout", "closing"],
    ["suspend", "suspend", "suspend"],
  ] as const) {
    test(`a lifetime that is stopped by ${first}, then by ${second}, was stopped by ${kind}`, () => {
      const root = new Lifetime(null);
      root.stop(stop(first, 1000, "1"));
      root.stop(stop(second, 1000, "2"));
      assert.equal(root.stopped?.kind, kind);
      if (first === second) assert.equal(root.stopped?.reason, "1");
    });
  }
  test("a lifetime tells the reason of its stop by its signal, once", () => {
    const root = new Lifetime(null);
    const reasons: unknown[] = [];
    root.signal.addEventListener("abort", () => reasons.push(root.signal.reason));
    root.stop(stop("suspend", 1000, "lunch"));
    root.stop(stop("cancel", 1000, "no more"));
    assert.ok(reasons[0] instanceof GivenUp);
    assert.deepEqual(
      reasons.map((reason) => (reason as Error).message),
      ["lunch"],
    );
  });
});

describe("work", () => {
  test("work that is done before anything stops it gives what it gives", async () => {
    assert.equal(await new Lifetime(null).wait(Promise.resolve(7)), 7);
    await assert.rejects(new Lifetime(null).wait(Promise.reject(new Error("no"))), /no/);
  });
  test("work is given up at once without patience, before it can complain of its signal", async () => {
    const root = new Lifetime(null);
    const inner = new Lifetime(root);
    const work = new Promise((_resolve, reject) =>
      inner.signal.addEventListener("abort", () => reject(new Error("its own"))),
    );
    const waiting = inner.wait(work);
    root.stop(stop("timeout", 0, "given up"));
    await assert.rejects(waiting, { name: "GivenUp", message: "given up" });
  });
  test("work is given up after the patience of a cancel; what it gives before counts", async () => {
    const [deaf, slow] = [new Lifetime(null), new Lifetime(null)];
    const began = performance.now();
    const waiting = deaf.wait(FOREVER);
    let give: (value: string) => void = () => {};
    const heard = slow.wait(new Promise<string>((resolve) => (give = resolve)));
    for (const lifetime of [deaf, slow]) lifetime.stop(stop("cancel", 60));
    give("in time");
    assert.equal(await heard, "in time");
    await assert.rejects(waiting, GivenUp);
    assert.ok(performance.now() - began >= 55);
    slow.end();
  });
  test("work is never given up for a suspension, until something worse comes", async () => {
    const root = new Lifetime(null);
    const waiting = root.wait(FOREVER);
    root.stop(stop("suspend", Number.POSITIVE_INFINITY));
    await new Promise((resolve) => setTimeout(resolve, 20));
    root.stop(stop("cancel", 10));
    await assert.rejects(waiting, GivenUp);
  });
  test("work that begins after the stop has its patience too", async () => {
    const root = new Lifetime(null);
    root.stop(stop("cancel", 10));
    await assert.rejects(new Lifetime(root).wait(FOREVER), GivenUp);
  });
});

describe("limits and sleep", () => {
  test("a limit stops its lifetime, and is gone with it", async () => {
    const limited = new Lifetime(null, 10);
    await assert.rejects(limited.wait(FOREVER), GivenUp);
    assert.deepEqual([limited.stopped?.kind, limited.stoppedItself, limited.isAbandoned], ["timeout", true, true]);
    const ended = new Lifetime(null, 10);
    ended.end();
    await new Promise((resolve) => setTimeout(resolve, 20));
    assert.equal(ended.stopped, null);
  });
  test("a limit longer than a timer takes does not end at once", async () => {
    const limited = new Lifetime(null, 2 ** 33);
    await new Promise((resolve) => setTimeout(resolve, 20));
    assert.equal(limited.stopped, null);
    limited.end();
  });
  test("sleep of a lifetime says whether the time passed", async () => {
    const root = new Lifetime(null);
    assert.equal(await root.sleep(1), true);
    const long = root.sleep(2 ** 40);
    setTimeout(() => root.stop(stop("suspend", 1000)), 5);
    assert.equal(await long, false);
    assert.equal(await root.sleep(1), false);
  });
});
