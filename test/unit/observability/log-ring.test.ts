/** The ring of log lines: what it keeps, and within which bounds. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { findLines, LogRing, logRecord, parseLogEntry } from "../../../core/observability/log-line.ts";
import { createLogger } from "../../../core/observability/logger.ts";

const line = (bindings: object, level = "info") =>
  `{"level":"${level}","time":"2026-11-20T09:30:00.000Z",${JSON.stringify(bindings).slice(1)}\n`;
const NOWHERE = { write: () => {} };

test("it holds the newest lines, whatever is pushed and however it is resized", () => {
  fc.assert(
    fc.property(
      fc.array(fc.oneof(fc.nat(40), fc.record({ push: fc.nat(3000) })), { maxLength: 12 }),
      fc.nat(40),
      (steps, first) => {
        const ring = new LogRing(first);
        let capacity = first;
        let kept: string[] = [];
        let count = 0;
        for (const step of steps) {
          if (typeof step === "number") {
            ring.resize(step);
            capacity = step;
          } else
            for (let index = 0; index < step.push; index++) {
              const text = line({ msg: String(count++) });
              ring.push(text);
              kept.push(text);
            }
          kept = kept.slice(Math.max(0, kept.length - capacity));
          assert.equal(ring.count, kept.length);
        }
        assert.deepEqual([...ring.newest()], kept.reverse());
      },
    ),
    { numRuns: 50 },
  );
});

test("lines of a logger with levels of its own have a level that is known, and break nothing", () => {
  const ring = new LogRing(10);
  const logger = createLogger("trace", { destination: NOWHERE, ring });
  const own = logger.child({ agentId: "a" }, { customLevels: { verbose: 35, timing: 36 } });
  own.verbose({ password: "hunter2" }, "one");
  own.timing({ level: "x", time: 5 }, "two");
  logger.child({}, { formatters: { level: (_label, number) => ({ level: number }) } }).error("three");
  const { entries, total } = findLines(ring, {}, 10);
  assert.equal(total, 3);
  assert.deepEqual(
    entries.map(({ msg, level, levelName, password }) => [msg, level, levelName, password]),
    [
      ["three", "error", undefined, undefined],
      ["two", "info", "timing", undefined],
      ["one", "info", "verbose", "***"],
    ],
  );
  for (const { timestamp } of entries) assert.ok(Math.abs(Date.parse(timestamp) - Date.now()) < 60_000, timestamp);
  for (const text of ring.newest()) assert.ok(text.endsWith("}\n"), text);
});

test("all lines together are bounded, whatever the number of lines", () => {
  const ring = new LogRing(1_000_000);
  const text = line({ msg: "x".repeat(10_000) });
  for (let index = 0; index < 3_000; index++) ring.push(text);
  assert.ok(ring.count > 1_500 && ring.count * text.length <= 16 * 1024 * 1024, String(ring.count));
});

test("of a line that is too long the long values are cut, as it says", () => {
  const ring = new LogRing(10);
  const long = "x".repeat(100_000);
  ring.push(line({ agentId: "a", data: { long }, err: { type: "Error", message: long, stack: long }, msg: long }));
  ring.push(
    line({ ...Object.fromEntries(Array.from({ length: 5_000 }, (_, index) => [`k${index}`, index])), msg: "m" }),
  );
  const [many, one] = findLines(ring, {}, 10).entries;
  assert.deepEqual([many!.msg, many!.cut], ["m", true]);
  assert.deepEqual([one!.agentId, one!.cut, one!.data], ["a", true, undefined]);
  assert.equal(one!.msg.length, 1027);
  for (const text of ring.newest()) assert.ok(text.length <= 16 * 1024);
});

test("capacity 0 keeps nothing, and still tells who listens", () => {
  const ring = new LogRing(0);
  const heard: string[] = [];
  ring.listener = (text) => heard.push(text);
  ring.push(line({ msg: "x" }));
  assert.deepEqual([ring.count, heard.length], [0, 1]);
});

test("what a plugin binds to the names of the log itself does not deceive its reader", () => {
  const ring = new LogRing(10);
  const logger = createLogger("trace", { destination: NOWHERE, ring });
  logger.fatal({ level: "trace", time: "never", timestamp: 1, 0: "first", token: "t" }, "hostile");
  logger.warn({ level: 7, msg: "own" });
  logger.info({ big: 10n, symbol: Symbol("s"), nothing: undefined, not: Number.NaN }, "odd");
  const [odd, own, hostile] = findLines(ring, {}, 10).entries;
  assert.deepEqual([hostile!.level, hostile!.msg, hostile!.token], ["fatal", "hostile", "***"]);
  assert.notEqual(hostile!.timestamp, 1);
  assert.deepEqual([own!.level, own!.msg], ["warn", "own"]);
  assert.deepEqual([odd!.level, odd!.not], ["info", null]);
});

test("a line that is no JSON does not close the log", () => {
  const ring = new LogRing(10);
  ring.push('{"level":"warn","time":"2026-11-20T09:30:00.000Z","msg":undefined}\n');
  ring.push(line({ msg: "fine" }));
  const { entries } = findLines(ring, {}, 10);
  assert.deepEqual(
    entries.map(({ msg, level }) => [level, msg]),
    [
      ["info", "fine"],
      ["warn", "a line that is not JSON"],
    ],
  );
});

test("a name inside another value is not the name that is asked for", () => {
  const ring = new LogRing(10);
  ring.push(line({ agentId: "b", inner: { agentId: "a" }, text: '"agentId":"a"', msg: "x" }));
  assert.equal(findLines(ring, { bound: [["agentId", "a"]] }, 10).total, 0);
  assert.equal(findLines(ring, { bound: [["agentId", "b"]] }, 10).total, 1);
  assert.equal(findLines(ring, { entityId: "a" }, 10).total, 0);
});

test("searching looks at what is bound, at any depth, in any case, and at no names", () => {
  const ring = new LogRing(10);
  ring.push(line({ shop: { street: 'The "Long" Way' }, msg: "Ünder" }));
  const count = (search: string) => findLines(ring, { search }, 10).total;
  assert.deepEqual(['"LONG" w', "üND", "street", "info", "2026"].map(count), [1, 1, 0, 0, 0]);
});

test("the error of a line becomes the exception of its record", () => {
  const err = { type: "TypeError", message: "no", stack: "TypeError: no", code: "E1" };
  const { attributes } = logRecord(parseLogEntry(line({ err, workflowId: "w", msg: "x" }, "error")));
  assert.deepEqual(attributes, {
    "entity.type": "workflow",
    "entity.id": "w",
    workflowId: "w",
    "exception.type": "TypeError",
    "exception.message": "no",
    "exception.stacktrace": "TypeError: no",
    err: { code: "E1" },
  });
});
