/** Visits to memory: what one process has acknowledged is there for the others, and stays. */
import assert from "node:assert/strict";
import type { Loose } from "../soak/caller.ts";
import { type Client, call, insist, type Said } from "./calls.ts";

function conversationOf({ name, knowledge, random }: Client) {
  const id = `talk-${name}-${random.below(3)}`;
  const conversation = knowledge.conversations.get(id) ?? { user: name, said: [] };
  knowledge.conversations.set(id, conversation);
  return { id, said: conversation.said };
}

export async function save(client: Client): Promise<void> {
  const { id, said } = conversationOf(client);
  if (!said.some(({ sure }) => sure)) {
    const created = { conversationId: id, userId: client.name, resourceId: "chaos", title: id };
    const sent = { body: created, refusals: [409] };
    await call(client, await client.cluster.pick(client.random), "/api/memory/conversations", sent);
  }
  const added = Array.from(
    { length: 1 + client.random.below(3) },
    (): Said => ({
      text: `note ${client.next()} of ${client.name}`,
      role: "user",
      sure: false,
    }),
  );
  said.push(...added);
  const messages = added.map(({ text, role }) => ({ role, content: text }));
  const body = { userId: client.name, conversationId: id, messages };
  const reply = await call(client, await client.cluster.pick(client.random), "/api/memory/save-messages", { body });
  assert.deepEqual(reply, { saved: added.length });
  for (const each of added) each.sure = true;
  await checkConversation(client, id);
}

export async function talk(client: Client): Promise<void> {
  const { id, said } = conversationOf(client);
  const text = `question ${client.next()} of ${client.name}`;
  const turn: Said[] = [
    { text, role: "user", sure: false },
    { text, role: "assistant", sure: false },
  ];
  said.push(...turn);
  const body = { input: text, options: { memory: { userId: client.name, conversationId: id } } };
  const reply = await call(client, await client.cluster.pick(client.random), "/agents/assistant/text", { body });
  assert.equal(reply.text, text, "the answer to another question");
  for (const each of turn) each.sure = true;
  await checkConversation(client, id);
}

/** What was acknowledged is there, once and in its order; what was not may be there once. */
export async function checkConversation(client: Client, id: string): Promise<void> {
  const { user, said } = client.knowledge.conversations.get(id)!;
  const sure = said.filter((each) => each.sure).map(nameOf);
  const known = new Set(said.map(nameOf));
  const path = `/api/memory/conversations/${id}/messages?userId=${user}&limit=1000`;
  const data = await insist(client, path);
  if (data === undefined) {
    assert.deepEqual(sure, [], `${id} is lost`);
    return;
  }
  const there = data.messages.map((message: Loose) => nameOf({ role: message.role, text: textOf(message) }));
  assert.equal(new Set(there).size, there.length, `a message of ${id} is there twice`);
  for (const name of there) assert.ok(known.has(name), `${name} in ${id}`);
  const wanted = new Set(sure);
  assert.deepEqual(
    there.filter((name: string) => wanted.has(name)),
    sure,
    `what was acknowledged of ${id}`,
  );
}

const nameOf = ({ role, text }: Pick<Said, "role" | "text">) => `${role}: ${text}`;
const textOf = ({ content, parts }: Loose): string =>
  content ?? parts.find(({ type }: Loose) => type === "text")?.text ?? "";
