/** Every standing of an approval times everything that can be done with it, on each store, also where the process dies in between. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { admit } from "../../../core/approvals/admission.ts";
import { Approvals, answer, settleDue } from "../../../core/approvals/approvals.ts";
import { ApprovalRows } from "../../../core/approvals/rows.ts";
import { EVERYTHING, type Principal } from "../../../core/identity/principal.ts";
import { ServiceError, unavailable } from "../../../core/lib/errors.ts";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import type { Store } from "../../../core/storage/store.ts";
import { type ApprovalClaim, ApprovalNeeded, type CallKind } from "../../../core/tools/tool.ts";
import { silent } from "../../support/agents.ts";
import { origin, tool } from "../../support/tools.ts";
import { cutStore } from "../../support/workflow-process.ts";

const DAY = 24 * 3_600_000;
const ADA: Principal = { userId: "ada", isolated: true };
const BOB: Principal = { userId: "bob", isolated: true };
const KINDS = ["direct", "step", "chat"] as const;
type Kind = (typeof KINDS)[number];

const pay = tool((input) => input, {
  name: "pay",
  approval: { expires: DAY, consoleOnly: false, asks: () => true },
  validate: (input) => (Array.isArray(input) ? "input is wrong" : null),
});

/** A process on a store, with a clock that the test sets. */
function processOn(store: Store, now = 1_000) {
  const kept = { for: 30 * DAY };
  const rows = new ApprovalRows(store, () => kept.for);
  const clock = { now };
  const time = () => clock.now;
  const claim = (kind: CallKind, more: object = {}): ApprovalClaim => ({
    kind,
    agentId: "a",
    toolCallId: "c1",
    ...more,
  });
  return {
    rows,
    kept,
    clock,
    /** What a call gives: the input that it runs with, or why it does not run. */
    async call(
      kind: CallKind,
      {
        id,
        user = "ada",
        input = { n: 1 },
        recorded,
        since,
      }: { id?: string; user?: string; input?: unknown; recorded?: string; since?: number } = {},
    ) {
      const of = origin(
        { user: { id: user } },
        {
          executionId: "e1",
          idempotencyKey: recorded ?? "e1:pay",
          approval: claim(kind, { id, since, record: recorded === undefined ? undefined : { away() {} } }),
        },
      );
      try {
        return { runs: await admit(rows, { tool: pay, input, origin: of }, { clock: time }) };
      } catch (error) {
        if (error instanceof ApprovalNeeded) return { waits: error.approvalId };
        assert.ok(error instanceof ServiceError, String(error));
        return { refused: error.message };
      }
    },
    async answer(
      id: string,
      approved: boolean,
      {
        principal = ADA,
        isConsole = false,
        input,
      }: { principal?: Principal; isConsole?: boolean; input?: unknown } = {},
    ) {
      const body = input === undefined ? { approved } : { approved, input };
      try {
        const approver = { principal, name: "x", isConsole };
        return (await answer(rows, id, body, approver, { tools: new Map([["pay", pay]]), clock: time })).status;
      } catch (error) {
        assert.ok(error instanceof ServiceError, String(error));
        return error.kind;
      }
    },
    settle: () => settleDue(rows, time),
  };
}
type Process = ReturnType<typeof processOn>;

/** How a question comes to stand so. */
const STANDINGS: Record<string, (process: Process, id: string, kind: Kind) => unknown> = {
  open: () => {},
  approved: (process, id) => process.answer(id, true),
  used: async (process, id, kind) => {
    await process.answer(id, true);
    assert.deepEqual(await process.call(kind, byId(kind, id)), { runs: { n: 1 } });
  },
  denied: (process, id) => process.answer(id, false),
  expired: (process) => {
    process.clock.now += DAY;
  },
};
/** A step is found by what it is, the others bring the id. */
const byId = (kind: Kind, id: string) => (kind === "direct" || kind === "chat" ? { id } : {});

const YES = { open: "approved", approved: "approved", used: "approved", denied: "conflict", expired: "conflict" };
const NO = { open: "denied", approved: "conflict", used: "conflict", denied: "denied", expired: "conflict" };
/** What the call is told that takes its answer. */
const TAKES: Record<Kind, Record<string, "runs" | "waits" | "refused" | "asks">> = {
  direct: { open: "waits", approved: "runs", used: "refused", denied: "refused", expired: "refused" },
  chat: { open: "waits", approved: "runs", used: "refused", denied: "refused", expired: "refused" },
  step: { open: "waits", approved: "runs", used: "runs", denied: "refused", expired: "refused" },
};

async function asked(kind: Kind, store: Store = createMemoryStore()) {
  const process = processOn(store);
  const { waits } = await process.call(kind);
  assert.ok(waits !== undefined);
  return { process, id: waits, store };
}
const verdict = (told: object, id: string): string => {
  const [[what, value]] = Object.entries(told) as [[string, unknown]];
  return what === "waits" && value !== id ? "asks" : what;
};

