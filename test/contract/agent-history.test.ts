/** Contract, "Agents": `GET /agents/:id/history`, the last runs of an agent. */
import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { EventReader, eventually } from "../support/event-reader.ts";
import { failure, saysJson, stallsAfter } from "../support/openai-upstream.ts";
import { dataOf, errorOf, serveUpstream } from "../support/served-upstream.ts";
import { manifestWith, startService } from "../support/service.ts";

const TEXT = "/agents/assistant/text";
const CITY = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };

const shared = await startService({ after }, manifestWith());

describe("GET /agents/:id/history", () => {
  const HISTORY = "/agents/assistant/history";

  test("GET /agents/:id/history is {entries, total, page, limit}, newest first, and an entry has the fields of a run", async (t) => {
    const { service } = await serveUpstream(t);
    assert.deepEqual(await dataOf(service.get(HISTORY)), { entries: [], total: 0, page: 0, limit: 10 });
    await dataOf(service.post(TEXT, { input: "first" }));
    const options = { memory: { userId: "ada", conversationId: "c-1" } };
    const second = await dataOf(service.post(TEXT, { input: [{ role: "user", content: "second" }], options }));
    const page = await dataOf(service.get(HISTORY));
    assert.equal(page.total, 2);
    assert.deepEqual(
      page.entries.map((entry: { output: string }) => entry.output),
      ["second", "first"],
    );
    const { id, traceId, startTime, endTime, ...entry } = page.entries[0];
    assert.match(id, /^[\w-]{8,}$/);
    // The names of the AI SDK stand beside them in replies alone.
    const { inputTokens: _, outputTokens: __, ...usage } = second.usage;
    const trace = await dataOf(service.get(`/observability/traces/${traceId}`));
    const [said] = JSON.parse(trace.spans[0].attributes["gen_ai.output.messages"]);
    assert.deepEqual(said.parts, [{ type: "text", content: "second" }]);
    assert.equal(new Date(startTime).toISOString(), startTime);
    assert.ok(new Date(endTime).getTime() >= new Date(startTime).getTime());
    assert.deepEqual(entry, {
      agentId: "assistant",
      status: "completed",
      input: [{ role: "user", content: "second" }],
      output: "second",
      usage,
      model: "up/test-model",
      userId: "ada",
      conversationId: "c-1",
    });
    assert.ok(!("userId" in page.entries[1]), "what was not given is left out");
  });

  test("page and limit cut it into pages, by default the first 10", async (t) => {
    const service = await startService(t, manifestWith());
    for (let run = 0; run < 12; run++) await dataOf(service.post(TEXT, { input: `run ${run}` }));
    const outputs = async (query: string) => {
      const { entries, ...rest } = await dataOf(service.get(HISTORY + query));
      return { ...rest, outputs: entries.map((entry: { output: string }) => Number(entry.output.slice(4))) };
    };
    assert.deepEqual(await outputs(""), { total: 12, page: 0, limit: 10, outputs: [11, 10, 9, 8, 7, 6, 5, 4, 3, 2] });
    assert.deepEqual(await outputs("?page=1"), { total: 12, page: 1, limit: 10, outputs: [1, 0] });
    assert.deepEqual(await outputs("?page=2&limit=5"), { total: 12, page: 2, limit: 5, outputs: [1, 0] });
    assert.equal((await outputs("?limit=100")).outputs.length, 12);
    assert.deepEqual((await outputs("?page=9")).outputs, []);
  });

  for (const [query, error] of [
    ["limit=0", /limit must be >= 1/],
    ["limit=101", /limit must be <= 100/],
    ["limit=1.5", /limit must be integer/],
    ["page=-1", /page must be >= 0/],
    ["page=abc", /page must be/],
  ] as const) {
    test(`GET /agents/:id/history with ${query} is 400 and names the parameter`, async () => {
      const answer = await errorOf(shared.get(`${HISTORY}?${query}`));
      assert.equal(answer.status, 400);
      assert.match(answer.error, error);
    });
  }

  for (const store of ["memory:", "sqlite:data/history.db"]) {
    test(`GET /agents/:id/history says running, error with its message, and cancelled with what was said by then, in ${store}`, async (t) => {
      const { service, upstream } = await serveUpstream(t, {}, { store });
      const newest = async () => (await dataOf(service.get(HISTORY))).entries[0];
      upstream.replies(failure(400, { message: "the upstream's own words" }), stallsAfter("Half an ans"));
      await service.post(TEXT, { input: "x" });
      const failed = await newest();
      assert.equal(failed.status, "error");
      assert.equal(failed.error, "model provider failed: refused the request");
      assert.ok(failed.endTime);

      const options = { userId: "ada" };
      const reader = new EventReader(`${service.url}/agents/assistant/stream`, { input: "y", options });
      await reader.until(() => reader.text.includes("Half"));
      const { id, traceId, startTime, ...running } = await newest();
      assert.deepEqual(running, { agentId: "assistant", status: "running", input: "y", userId: "ada" });
      assert.ok(traceId);
      reader.leave();
      await eventually(async () => (await newest()).status === "cancelled", "cancelled");
      const ended = await newest();
      assert.deepEqual([ended.id, ended.startTime, ended.output], [id, startTime, "Half an ans"]);
      assert.ok(ended.endTime >= startTime);
      assert.equal((await dataOf(service.get(HISTORY))).total, 2, "each run is counted once");
    });
  }

  test("GET /agents/:id/history keeps the object of /object as output", async (t) => {
    const { service, upstream } = await serveUpstream(t);
    upstream.replies(saysJson({ city: "Lisbon" }));
    await dataOf(service.post("/agents/assistant/object", { input: "x", schema: CITY }));
    assert.deepEqual((await dataOf(service.get(HISTORY))).entries[0].output, { city: "Lisbon" });
  });
});
