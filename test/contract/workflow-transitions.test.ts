/** Contract, "States and transitions": every command in every status, and commands that race with each other. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { type Probe, until, watchProbe } from "../support/probe.ts";
import type { Loose } from "../support/served-upstream.ts";
import { type Client, dataOf, refused, resultOf, startWorkflows, told } from "../support/workflow-service.ts";

const probe = (id: string, config: object = {}) => ({ id, andThen: { use: "probe", with: config } });
const ask = (id: string) => ({ id, andThen: { suspend: { reason: `${id}?` } } });
const folder = mkdtempSync(join(tmpdir(), "penstock-transitions-"));
after(() => rmSync(folder, { recursive: true, force: true }));

const WORKFLOWS = {
  every: {
    steps: [
      probe("a", { hold: true }),
      { id: "gate", andWhen: { if: "data.ask == true", then: ask("ask") } },
      probe("b"),
    ],
  },
  asking: { steps: [probe("a"), ask("ask"), probe("b", { takes: 1 })] },
  quick: { steps: [probe("a", { hold: true, heeds: false }), probe("b", { takes: 1 }), probe("c", { takes: 1 })] },
  storm: {
    steps: [
      probe("a", { takes: 2 }),
      ask("one"),
      { id: "all", andAll: [probe("b", { takes: 2 }), ask("two"), [probe("c"), ask("three")]] },
      probe("d", { takes: 2 }),
    ],
  },
};

const STATUSES = ["running", "suspended", "completed", "error", "cancelled", "unknown"] as const;
type Status = (typeof STATUSES)[number];

/** Codes in the order of STATUSES. */
const TABLE: Record<string, readonly number[]> = {
  suspend: [200, 400, 400, 400, 400, 404],
  resume: [404, 200, 404, 404, 404, 404],
  cancel: [200, 200, 400, 400, 400, 404],
  replay: [400, 200, 200, 200, 200, 404],
  state: [200, 200, 200, 200, 200, 404],
  execute: [409, 409, 409, 409, 409, 200],
};

const memory = await startWorkflows(null, WORKFLOWS);
const sqlite = await startWorkflows(null, WORKFLOWS, { store: `sqlite:${join(folder, "test.db")}?synchronous=normal` });

describe("the table of transitions of /workflows/:id/executions/:executionId", () => {
  for (const [index, status] of STATUSES.entries()) {
    for (const [command, codes] of Object.entries(TABLE)) {
      test(`${command} of an execution that is ${status} answers ${codes[index]}`, async (t) => {
        const watched = watchProbe(t);
        const id = `${status}-${command}`;
        await bring(watched, status, id);
        const code = codes[index];
        const reply = order(command, id);
        // What a replay or an execution begins must end.
        if (code === 200 && (command === "replay" || command === "execute"))
          (await watched.next("a")).release({ ask: false });
        assert.equal((await reply).status, code);
        if (status === "unknown") return;
        const now = (await memory.state("every", id)).status;
        const changed: Record<string, string> = { suspend: "suspended", resume: "completed", cancel: "cancelled" };
        assert.equal(now, code === 200 && command in changed ? changed[command] : status);
        if (now === "running") await dataOf(memory.command("every", id, "cancel"));
        await consistent(memory, "every", id);
      });

      async function bring(watched: Probe, wanted: Status, id: string): Promise<void> {
        if (wanted === "unknown") return;
        const { reply } = memory.begin("every", id, {});
        const call = await watched.next("a", id);
        if (wanted === "running") return;
        if (wanted === "cancelled") await dataOf(memory.command("every", id, "cancel"));
        else if (wanted === "error") call.fail("broken");
        else call.release({ ask: wanted === "suspended" });
        await reply;
        assert.equal((await memory.state("every", id)).status, wanted);
      }
    }
  }

  function order(command: string, id: string): Promise<Response> {
    if (command === "state") return memory.service.get(`/workflows/every/executions/${id}/state`);
    if (command === "execute") return memory.begin("every", id, {}).reply;
    return memory.command("every", id, command, command === "replay" ? { stepId: "a" } : {});
  }
});

const ENDS: Record<string, string> = {
  "workflow-complete": "completed",
  "workflow-error": "error",
  "workflow-cancelled": "cancelled",
  "workflow-suspended": "suspended",
};

/** Record, state and events tell one story, which could have happened. @returns the status */
async function consistent(client: Client, workflow: string, id: string): Promise<string> {
  const [state, events] = [await client.state(workflow, id), await client.events(workflow, id)];
  const list = await dataOf(
    client.service.get(`/workflows/executions?status=${state.status}&workflowId=${workflow}&limit=100`),
  );
  assert.ok(list.some((record: Loose) => record.id === id && record.status === state.status));
  assert.deepEqual(
    events.map((event) => event.id),
    events.map((_, index) => index + 1),
  );
  let resting = true;
  const open = new Set<string>();
  for (const [index, { type, from, event }] of events.entries()) {
    if (type === "workflow-start") {
      assert.ok(resting, "it began while it ran");
      resting = false;
    } else if (type === "workflow-result") {
      const before = events[index - 1]!;
      assert.equal(event.status, ENDS[before.type]);
      if (event.status !== "suspended") assert.ok(index === events.length - 1, `${told(events)}`);
    } else if (type in ENDS) {
      // A suspended execution may be cancelled.
      assert.ok(!resting || type === "workflow-cancelled", `${told(events)}`);
      resting = true;
    } else if (type === "step-start") {
      assert.ok(!resting, `${told(events)}`);
      open.add(from);
    } else if (type === "step-complete") assert.ok(open.delete(from), `${from}: ${told(events)}`);
  }
  assert.equal(events.at(-1)!.event.status, state.status);
  return state.status;
}

