/** Ids that clients take out of a path (`/a/./b`, `/a/../b`) are refused where something is created with them. */
import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { manifestWith, startService, type TestService } from "../support/service.ts";

let service: TestService;
before(async (t) => {
  service = await startService(t as never, {
    ...manifestWith({ memory: "default" }),
    memory: { default: {} },
    workflows: { keep: { steps: [{ id: "one", andThen: { set: 1 } }] } },
  });
  await service.post("/api/memory/conversations", { conversationId: "c", userId: "ada", resourceId: "r" });
});

const AGENT = Object.keys((manifestWith() as { agents: object }).agents)[0];
const message = { role: "user", content: "hello" };

/** Requests that create something by an id, and the field that has it. */
const CREATIONS: Record<string, (id: string) => [path: string, body: unknown]> = {
  conversationId: (id) => ["/api/memory/conversations", { conversationId: id, userId: "ada", resourceId: "r" }],
  newConversationId: (id) => ["/api/memory/conversations/c/clone", { newConversationId: id }],
  "messages[0].conversationId": (id) => [
    "/api/memory/save-messages",
    { userId: "ada", messages: [{ conversationId: id, message }] },
  ],
  "options.memory.conversationId": (id) => [
    `/agents/${AGENT}/text`,
    { input: "hello", options: { memory: { conversationId: id, userId: "ada" } } },
  ],
  "options.conversationId": (id) => ["/workflows/keep/execute", { input: null, options: { conversationId: id } }],
  "options.executionId": (id) => ["/workflows/keep/execute", { input: null, options: { executionId: id } }],
};

for (const [field, creation] of Object.entries(CREATIONS))
  describe(`POST ${creation(":id")[0]}`, () => {
    for (const id of [".", ".."])
      test(`${field} ${JSON.stringify(id)} is a 400 that names the field`, async () => {
        const reply = await service.post(...creation(id));
        const { error } = (await reply.json()) as { error: string };
        assert.equal(reply.status, 400, error);
        assert.ok(error.startsWith(`${field} must `), error);
        assert.match(error, /"\." or "\.\."/);
      });
  });

test("GET /api/memory/conversations/:conversationId and .../executions/:executionId/state find ids of three dots", async () => {
  for (const field of ["conversationId", "options.executionId"]) {
    const reply = await service.post(...CREATIONS[field]!("..."));
    assert.ok(reply.ok, await reply.text());
  }
  for (const path of ["/api/memory/conversations/...", "/workflows/keep/executions/.../state"])
    assert.equal((await service.get(path)).status, 200, path);
});