for (const kind of KINDS) {
  describe(`approval of a call of kind ${kind}`, () => {
    for (const [standing, bring] of Object.entries(STANDINGS)) {
      const stand = async () => {
        const found = await asked(kind);
        await bring(found.process, found.id, kind);
        return found;
      };

      test(`${standing}: a yes, a no, and answers of others`, async () => {
        const { process, id } = await stand();
        assert.equal(await process.answer(id, true, { principal: BOB }), "not_found");
        assert.equal(await process.answer(id, false, { principal: BOB }), "not_found");
        assert.equal(await process.answer("0".repeat(32), true), "not_found");
        const [first, second] = [YES[standing as "open"], NO[standing as "open"]];
        assert.equal(await process.answer(id, true, { principal: EVERYTHING }), first);
        assert.equal(await process.answer(id, true), first, "the same answer again");
        assert.equal(await process.answer(id, false), standing === "open" ? "conflict" : second);
      });

      test(`${standing}: a no, then a yes`, async () => {
        const { process, id } = await stand();
        assert.equal(await process.answer(id, false), NO[standing as "open"]);
        assert.equal(await process.answer(id, true), standing === "open" ? "conflict" : YES[standing as "open"]);
      });

      test(`${standing}: the call that takes the answer`, async () => {
        const { process, id } = await stand();
        const told = await process.call(kind, byId(kind, id));
        assert.equal(verdict(told, id), TAKES[kind][standing]);
      });

      test(`${standing}: a call of another user or with another input never takes the answer`, async () => {
        const { process, id } = await stand();
        for (const change of [{ user: "bob" }, { input: { n: 2 } }]) {
          const told = await process.call(kind, { ...byId(kind, id), ...change });
          assert.equal(verdict(told, id), byId(kind, id).id === undefined ? "asks" : "refused");
        }
      });

      test(`${standing}: after its retention it is gone, with every row of it`, async () => {
        const { process, store } = await stand();
        process.clock.now += DAY;
        while ((await process.settle()) > 0);
        process.clock.now += 30 * DAY;
        while ((await process.settle()) > 0);
        assert.deepEqual(await store.scan({ prefix: "a", limit: 10 }), []);
      });
    }

    for (const heard of [true, false]) {
      for (let commits = 0; commits < 4; commits++) {
        const death = `after ${commits} commits${heard ? "" : ", of which it did not hear the last,"}`;
        test(`a process that dies ${death} leaves one question, and an answer that is used once`, async () => {
          const store = createMemoryStore();
          const dying = cutStore(store);
          dying.arm(commits, heard);
          /** Ids of the approvals with which the tool ran. */
          const ran: string[] = [];
          const life = async (process: Process): Promise<object> => {
            const first = await process.call(kind);
            const id = first.waits;
            if (id === undefined) {
              const [found] = await process.rows.list({ status: "approved" }, { limit: 1, offset: 0, order: "desc" });
              if ("runs" in first) ran.push(found!.id);
              return first;
            }
            await process.answer(id, true);
            const told = await process.call(kind, byId(kind, id));
            if ("runs" in told) ran.push(id);
            return told;
          };
          const done = life(processOn(dying));
          await Promise.race([dying.cut, done]);
          done.catch(() => {});
          const open = await processOn(store).rows.list({ status: "open" }, { limit: 10, offset: 0, order: "asc" });
          assert.ok(open.length <= 1, "one call is one question");
          const last = await life(processOn(store));
          assert.ok("runs" in last || kind === "chat", JSON.stringify(last));
          // A step that was interrupted runs again, as all steps do.
          if (kind !== "step") assert.equal(new Set(ran).size, ran.length, "no approval is used twice");
        });
      }
    }

    test("an edited input runs in place of the one that was asked, and one that does not fit is no answer", async () => {
      const { process, id } = await asked(kind);
      assert.equal(await process.answer(id, true, { input: [] }), "invalid_input");
      assert.equal(await process.answer(id, false, { input: { n: 2 } }), "invalid_input");
      assert.equal(await process.answer(id, true, { input: { n: 2 } }), "approved");
      assert.deepEqual(await process.call(kind, byId(kind, id)), { runs: { n: 2 } });
    });

    test("of ten calls at once one takes the answer", async () => {
      const { process, id } = await asked(kind);
      await process.answer(id, true);
      const told = await Promise.all(Array.from({ length: 10 }, () => process.call(kind, byId(kind, id))));
      const runs = told.filter((each) => "runs" in each).length;
      // A step has one key, under which it may run again.
      assert.equal(runs, kind === "step" ? 10 : 1);
    });

    test("of ten processes that ask and ten that answer at once, each says the same", async () => {
      const store = createMemoryStore();
      const processes = Array.from({ length: 10 }, () => processOn(store));
      const ids = new Set((await Promise.all(processes.map((each) => each.call(kind)))).map(({ waits }) => waits));
      assert.equal(ids.size, 1);
      const [id] = ids;
      const said = await Promise.all(processes.map((each, index) => each.answer(id!, index % 2 === 0)));
      assert.equal(said.filter((each) => each === "conflict").length, 5);
    });
  });
}

