/** What no line of the log may hold. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { LogText } from "../../../core/observability/log-text.ts";
import { createLogger } from "../../../core/observability/logger.ts";

function linesOf(secrets: readonly string[], write: (logger: ReturnType<typeof createLogger>) => void): string[] {
  const text = new LogText();
  text.hide(secrets);
  const lines: string[] = [];
  write(createLogger("trace", { destination: { write: (line: string) => void lines.push(line) }, text }));
  return lines;
}

test("a line without a secret is the very line that pino made", () => {
  const text = new LogText();
  text.hide(["hidden"]);
  const line = '{"level":"info","time":"2026-11-20T09:30:00.000Z","totalTokens":5,"msg":"fine"}\n';
  assert.equal(text.clean(line), line);
});

test("whatever a secret is made of, no line that holds it somewhere shows it, and every line stays JSON", () => {
  const secret = fc.string({ minLength: 4, maxLength: 30, unit: "binary" }).filter((text) => text.trim().length > 3);
  const place = fc.constantFrom("msg", "value", "list", "deep", "error", "child");
  fc.assert(
    fc.property(secret, place, fc.string(), (hidden, where, around) => {
      const said = `${around}${hidden}${around}`;
      // What it is replaced by, and what is around it, may happen to hold it.
      fc.pre(!"***".includes(hidden) && !`${around}***${around}`.includes(hidden));
      const [line] = linesOf([hidden], (logger) => {
        if (where === "msg") logger.info(said);
        if (where === "value") logger.info({ note: said }, "x");
        if (where === "list") logger.info({ note: [said] }, "x");
        if (where === "deep") logger.info({ note: { of: { it: said } } }, "x");
        if (where === "error") logger.info({ err: new Error("x", { cause: new Error(said) }) }, "x");
        if (where === "child") logger.child({ note: said }).info("x");
      });
      const { level: _level, time: _time, ...rest } = JSON.parse(line!);
      const values: string[] = [];
      JSON.stringify(rest, (_key, value) => (typeof value === "string" ? values.push(value) && value : value));
      assert.ok(
        values.every((value) => !value.includes(hidden)),
        line,
      );
    }),
    { numRuns: 300 },
  );
});

test("secrets are hidden in texts and as whole values; names of things stay", () => {
  const [line] = linesOf(["abcd", "support"], (logger) =>
    logger.info({ agentId: "support", pin: "abcd", word: "about support" }, 'it is "abcd"'),
  );
  const { level: _level, time: _time, ...rest } = JSON.parse(line!);
  assert.deepEqual(rest, { agentId: "support", pin: "***", word: "about ***", msg: 'it is "***"' });
});

test("credentials in addresses are hidden: the password of a user, and parameters that are named so", () => {
  for (const [said, shown] of [
    ["postgres://bob:sEcr3t@db/x refused", "postgres://bob:***@db/x refused"],
    ["see https://:pw@h/?a=1", "see https://:***@h/?a=1"],
    ["GET /x?access_token=abc&apiKey=def&b=1", "GET /x?access_token=***&apiKey=***&b=1"],
    ["GET /x?b=1&client_secret=abc", "GET /x?b=1&client_secret=***"],
    ["http://host:80/a@b, mail@host, ?monkey=1&tokens=2", "http://host:80/a@b, mail@host, ?monkey=1&tokens=2"],
  ] as const) {
    const [line] = linesOf([], (logger) => logger.info({ note: [said] }, said));
    const { note, msg } = JSON.parse(line!);
    assert.deepEqual([msg, note], [shown, [shown]]);
  }
});

test("errors of model clients leave their prompts behind, under err and under error", () => {
  const failure = Object.assign(new Error("refused"), { requestBodyValues: { prompt: "the plan" }, statusCode: 400 });
  for (const key of ["err", "error"]) {
    const [line] = linesOf([], (logger) => logger.warn({ [key]: failure }, "failed"));
    assert.ok(!line!.includes("the plan"));
    assert.equal(JSON.parse(line!)[key].statusCode, 400);
  }
});

test("a line of more than 64 KiB is cut before it is cleaned: what it says stays, and a secret that goes through the cut does not show", () => {
  const secret = "s3cret-that-is-cut-in-the-middle";
  const said = "x".repeat(8 * 1024 - 8) + secret + "y".repeat(1_000_000);
  const many = Array.from({ length: 100_000 }, (_, index) => `piece ${index}`);
  const lines = linesOf([secret], (logger) => {
    logger.info({ agentId: "support" }, said);
    logger.error({ err: new Error(said) }, said);
    logger.warn({ many, password: said, [`name${said}`]: 1, of: { it: said } }, "short");
    logger.info({ agentId: said }, "short");
    logger.info({ token: "x" }, "y".repeat(60_000));
  });
  assert.ok(lines.every((line) => line.length < 70_000));
  const entries = lines.map((line) => JSON.parse(line));
  assert.deepEqual(
    entries.map(({ cut }) => cut),
    [true, true, true, true, undefined],
  );
  assert.deepEqual([entries[0].agentId, entries[0].msg.slice(0, 3), entries[0].msg.at(-1)], ["support", "xxx", "…"]);
  assert.deepEqual([entries[2].msg, entries[2].many[0], entries[3].msg], ["short", "piece 0", "short"]);
  assert.equal(entries[4].msg.length, 60_000);
  for (const line of lines) assert.doesNotMatch(line, /s3cret/);
});

test("credentials are hidden by their forms and by the names before them, whoever logs them", () => {
  const key = "sk-proj-abc1234567890abcdef";
  const said = [
    "Authorization: Basic dXNlcjpwYXNzd29yZA==",
    `refused ${key}`,
    "postgres://ada:pgsecret1@db/pens",
    "password=hunter22 and more",
    "password is hunter22",
    "AKIAABCDEFGHIJKLMNOP",
  ];
  const bound = { dbPassword: "hunter22", connectionString: "Host=db", headers: { "x-session-token": "hunter22" } };
  const lines = linesOf([], (logger) => {
    for (const text of said) logger.warn(text);
    for (const text of said) logger.error({ err: new Error(text) }, "failed");
    for (const [name, value] of Object.entries(bound)) logger.info({ [name]: value }, "x");
  });
  assert.equal(lines.length, 2 * said.length + 3);
  for (const line of lines) {
    assert.doesNotMatch(line, /dXNlcjpw|abc1234567890|pgsecret1|hunter22|AKIAABC|Host=db/);
    assert.match(line, /\*\*\*/);
  }
});
