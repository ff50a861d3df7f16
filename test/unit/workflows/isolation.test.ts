/** With isolation, executions of somebody else do not exist, whatever is asked of them. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { EVERYTHING, NOBODY, type Principal } from "../../../core/identity/principal.ts";
import type { WorkflowAccess } from "../../../core/workflows/scoped.ts";
import type { WorkflowCall } from "../../../core/workflows/workflows.ts";
import { silent } from "../../support/agents.ts";
import { collectEvents } from "../../support/event-sink.ts";
import { watchProbe } from "../../support/probe.ts";
import type { Loose } from "../../support/served-upstream.ts";
import { startWorkflows } from "../../support/workflow-service.ts";

const client = await startWorkflows(null, {
  asking: { steps: [{ id: "ask", andThen: { suspend: { reason: "?" } } }] },
  held: { steps: [{ id: "a", andThen: { use: "probe", with: { hold: true } } }] },
});
const { workflows } = client.service.service;
const as = (userId: string | null): WorkflowAccess => workflows.for({ userId, isolated: true } satisfies Principal);
const callOf = (id: string | null): WorkflowCall => ({
  user: id === null ? null : { id },
  caller: id === null ? NOBODY : { kind: "user" },
  requestId: "r",
  logger: silent,
});
const CALL = callOf(null);

const [ada, bob, nobody, console_] = [as("ada"), as("bob"), as(null), workflows.for(EVERYTHING)];
const begin = async (access: WorkflowAccess, executionId: string, options: object = {}) =>
  JSON.parse((await access.execute("asking", { input: 1, options: { executionId, ...options } }, CALL)).json);
const ids = async (access: WorkflowAccess): Promise<string[]> =>
  JSON.parse(await (await access.executions({ limit: 100, offset: 0 })).whole()).map(({ id }: Loose) => id);

await begin(ada, "ada-1");
await begin(bob, "bob-1");
await begin(nobody, "nobody-1");

const COMMANDS: Record<string, (access: WorkflowAccess, workflow: string, id: string) => Promise<unknown>> = {
  suspend: (access, workflow, id) => access.suspend(workflow, id, "r"),
  cancel: (access, workflow, id) => access.cancel(workflow, id, "r"),
  resume: (access, workflow, id) => access.resume(workflow, id, {}, CALL),
  replay: (access, workflow, id) => access.replay(workflow, id, { stepId: "ask" }, CALL),
  state: (access, workflow, id) => access.state(workflow, id),
  attach: (access, workflow, id) => access.attach(workflow, id, 0),
};

describe("an isolated caller", () => {
  for (const [command, run] of Object.entries(COMMANDS)) {
    test(`${command} of a suspended execution of another is not found, as if it did not exist`, async () => {
      for (const [access, id] of [
        [ada, "bob-1"],
        [bob, "ada-1"],
        [nobody, "ada-1"],
        [ada, "nobody-1"],
      ] as const) {
        const expected = { kind: "not_found", message: `execution "${id}" does not exist` };
        await assert.rejects(run(access, "asking", id), expected);
      }
      await assert.rejects(run(ada, "asking", "none"), {
        kind: "not_found",
        message: 'execution "none" does not exist',
      });
    });
    test(`${command} of a running execution of another is not found`, async (t) => {
      const watched = watchProbe(t);
      const id = `running-${command}`;
      const running = ada.execute("held", { input: 1, options: { executionId: id } }, CALL);
      const call = await watched.next("a", id);
      await assert.rejects(run(bob, "held", id), { kind: "not_found", message: `execution "${id}" does not exist` });
      assert.equal(call.aborted, null);
      call.release(1);
      await running;
    });
  }
  test("a caller under auth.isolation sees its own executions in lists; to ask for another's is invalid_input", async () => {
    assert.ok((await ids(ada)).every((id) => id === "ada-1" || id.startsWith("running-")));
    assert.deepEqual(await ids(bob), ["bob-1"]);
    assert.deepEqual(await ids(nobody), ["nobody-1"]);
    const others = bob.executions({ limit: 100, offset: 0, userId: "ada" });
    await assert.rejects(others, { kind: "invalid_input" });
  });
  test("cannot begin one for another: invalid_input; its own id is what it has", async () => {
    for (const run of [bob.execute.bind(bob), bob.stream.bind(bob)]) {
      const body = { input: 1, options: { userId: "ada" } };
      await assert.rejects(run("asking", body, CALL), { kind: "invalid_input" });
    }
    const { executionId } = await begin(bob, "bob-2", { userId: "bob" });
    assert.equal((await bob.state("asking", executionId)).userId, "bob");
    assert.equal((await bob.state("asking", "bob-1")).userId, "bob");
    assert.equal((await nobody.state("asking", "nobody-1")).userId, undefined);
  });
  test("a caller under auth.isolation is told that an id is taken, and nothing of whose it is", async () => {
    await assert.rejects(begin(bob, "ada-1"), { kind: "conflict", message: 'options.executionId: "ada-1" is taken' });
  });
  test("a caller under auth.isolation does with its own what it likes", async () => {
    const events = await collectEvents(await ada.attach("asking", "ada-1", 0));
    assert.equal(events.at(-1)!.data.type, "workflow-result");
    const replayed = JSON.parse((await ada.replay("asking", "ada-1", { stepId: "ask" }, CALL)).json);
    assert.equal((await ada.state("asking", replayed.executionId)).userId, "ada");
    await assert.rejects(bob.state("asking", replayed.executionId), { kind: "not_found" });
    assert.equal(JSON.parse((await ada.resume("asking", "ada-1", { resumeData: 2 }, CALL)).json).result, 2);
    assert.equal((await ada.cancel("asking", replayed.executionId, "r")).status, "cancelled");
  });
});

test("a caller without isolation sees everybody's, and may act for anybody", async () => {
  assert.equal((await console_.state("asking", "bob-1")).userId, "bob");
  const { executionId } = await begin(console_, "for-ada", { userId: "ada" });
  assert.equal((await ada.state("asking", executionId)).userId, "ada");
  const all = await ids(console_);
  for (const id of ["ada-1", "bob-1", "nobody-1", "for-ada"]) assert.ok(all.includes(id));
});
