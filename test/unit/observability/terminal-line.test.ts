/** The log as people see it on a terminal. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { createLogger } from "../../../core/observability/logger.ts";
import { lineFormat } from "../../../core/observability/terminal-line.ts";

/** What is written to a terminal. */
function written(log: (logger: ReturnType<typeof createLogger>) => void, colours = false): string {
  const lines: string[] = [];
  const format = lineFormat("auto", { isTerminal: true, colours });
  log(createLogger("trace", { destination: { write: (line: string) => void lines.push(format(line)) } }));
  return lines.join("");
}

const TIME = "\\d\\d:\\d\\d:\\d\\d\\.\\d{3}";

test("on a terminal a line of the log is its time, level, message and whom it is about, in this order", () => {
  const text = written((logger) =>
    logger.info({ requestId: "r1", tool: "refund", agentId: "support", tries: 2 }, "paid"),
  );
  assert.match(text, new RegExp(`^${TIME} INFO  paid  agent=support tool=refund tries=2\n$`));
});

test("on a terminal what a tool says is one line without a stack, and names the request", () => {
  const err = new Error("a refund is at most 1000 EUR");
  const text = written((logger) => logger.error({ err, requestId: "r1", tool: "refund" }, err.message));
  assert.match(text, new RegExp(`^${TIME} ERROR a refund is at most 1000 EUR  tool=refund requestId=r1\n$`));
});

test("on a terminal a mistake in code says where it is, in a few lines, and other errors say what caused them", () => {
  const mistake = written((logger) => logger.error({ err: new TypeError("x is not a function") }, "internal error"));
  const [head, said, ...places] = mistake.trimEnd().split("\n");
  assert.match(head!, /ERROR internal error$/);
  assert.equal(said, "    TypeError: x is not a function");
  assert.ok(places.length >= 1 && places.length <= 6);
  assert.match(places[0]!, /^ {6}at .*terminal-line\.test/);
  const cause = Object.assign(new Error("connect failed"), { code: "ECONNREFUSED" });
  const failed = written((logger) => logger.warn({ err: new Error("asking failed", { cause }) }, "no answer"));
  assert.deepEqual(failed.trimEnd().split("\n").slice(1), [
    "    Error: asking failed",
    "    because of Error: connect failed (ECONNREFUSED)",
  ]);
});

test("on a terminal what a client wrote cannot move the cursor, and a second line of it does not look like one of the log", () => {
  const text = written((logger) =>
    logger.info({ name: "\u001b[2J\u202e" }, "one\n12:00:00.000 ERROR two\u001b]0;title\u0007"),
  );
  assert.doesNotMatch(text.replaceAll("\n", ""), /[\p{Cc}\p{Bidi_Control}]/u);
  assert.match(text.split("\n")[1]!, /^ {4}12:00:00/);
});

test("the log is JSON where it is not a terminal, and what logs.format says elsewhere", () => {
  const line = '{"level":"info","time":"2026-11-20T09:30:00.000Z","msg":"hello"}\n';
  const formatted = (format: "auto" | "json" | "text", isTerminal: boolean) =>
    lineFormat(format, { isTerminal, colours: true })(line);
  assert.equal(formatted("auto", false), line);
  assert.equal(formatted("json", true), line);
  assert.match(formatted("text", false), new RegExp(`^${TIME} INFO  hello\n$`));
  assert.ok(formatted("auto", true).endsWith("\u001b[36mINFO \u001b[0m hello\n"));
});
