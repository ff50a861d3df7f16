/** `retry` of steps: how long the waits are, and which errors are not worth another try. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { retryDelay } from "../../core/workflows/run/attempts.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { type Client, refused, startWorkflows } from "../support/workflow-service.ts";

/** Fails each time with the code that its input says, and counts its tries by the input's name. */
const CHARGE = `const tries = globalThis.penstockTestTries ??= new Map();
const fail = ({ name, code, deep }) => {
  tries.set(name, (tries.get(name) ?? 0) + 1);
  const error = Object.assign(new Error("no"), code === null ? {} : { code });
  throw deep ? new Error("no", { cause: error }) : error;
};
export default { kind: "KIND", EXTRA execute: (given) => fail("KIND" === "step" ? given.data : given) };`;
const PLUGINS = {
  "steps/charge.mjs": CHARGE.replaceAll("KIND", "step").replace("EXTRA", ""),
  "tools/charge_card.mjs": CHARGE.replaceAll("KIND", "tool").replace("EXTRA", 'parameters: { type: "object" },'),
};

const RETRY = { attempts: 2, delay: "1ms" };
const unless = (text: string) => ({ ...RETRY, unless: text });
const DECLINED = unless("{{ error.code == 'declined' }}");
const charge = { andThen: { use: "charge" } };

async function started(t: Parameters<typeof pluginFolder>[0] & { after(callback: () => Promise<void>): void }) {
  return startWorkflows(
    t,
    {
      step: { steps: [{ id: "s", retry: DECLINED, ...charge }] },
      inherited: { retry: DECLINED, steps: [{ id: "s", ...charge }] },
      tool: { steps: [{ id: "s", retry: DECLINED, andThen: { tool: "charge_card" } }] },
      all: { steps: [{ id: "all", retry: DECLINED, andAll: [{ id: "s", ...charge }] }] },
      named: { steps: [{ id: "s", retry: unless("error.stepId == 's' && error.message == 'no'"), ...charge }] },
      kind: { steps: [{ id: "s", retry: unless("error.code == 'tool_failed'"), andThen: { tool: "charge_card" } }] },
      none: { steps: [{ id: "s", retry: unless("error.code == null"), ...charge }] },
      wrong: { steps: [{ id: "s", retry: unless("error.code.size() > data.missing"), ...charge }] },
    },
    { tools: { charge_card: { use: "charge_card" } } },
    { plugins: [pluginFolder(t, PLUGINS)] },
  );
}

const counts = () => (globalThis as { penstockTestTries?: Map<string, number> }).penstockTestTries;

async function triesOf({ service }: Client, workflow: string, input: { code: string | null; deep?: boolean }) {
  const name = `${workflow} ${JSON.stringify(input)}`;
  const reply = await refused(service.post(`/workflows/${workflow}/execute`, { input: { name, ...input } }));
  assert.equal(reply.status, 500);
  return { tries: counts()?.get(name), error: reply.error };
}

describe("POST /workflows/:id/execute: retry.unless", () => {
  test("an error for which it is true is not tried again, others are", async (t) => {
    const client = await started(t);
    for (const workflow of ["step", "inherited", "tool", "all"]) {
      const tries = async (code: string | null, deep = false) =>
        (await triesOf(client, workflow, { code, deep })).tries;
      assert.deepEqual([await tries("declined"), await tries("busy"), await tries(null)], [1, 3, 3], workflow);
      assert.equal(await tries("declined", true), 1, `${workflow}: the code of the cause`);
    }
    assert.equal((await triesOf(client, "named", { code: null })).tries, 1);
    assert.equal((await triesOf(client, "kind", { code: null })).tries, 1, "a tool without a code");
    assert.equal((await triesOf(client, "none", { code: null })).tries, 1, "a step without a code");
    assert.equal((await triesOf(client, "none", { code: "busy" })).tries, 3);
  });

  test("an expression that cannot be computed ends the step, with both messages", async (t) => {
    const { tries, error } = await triesOf(await started(t), "wrong", { code: "busy" });
    assert.equal(tries, 1);
    assert.match(error, /^step "s": no; retry\.unless: \{\{ error\.code\.size\(\) > data\.missing \}\}: /);
  });
});

describe("the wait before another try", () => {
  const retry = {
    attempts: 9,
    delay: 100,
    backoff: "exponential",
    maxDelay: null,
    jitter: false,
    unless: null,
  } as const;
  const waits = (change: object, key = "one:s") =>
    [1, 2, 3, 30].map((attempt) => retryDelay({ ...retry, ...change }, attempt, key));

  test("doubles up to maxDelay, and without it up to an hour", () => {
    assert.deepEqual(waits({}), [100, 200, 400, 3_600_000]);
    assert.deepEqual(waits({ maxDelay: 250 }), [100, 200, 250, 250]);
    assert.deepEqual(waits({ maxDelay: 50, backoff: "fixed" }), [50, 50, 50, 50]);
    assert.deepEqual(waits({ backoff: "fixed" }), [100, 100, 100, 100]);
  });

  test("is cut short by up to a half with jitter, differently for each step, and the same after a restart", () => {
    const many = Array.from({ length: 200 }, (_, at) => waits({ jitter: true, maxDelay: 10_000 }, `${at}:s`)[3]!);
    assert.ok(many.every((wait) => wait >= 5000 && wait <= 10_000));
    assert.ok(new Set(many).size > 150 && Math.min(...many) < 6000 && Math.max(...many) > 9000);
    assert.deepEqual(waits({ jitter: true }, "a:s"), waits({ jitter: true }, "a:s"));
  });
});
