/** Stages of boot: what one makes is there for the next, and the life of the service follows from their order. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { STAGES } from "../../../core/app/stages/list.ts";
import { assemble, type Built, endAll, kept } from "../../../core/app/stages/stage.ts";
import type { Issue } from "../../../core/manifest/manifest.ts";

const issueAt = (
  path: readonly (string | number)[],
  message: string,
  severity: Issue["severity"] = "error",
): Issue => ({
  severity,
  file: "service.yaml",
  line: 1,
  column: 1,
  path: path.join("."),
  message,
});
const REPORT = { issues: [], issueAt };

/** A stage that writes down what is done to it; the later it comes to it, the longer the earlier ones take. */
function recorded<Key extends string>(key: Key, log: string[]) {
  return (): Built<Record<Key, string>> => {
    log.push(`make ${key}`);
    const slowly = async (what: string) => {
      log.push(`${what} ${key}`);
      await new Promise((resolve) => setImmediate(resolve));
      log.push(`${what} ${key}: done`);
    };
    return {
      parts: { [key]: key } as unknown as Record<Key, string>,
      begin: () => slowly("begin"),
      idle: (timeout) => slowly(`idle ${timeout}`),
      end: () => slowly("end"),
    };
  };
}

test("stages are made and begin in order, idle all at once, and end in reverse order, each when the one before is done", async () => {
  const log: string[] = [];
  const one = recorded("one", log);
  const two = recorded("two", log);
  const { begin, idle, end, parts } = await assemble([one, two], {}, REPORT);
  assert.deepEqual(parts, { one: "one", two: "two" });
  assert.deepEqual(log.splice(0), ["make one", "make two"]);
  await begin();
  assert.deepEqual(log.splice(0), ["begin one", "begin one: done", "begin two", "begin two: done"]);
  await idle(7);
  assert.deepEqual(log.splice(0), ["idle 7 one", "idle 7 two", "idle 7 one: done", "idle 7 two: done"]);
  await end();
  assert.deepEqual(log, ["end two", "end two: done", "end one", "end one: done"]);
});

test("a stage sees the parts of those before it, and whether any of them has found an error", async () => {
  const seen: unknown[] = [];
  const first = ({ zero }: { zero: number }) => ({
    parts: { one: zero + 1 },
    problems: [{ path: ["a"], message: "odd", severity: "warning" as const }],
  });
  const second = async ({ one }: { one: number }, failed: boolean) => {
    seen.push(one, failed);
    return { parts: { two: one + 1 }, problems: [{ path: ["b", 0], message: "wrong" }] };
  };
  const third = ({ zero, two }: { zero: number; two: number }, failed: boolean) => {
    seen.push(zero, two, failed);
    return { parts: {} };
  };
  const { parts, issues } = await assemble([first, second, third], { zero: 0 }, REPORT);
  assert.deepEqual(seen, [1, false, 0, 2, true]);
  assert.deepEqual(parts, { zero: 0, one: 1, two: 2 });
  assert.deepEqual(
    issues.map(({ severity, path, message }) => `${severity} ${path}: ${message}`),
    ["warning a: odd", "error b.0: wrong"],
  );
});

test("a stage that needs what a later one makes is an error of types", async () => {
  const makes = () => ({ parts: { made: 1 } });
  const needs = ({ made }: { made: number }) => ({ parts: { more: made + 1 } });
  const right = await assemble([makes, needs], {}, REPORT);
  assert.equal(right.parts.more, 2);
  // @ts-expect-error: `made` is not there yet
  const wrong = await assemble([needs, makes], {}, REPORT);
  assert.ok(Number.isNaN((wrong.parts as { more: number }).more));
});

test("a kept stage is made once and adopts later assemblies, which make the other stages anew", async () => {
  const log: string[] = [];
  const made = { one: 0, two: 0, three: 0 };
  const one = kept(({ given }: { given: string }) => ({
    parts: { one: `one ${++made.one} of ${given}` },
    end: () => void log.push("end one"),
  }));
  const two = ({ given, one }: { given: string; one: string }) => {
    const number = ++made.two;
    return { parts: { two: `two ${number} of ${given}, ${one}` }, end: () => void log.push(`end two ${number}`) };
  };
  const three = kept(({ two }: { two: string }): Built<{ three: string }, { two: string }> => {
    made.three++;
    return {
      parts: { three: `three of ${two}` },
      adopt: (next, failed) => ({
        problems: failed ? [] : [{ path: ["three"], message: "odd", severity: "warning" }],
        begin: async () => void log.push(`begin with ${next.two}`),
        apply: () => void log.push(`apply ${next.two}`),
      }),
      end: () => void log.push("end three"),
    };
  });
  const stages = [one, two, three] as const;
  const lasting = { given: "the process" };
  const first = await assemble(stages, { given: "the first" }, REPORT, { lasting });
  assert.deepEqual(first.parts, {
    given: "the first",
    one: "one 1 of the process",
    two: "two 1 of the first, one 1 of the process",
    three: "three of two 1 of the first, one 1 of the process",
  });
  const next = await assemble(stages, { given: "the next" }, REPORT, { kept: first.kept, lasting });
  const two2 = "two 2 of the next, one 1 of the process";
  assert.deepEqual(next.parts, { ...first.parts, given: "the next", two: two2 });
  assert.deepEqual(made, { one: 1, two: 2, three: 1 });
  assert.equal(next.issues[0]!.message, "odd");
  assert.deepEqual(log, [], "nothing has changed yet");
  await next.begin();
  next.adopt();
  assert.deepEqual(log.splice(0), [`begin with ${two2}`, `apply ${two2}`]);
  await endAll([...first.ends, ...next.ends]);
  assert.deepEqual(log, ["end three", "end two 1", "end two 2", "end one"]);
});

test("the store of a service is opened after all that may be wrong is known, and closes after all that uses it", () => {
  const names: string[] = STAGES.map(({ name }) => name);
  const at = (name: string) => names.indexOf(name);
  for (const before of ["declaredTools", "models", "routes", "verifier"]) assert.ok(at(before) < at("store"), before);
  for (const after of ["metrics", "tools", "traces", "memories", "agents", "workflows", "a2a"])
    assert.ok(at("store") < at(after), after);
  // Workflows run agents, agents are traced: what ends first stands last.
  assert.deepEqual(
    names.filter((name) => ["traces", "agents", "workflows", "a2a"].includes(name)),
    ["traces", "agents", "workflows", "a2a"],
  );
});