for (const [store, client] of [
  ["memory:", memory],
  ["sqlite:", sqlite],
] as const) {
  describe(`races between requests about one execution, on ${store}`, () => {
    test("suspend against completion: either it is suspended and can be resumed, or it is completed", async (t) => {
      const watched = watchProbe(t);
      const seen = new Set<string>();
      for (let round = 0; round < 40; round++) {
        const id = `end-${round}`;
        const { reply } = client.begin("quick", id, {});
        // The first of two has ended before it is told to suspend, the next one is held until it has been told. The others race.
        const call = await watched.next("a", id);
        const isLate = round === 0;
        if (round !== 1) call.release();
        if (isLate) await reply;
        else await new Promise((resolve) => setTimeout(resolve, round % 10));
        const suspending = client.command("quick", id, "suspend");
        if (round === 1) await until(() => call.aborted !== null, "the suspension");
        call.release();
        const suspended = await suspending;
        const result = await resultOf(reply);
        if (suspended.status === 200) assert.equal(result.status, "suspended");
        else assert.ok([400, 404].includes(suspended.status), `${suspended.status}`);
        if (suspended.status === 400) assert.equal(result.status, "completed");
        assert.equal(await consistent(client, "quick", id), result.status);
        if (result.status === "suspended") assert.equal((await client.resume("quick", id)).status, "completed");
        seen.add(result.status);
      }
      assert.deepEqual([...seen].sort(), ["completed", "suspended"]);
    });

    test("cancel against resume: one of them has its way, and the other says so", async () => {
      const seen = new Set<string>();
      for (let round = 0; round < 40; round++) {
        const id = `cancel-${round}`;
        await client.execute("asking", {}, { executionId: id });
        const wait = () => new Promise((resolve) => setTimeout(resolve, round % 6));
        const resume = () => client.command("asking", id, "resume", { resumeData: { ok: 1 } });
        const cancel = () => client.command("asking", id, "cancel");
        // One after the other in the first two, each way; the others race.
        const cancelledFirst = round === 0 ? await cancel() : undefined;
        const resuming = resume();
        if (round === 1) await resuming;
        else if (round % 3 > 0) await wait();
        const [resumed, cancelled] = await Promise.all([resuming, cancelledFirst ?? cancel()]);
        const status = await consistent(client, "asking", id);
        assert.equal(status, cancelled.status === 200 ? "cancelled" : "completed");
        if (cancelled.status !== 200) assert.equal(cancelled.status, 400);
        if (resumed.status === 200) assert.equal((await dataOf(resumed)).status, status);
        else assert.deepEqual([resumed.status, status], [404, "cancelled"]);
        seen.add(status);
      }
      assert.deepEqual([...seen].sort(), ["cancelled", "completed"]);
    });

    test("200 resumes of one execution: one is 200, the others 404", async () => {
      await client.execute("asking", {}, { executionId: "many" });
      const replies = await Promise.all(
        Array.from({ length: 200 }, (_, n) => client.command("asking", "many", "resume", { resumeData: { n } })),
      );
      const winners = replies.filter(({ status }) => status === 200);
      assert.equal(winners.length, 1);
      assert.ok(replies.every(({ status }) => status === 200 || status === 404));
      const { result } = await dataOf(winners[0]!);
      assert.deepEqual((await client.events("asking", "many")).at(-1)!.event.result, result);
      await consistent(client, "asking", "many");
    });

    test("200 executions are resumed at once: each with its own data", async () => {
      const ids = await Promise.all(
        Array.from({ length: 200 }, async (_, n) => (await client.execute("asking", { n })).executionId),
      );
      const results = await Promise.all(ids.map((id, n) => client.resume("asking", id, { answer: n })));
      for (const [n, { result, status }] of results.entries())
        assert.deepEqual([status, result], ["completed", { n, answer: n }]);
    });

    test("a storm of commands: whatever they come to, the story is one", async () => {
      const allowed = new Set([200, 400, 404, 500]);
      await Promise.all(
        Array.from({ length: 40 }, async (_, round) => {
          const id = `storm-${round}`;
          const { reply } = client.begin("storm", id, {});
          let seed = round * 7919 + 1;
          const random = (below: number) => {
            seed = (seed * 48271) % 2147483647;
            return seed % below;
          };
          const commands = Array.from({ length: 12 }, async (_, n) => {
            await new Promise((resolve) => setTimeout(resolve, random(30)));
            const command = ["suspend", "resume", "resume", "resume", "suspend", "cancel"][random(n === 0 ? 6 : 5)]!;
            const { status, statusText } = await client.command(
              "storm",
              id,
              command,
              command === "resume" ? { resumeData: { n } } : {},
            );
            assert.ok(allowed.has(status), `${command} ${status} ${statusText}`);
          });
          assert.equal((await reply).status, 200);
          await Promise.all(commands);
          for (let n = 0; (await client.state("storm", id)).status === "suspended"; n++) {
            assert.ok(n < 10, "it never ends");
            await client.resume("storm", id, { last: n });
          }
          assert.match(await consistent(client, "storm", id), /completed|cancelled/);
        }),
      );
    });
  });
}

test("of an execution that is about to be on record, nobody is told that another process has it", async (t) => {
  const watched = watchProbe(t);
  for (let round = 0; round < 30; round++) {
    const id = `fresh-${round}`;
    const { reply } = sqlite.begin("every", id, {});
    const stopping = sqlite.command("every", id, round % 2 === 0 ? "suspend" : "cancel");
    const { status } = await stopping;
    assert.ok(status === 200 || status === 404, `${status}`);
    if (status === 404) {
      (await watched.next("a", id)).release({ ask: false });
      await dataOf(reply);
    }
  }
  await refused(sqlite.command("every", "fresh-0", "resume", { options: { stepId: "nope" } }));
});
