import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { ServiceError } from "../../../core/lib/errors.ts";
import { executeTool } from "../../../core/tools/execute.ts";
import {
  type ApprovalInbox,
  ApprovalNeeded,
  type ApprovalRule,
  type ConfiguredCall,
  compileApproval,
  type Tool,
  type ToolOrigin,
} from "../../../core/tools/tool.ts";
import { origin, silent, tool } from "../../support/tools.ts";

const failsWith = (kind: string, message: string) => (error: unknown) =>
  error instanceof ServiceError && error.kind === kind && assert.equal(error.message, message) === undefined;

/** An origin whose signal and logger say whether they were asked for. */
function lazyOrigin() {
  const asked: string[] = [];
  const call = {
    get signal() {
      asked.push("signal");
      return new AbortController().signal;
    },
    get logger() {
      asked.push("logger");
      return silent;
    },
    user: { id: "u1" },
    requestId: "request-1",
  };
  return { asked, origin: { call, context: { a: 1 }, conversationId: "c1" } satisfies ToolOrigin };
}

const timers = () => process.getActiveResourcesInfo().filter((name) => name === "Timeout").length;

test("a tool that answers at once gives its value at once, and makes no signal, logger or timer", () => {
  const { asked, origin: from } = lazyOrigin();
  const before = timers();
  const result = executeTool(
    tool(
      (input, call) => ({
        input,
        user: call.user,
        context: call.context,
        id: call.requestId,
        in: call.conversationId,
        config: call.config,
      }),
      {
        config: { rate: 2 },
      },
    ),
    { n: 1 },
    from,
  );
  assert.deepEqual(result, {
    input: { n: 1 },
    user: { id: "u1" },
    context: { a: 1 },
    id: "request-1",
    in: "c1",
    config: { rate: 2 },
  });
  assert.deepEqual(asked, []);
  assert.equal(timers(), before);
});

test("call can be spread and destructured, and its logger is the request's, with the tool's name", () => {
  const keys = executeTool(
    tool((_input, call) => {
      const { signal, logger, config } = call;
      assert.ok(signal instanceof AbortSignal);
      assert.deepEqual(logger.bindings(), { tool: "probe" });
      assert.deepEqual(config, {});
      return Object.keys({ ...call });
    }),
    {},
    origin({}, { executionId: "e1", idempotencyKey: "k1" }),
  );
  assert.deepEqual(keys, ["user", "context", "requestId", "config", "conversationId", "executionId", "idempotencyKey"]);
});

test("a tool that gives nothing gives null, at once or later", async () => {
  assert.equal(
    executeTool(
      tool(() => undefined),
      {},
      origin(),
    ),
    null,
  );
  assert.equal(
    await executeTool(
      tool(async () => {}),
      {},
      origin(),
    ),
    null,
  );
});

/** A rule that asks about every call, of an inbox that answers in the same way. */
function inboxThat(admit: ApprovalInbox["admit"]): Pick<Tool, "approval" | "inbox"> {
  return {
    approval: { expires: 1000, consoleOnly: false, asks: () => true },
    inbox: { admit, withdraw: async () => {}, supersede: async () => {}, endings: async () => new Map() },
  };
}

test("a call that needs approval does not run while the inbox has not admitted it", async () => {
  const refused = inboxThat(() => Promise.reject(new ApprovalNeeded("a1", "refund", {})));
  const guarded = tool(() => assert.fail("ran"), { ...refused, name: "refund" });
  const running = executeTool(guarded, {}, origin()) as Promise<never>;
  const error = await running.then(
    () => assert.fail("ran"),
    (thrown) => thrown,
  );
  assert.deepEqual([error.kind, error.facts], ["conflict", { approvalId: "a1" }]);
});

test("a call that needs approval runs with the input that the inbox gives, not with its own", async () => {
  const admitted = inboxThat(async () => ({ amount: 5 }));
  assert.deepEqual(
    await executeTool(
      tool((input) => input, { ...admitted }),
      { amount: 500 },
      origin(),
    ),
    { amount: 5 },
  );
});

test("nobody is asked about an input that does not fit", () => {
  const never = inboxThat(() => assert.fail("asked"));
  const strict = tool(() => assert.fail("ran"), { ...never, validate: () => "input.city must be string" });
  assert.throws(() => executeTool(strict, {}, origin()), failsWith("invalid_input", "input.city must be string"));
});

for (const [expression, amount, asks] of [
  ["{{ input.amount > 100 }}", 101, true],
  ["{{ input.amount > 100 }}", 100, false],
  ["{{ input.nothing > 100 }}", 1, true],
  ["{{ input.amount }}", 0, true],
  ["{{ user.role != 'chief' }}", 1, true],
] as const) {
  test(`a tool with approval "${expression}" ${asks ? "asks" : "runs at once"} where amount is ${amount}`, () => {
    const rule = compileApproval("probe", { approval: expression, expires: 1, approvers: "owner" }) as ApprovalRule;
    assert.equal(rule.asks({ amount }, origin()), asks);
  });
}

test("an input that does not fit is invalid_input with what validate says, and the tool does not run", () => {
  const strict = tool(() => assert.fail("ran"), { validate: () => "input.city must be string" });
  assert.throws(() => executeTool(strict, {}, origin()), failsWith("invalid_input", "input.city must be string"));
});

