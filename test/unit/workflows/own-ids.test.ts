/** Ids of executions that belong to users: what it costs to look for them. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import { watched } from "../../support/memories.ts";
import { SECRET } from "../../support/tokens.ts";
import { CALL, processesOf } from "../../support/workflow-process.ts";

const WORKFLOWS = { workflows: { w: { steps: [{ id: "one", andThen: { set: { n: 1 } } }] } } };
const AUTH = { auth: { mode: "authNext", provider: { use: "jwt", secret: SECRET } } };

test("executing a workflow and asking for its state read and write as much as where an id is one for everybody", async (t) => {
  const costs = [];
  for (const manifest of [{ ...WORKFLOWS, ...AUTH }, WORKFLOWS]) {
    const { store, seen } = watched(createMemoryStore());
    const { opened } = await (await processesOf(t, manifest))({ ...store, kind: "sqlite" });
    t.after(() => opened.close());
    const access = opened.workflows.for({ userId: "ada", isolated: manifest !== WORKFLOWS });
    const count = async (work: () => Promise<unknown>) => {
      seen.reads = 0;
      seen.commits.length = 0;
      await work();
      return [seen.reads, seen.commits.length, seen.commits.flatMap(({ put = [] }) => put).length];
    };
    const execute = (executionId?: string) =>
      access.execute("w", { input: 1, options: { executionId, userId: "ada" } }, CALL);
    let made = "";
    costs.push({
      "execute with an id of ours": await count(async () => {
        made = JSON.parse((await execute()).json).executionId;
      }),
      "execute with an id of the client": await count(() => execute("mine")),
      "the state of one with an id of ours": await count(() => access.state("w", made)),
      "the state of one with an id of the client": await count(() => access.state("w", "mine")),
    });
  }
  assert.deepEqual(costs[0], costs[1]);
  assert.deepEqual(costs[0]!["execute with an id of ours"].slice(0, 2), [0, 1]);
  assert.deepEqual(costs[0]!["execute with an id of the client"].slice(0, 2), [1, 1]);
  t.diagnostic(JSON.stringify(costs[0]));
});
