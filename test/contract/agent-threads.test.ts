/** What sub-agents remember of a conversation: their threads beside it, over the memory API. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { dataOf, type Loose } from "../support/served-upstream.ts";
import { startService, type TestService } from "../support/service.ts";

const delegate = (agentId: string) => ({ tool: "delegate_task", input: { agentId, task: "{{ input }}" } });
const replies = (agentId: string) => [{ call: delegate(agentId), then: "{{ result }}" }];

const MANIFEST = {
  name: "Test",
  version: "1.0.0",
  store: "memory:",
  providers: {
    demo: { use: "scripted", models: { boss: { replies: replies("editor") }, middle: { replies: replies("writer") } } },
  },
  memory: { chiefs: {}, others: {} },
  agents: {
    chief: { model: "demo/boss", subAgents: ["editor"], memory: "chiefs" },
    editor: { model: "demo/middle", subAgents: ["writer"], memory: "chiefs" },
    writer: { model: "demo/echo", memory: "others" },
  },
};

const memory = (userId: string, conversationId: string) => ({ memory: { userId, conversationId } });
const say = (service: TestService, input: string, userId: string, conversationId: string) =>
  dataOf(service.post("/agents/chief/text", { input, options: memory(userId, conversationId) }));

/** The texts of a conversation; null when it does not exist. */
async function textsOf(service: TestService, agentId: string, id: string): Promise<string[] | null> {
  const reply = await service.get(`/api/memory/conversations/${encodeURIComponent(id)}/messages?agentId=${agentId}`);
  if (reply.status === 404) return null;
  const { messages } = await dataOf(reply);
  return messages.map(({ role, parts }: Loose) => `${role}: ${parts.map((part: Loose) => part.text ?? "").join("")}`);
}

test("GET /api/memory/conversations/:conversationId/messages shows a sub-agent's thread under the id CONVERSATION:AGENT", async (t) => {
  const service = await startService(t, MANIFEST);
  await say(service, "hello", "ada", "c1");
  const said = ["user: hello", "assistant: hello"];
  assert.deepEqual(await textsOf(service, "chief", "c1"), said);
  assert.deepEqual(await textsOf(service, "editor", "c1:editor"), said);
  assert.deepEqual(await textsOf(service, "writer", "c1:writer"), said);
});

test("DELETE /api/memory/conversations/:conversationId deletes the threads of its sub-agents too, and no others", async (t) => {
  const service = await startService(t, MANIFEST);
  await say(service, "hello", "ada", "c1");
  await say(service, "again", "ada", "c2");
  const reply = await fetch(`${service.url}/api/memory/conversations/c1?agentId=chief`, { method: "DELETE" });
  assert.equal(reply.status, 200, await reply.text());
  for (const [agent, id] of [
    ["chief", "c1"],
    ["editor", "c1:editor"],
    ["writer", "c1:writer"],
  ] as const)
    assert.equal(await textsOf(service, agent, id), null, id);
  assert.equal((await textsOf(service, "editor", "c2:editor"))!.length, 2);
  assert.equal((await textsOf(service, "writer", "c2:writer"))!.length, 2);
});

test("DELETE /api/memory/conversations/:conversationId leaves a thread of that id that belongs to another user", async (t) => {
  const service = await startService(t, MANIFEST);
  await say(service, "hello", "ada", "c1");
  await fetch(`${service.url}/api/memory/conversations/c1%3Awriter?agentId=writer`, { method: "DELETE" });
  await dataOf(service.post("/agents/writer/text", { input: "mine", options: memory("bob", "c1:writer") }));
  await fetch(`${service.url}/api/memory/conversations/c1?agentId=chief`, { method: "DELETE" });
  assert.equal(await textsOf(service, "chief", "c1"), null);
  assert.equal((await textsOf(service, "writer", "c1:writer"))!.length, 2);
});
