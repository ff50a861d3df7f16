/** Schemas of clients that compile, and whose check throws: the client's mistake, not an error of the service. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { manifestWith, parseEvents, startService } from "../support/service.ts";

/** Its name cannot be made a text. */
const NAMELESS = { toString: 1 };
const SCHEMAS = [
  { type: "object", required: [NAMELESS, null] },
  { type: "object", properties: { name: { type: "object" } }, required: ["name", NAMELESS] },
];

test("POST /agents/:id/object and stream-object: a schema whose check throws is refused with words, not as an internal error", async (t) => {
  const service = await startService(t, manifestWith());
  for (const schema of SCHEMAS) {
    const reply = await service.post("/agents/assistant/object", { input: "Ada", schema });
    const { error } = (await reply.json()) as { error: string };
    assert.deepEqual([reply.status, error.split(":")[0]], [400, "schema cannot be checked"], error);
    const stream = await service.post("/agents/assistant/stream-object", { input: "Ada", schema });
    const last = parseEvents(await stream.text()).at(-1)!;
    assert.match(last.data, /^\{"type":"error","error":"schema cannot be checked: /);
  }
  assert.deepEqual(
    service.log.filter(({ level }) => level === "error"),
    [],
  );
});
