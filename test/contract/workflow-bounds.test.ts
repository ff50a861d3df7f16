/** `POST /workflows/:id/execute`: numbers that JSON cannot hold never get from one step to another. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { refused, startWorkflows } from "../support/workflow-service.ts";

const BOUNDS = /gives a number that is not finite/;
const set = (value: unknown) => ({ id: "s", andThen: { set: value } });

const STEPS: Record<string, object> = {
  whole: set("{{ 1.0 / data.z }}"),
  member: set({ x: "{{ 1.0 / data.z }}" }),
  text: set({ x: "that is {{ 1.0 / data.z }}" }),
  none: set("{{ data.z / data.z }}"),
  below: set("{{ -1.0 / data.z }}"),
  list: set("{{ [1.0, 1.0 / data.z] }}"),
  map: set('{{ {"x": {"y": 1.0 / data.z}} }}'),
  turned: set('{{ [double("Infinity")] }}'),
  within: set('{{ {"x": -(1.0 / data.z)} }}'),
  macro: set("{{ [1.0, 2.0].map(n, n / data.z) }}"),
  either: set('{{ data.z == 0.0 ? [1.0 / data.z] : ["fine"] }}'),
  input: { id: "s", andWorkflow: { workflow: "inner", input: { x: "{{ 1.0 / data.z }}" } } },
  reason: { id: "s", andThen: { suspend: { reason: "{{ 1.0 / data.z }} of it?" } } },
  handed: { id: "s", andThen: { suspend: { reason: "well?", data: { x: "{{ 1.0 / data.z }}" } } } },
  tool: { id: "s", andThen: { tool: "add", input: { a: "{{ 1.0 / data.z }}", b: 1 } } },
};

const LATER = { id: "later", andThen: { use: "probe" } };
const workflows = Object.fromEntries(Object.entries(STEPS).map(([id, step]) => [id, { steps: [step, LATER] }]));
const client = await startWorkflows(
  null,
  { ...workflows, inner: { steps: [set("{{ data }}")] } },
  { tools: { add: { use: "add" } } },
);

describe("an expression that divides by 0 fails its step", () => {
  for (const id of Object.keys(STEPS)) {
    test(id, async () => {
      const { status, error, headers } = await refused(
        client.service.post(`/workflows/${id}/execute`, { input: { z: 0 } }),
      );
      assert.equal(status, 500);
      assert.match(error, /^step "s": /);
      assert.match(error, BOUNDS);
      const { error: recorded, events } = await client.record(headers.get("x-execution-id")!);
      assert.match(recorded.message, BOUNDS);
      assert.ok(!events.some(({ from }: { from: string }) => from === "later"));
    });
  }
});