test("a yes that no call takes is good for as long as the question was, but a step goes on with it later", async () => {
  for (const kind of KINDS) {
    const { process, id } = await asked(kind);
    await process.answer(id, true);
    process.clock.now += DAY;
    const told = await process.call(kind, byId(kind, id));
    assert.equal(verdict(told, id), { direct: "refused", chat: "refused", step: "runs" }[kind]);
  }
});

test("an approved call of a run that records what it does is made again under its own key, and under no other", async () => {
  const { process, id } = await asked("chat");
  await process.answer(id, true);
  const runs = { runs: { n: 1 } };
  assert.deepEqual(await process.call("chat", { id, recorded: "run-1:0:c1" }), runs);
  assert.deepEqual(await process.call("chat", { id, recorded: "run-1:0:c1" }), runs);
  assert.equal(verdict(await process.call("chat", { id, recorded: "run-2:0:c1" }), id), "refused");
  assert.equal(verdict(await process.call("chat", { id }), id), "refused", "a run that records nothing");
});

test("a later execution of the same id, and a later run, asks anew: what an earlier one has used is no answer for it", async () => {
  const { process, id } = await asked("step");
  await process.answer(id, true);
  const began = process.clock.now;
  assert.deepEqual(await process.call("step", { since: began }), { runs: { n: 1 } });
  assert.deepEqual(await process.call("step", { since: began }), { runs: { n: 1 } }, "after a crash");
  process.clock.now += 1;
  assert.ok("waits" in (await process.call("step", { since: process.clock.now })));
});

test("an answer that comes while what is due is looked for is neither forgotten nor expired", async () => {
  const store = createMemoryStore();
  const process = processOn(store);
  const { waits: id } = (await process.call("step")) as { waits: string };
  let isAnswered = false;
  const scan: Store["scan"] = async (range) => {
    const found = await store.scan(range);
    if (range.prefix !== "ax/" || isAnswered) return found;
    isAnswered = true;
    assert.equal(await process.answer(id, true), "approved");
    return found;
  };
  const other = new ApprovalRows({ ...store, scan }, () => DAY);
  await settleDue(other, () => process.clock.now + 2 * DAY);
  assert.equal(isAnswered, true);
  assert.deepEqual(await process.call("step"), { runs: { n: 1 } });
});

test("a question of the console's alone is answered by nobody else", async () => {
  const store = createMemoryStore();
  const { process, id } = await asked("direct", store);
  const found = (await process.rows.read(id))!;
  await store.commit({ put: [[`ap/${id}`, JSON.stringify({ ...found.record, consoleOnly: true })]] });
  assert.equal(await process.answer(id, true), "forbidden");
  assert.equal(await process.answer(id, true, { principal: EVERYTHING, isConsole: true }), "approved");
});

test("settleDue: what was decided while approvals were kept for another time goes without a trace", async () => {
  const store = createMemoryStore();
  const { process, id } = await asked("direct", store);
  await process.answer(id, false);
  process.kept.for = DAY;
  process.clock.now += 31 * DAY;
  assert.equal(await process.settle(), 1);
  assert.deepEqual(await store.scan({ prefix: "a", limit: 10 }), []);
});

test("a call that a person has approved waits for a store that is away where its run is kept, and fails where it is not", async () => {
  const store = createMemoryStore();
  const process = processOn(store, Date.now());
  const { waits: id } = await process.call("chat");
  assert.ok(id !== undefined);
  assert.equal(await process.answer(id, true), "approved");
  let isAway = true;
  const get: Store["get"] = (key) => (isAway ? Promise.reject(unavailable("away")) : store.get(key));
  const options = { isolated: true, open: false, retention: DAY, limit: 10, refused() {}, logger: silent };
  const approvals = new Approvals(options);
  approvals.connect({ ...store, get }, { tools: new Map(), agents: new Set() });
  const call = (isKept: boolean) => {
    const back = () => {
      isAway = false;
    };
    const record = { isKept, away: back };
    const approval = { kind: "chat", agentId: "a", toolCallId: "c1", id, record } as const;
    const of = origin({ user: { id: "ada" } }, { executionId: "e1", idempotencyKey: "e1:pay", approval });
    return approvals.admit({ tool: pay, input: { n: 1 }, origin: of });
  };
  await assert.rejects(call(false), { kind: "unavailable" });
  assert.deepEqual(await call(true), { n: 1 });
});
