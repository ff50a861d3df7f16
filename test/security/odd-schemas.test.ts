/** Schemas of clients that are odd in their shape: the client's mistake, not an error of the service. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { manifestWith, startService } from "../support/service.ts";

/** Its name cannot be made a text. */
const NAMELESS = { toString: 1 };
const SCHEMAS = [
  { type: "object", required: [NAMELESS, null] },
  { type: "object", properties: { name: { type: "object" } }, required: ["name", NAMELESS] },
];

for (const endpoint of ["object", "stream-object"])
  test(`POST /agents/:id/${endpoint}: a schema with a name that is not a text is 400, and not an internal error`, async (t) => {
    const service = await startService(t, manifestWith());
    for (const schema of SCHEMAS) {
      const reply = await service.post(`/agents/assistant/${endpoint}`, { input: "Ada", schema });
      const { error } = (await reply.json()) as { error: string };
      assert.deepEqual([reply.status, error], [400, "schema does not compile: required must be a list of strings"]);
    }
    assert.deepEqual(
      service.log.filter(({ level }) => level === "error"),
      [],
    );
  });