test("a tool that throws is tool_failed with its own message, at once or later, whatever it throws", async () => {
  const fail = (thrown: unknown) =>
    tool(() => {
      throw thrown;
    });
  const later = (thrown: unknown) => tool(() => Promise.reject(thrown));
  assert.throws(
    () => executeTool(fail(new Error("out of stock")), {}, origin()),
    failsWith("tool_failed", "out of stock"),
  );
  assert.throws(() => executeTool(fail("text"), {}, origin()), failsWith("tool_failed", "text"));
  assert.throws(() => executeTool(fail({ code: 1 }), {}, origin()), failsWith("tool_failed", 'tool "probe" failed'));
  assert.throws(
    () => executeTool(fail(new ServiceError("not_found", "no such order")), {}, origin()),
    failsWith("tool_failed", "no such order"),
  );
  await assert.rejects(
    executeTool(later(new Error("later")), {}, origin()) as Promise<unknown>,
    failsWith("tool_failed", "later"),
  );
  await assert.rejects(
    executeTool(later(undefined), {}, origin()) as Promise<unknown>,
    failsWith("tool_failed", 'tool "probe" failed'),
  );
});

test("the cause of a failure is kept for the log", () => {
  const thrown = new TypeError("x is undefined");
  assert.throws(
    () =>
      executeTool(
        tool(() => {
          throw thrown;
        }),
        {},
        origin(),
      ),
    (error: Error) => error.cause === thrown,
  );
});

test("a tool that takes too long is tool_failed, its signal aborts, and its late result is discarded", async () => {
  let late: ((value: string) => void) | undefined;
  let signal: AbortSignal | undefined;
  const slow = tool(
    (_input, call) => {
      signal = call.signal;
      return new Promise((resolve) => {
        late = resolve;
      });
    },
    { timeout: 20 },
  );
  await assert.rejects(
    executeTool(slow, {}, origin()) as Promise<unknown>,
    failsWith("tool_failed", 'tool "probe" timed out after 20ms'),
  );
  assert.equal(signal?.aborted, true);
  late?.("too late");
});

test("a time limit in whole seconds is printed in seconds", async () => {
  const stuck = tool(() => new Promise(() => {}), { timeout: 1000 });
  await assert.rejects(
    executeTool(stuck, {}, origin()) as Promise<unknown>,
    failsWith("tool_failed", 'tool "probe" timed out after 1s'),
  );
});

test("a tool that fails after its time limit does so unheard", async () => {
  const stubborn = tool(
    () =>
      sleep(30).then(() => {
        throw new Error("unheard");
      }),
    { timeout: 5 },
  );
  await assert.rejects(executeTool(stubborn, {}, origin()) as Promise<unknown>, /timed out/);
  await sleep(40); // An unhandled rejection would end the process.
});

test("a client that leaves stops the call with its own reason and aborts the tool's signal", async () => {
  const client = new AbortController();
  const reason = new Error("the client has left");
  let seen: unknown;
  const waiting = tool((_input, call) => {
    call.signal.addEventListener("abort", () => {
      seen = call.signal.reason;
    });
    return new Promise(() => {});
  });
  const result = executeTool(waiting, {}, origin({ signal: client.signal })) as Promise<unknown>;
  client.abort(reason);
  await assert.rejects(result, (error) => error === reason);
  assert.equal(seen, reason);
});

test("what a tool throws because of the abort does not hide the reason", async () => {
  const client = new AbortController();
  const reason = new Error("the client has left");
  const honest = tool((_input, call) => sleep(60_000, null, { signal: call.signal }));
  const result = executeTool(honest, {}, origin({ signal: client.signal })) as Promise<unknown>;
  client.abort(reason);
  await assert.rejects(result, (error) => error === reason);
});

test("a client that has left already is seen by the tool and stops the wait", async () => {
  const signal = AbortSignal.abort(new Error("gone"));
  assert.throws(
    () =>
      executeTool(
        tool((_input, call) => call.signal.throwIfAborted()),
        {},
        origin({ signal }),
      ),
    /gone/,
  );
  await assert.rejects(
    executeTool(
      tool(() => new Promise(() => {})),
      {},
      origin({ signal }),
    ) as Promise<unknown>,
    /gone/,
  );
});

test("no timer and no listener stays behind, however a call ends", async () => {
  const client = new AbortController();
  const from = origin({ signal: client.signal });
  const listeners = () => getEventListeners(client.signal, "abort").length;
  const before = timers();
  const look = (call: ConfiguredCall) => assert.equal(call.signal.aborted, false);
  executeTool(
    tool((_input, call) => look(call)),
    {},
    from,
  );
  assert.throws(() =>
    executeTool(
      tool((_input, call) => {
        look(call);
        throw new Error("x");
      }),
      {},
      from,
    ),
  );
  await executeTool(
    tool(async (_input, call) => look(call)),
    {},
    from,
  );
  await assert.rejects(
    executeTool(
      tool(async () => {
        throw new Error("x");
      }),
      {},
      from,
    ) as Promise<unknown>,
  );
  await assert.rejects(
    executeTool(
      tool(() => new Promise(() => {}), { timeout: 1 }),
      {},
      from,
    ) as Promise<unknown>,
  );
  assert.equal(listeners(), 0);
  assert.equal(timers(), before);
});

test("a signal that is first asked for after the end is there, and aborted when the call was stopped", async () => {
  const calls: ConfiguredCall[] = [];
  executeTool(
    tool((_input, call) => void calls.push(call)),
    {},
    origin(),
  );
  const stuck = tool(
    (_input, call) => {
      calls.push(call);
      return new Promise(() => {});
    },
    { timeout: 1 },
  );
  await assert.rejects(executeTool(stuck, {}, origin()) as Promise<unknown>);
  assert.deepEqual(
    calls.map((call) => call.signal.aborted),
    [false, true],
  );
});
