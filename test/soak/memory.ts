/** Visits to memory: conversations are made, filled, read, searched, copied and deleted again. */
import assert from "node:assert/strict";
import { type Caller, call, expectStatus, type Loose, type Visit } from "./caller.ts";

const BASE = "/api/memory";

interface Kept {
  readonly id: string;
  readonly texts: string[];
}

/** A client keeps so many conversations: the load is the same for as long as it lasts. */
const MOST = 6;
const kept = new WeakMap<Caller, Kept[]>();

function conversationsOf(caller: Caller): Kept[] {
  const mine = kept.get(caller) ?? [];
  kept.set(caller, mine);
  return mine;
}

async function some(caller: Caller): Promise<Kept> {
  const mine = conversationsOf(caller);
  return mine.length === 0 || caller.random.chance(0.15) ? create(caller) : caller.random.pick(mine);
}

async function create(caller: Caller): Promise<Kept> {
  const mine = conversationsOf(caller);
  const id = `${caller.name}-${caller.next()}`;
  const body = { conversationId: id, userId: caller.name, resourceId: "soak", title: id };
  const { conversation } = await call(caller, "POST", `${BASE}/conversations`, body);
  assert.equal(conversation.id, id);
  mine.push({ id, texts: [] });
  if (mine.length > MOST) {
    const [old] = mine.splice(0, 1);
    const path = `${BASE}/conversations/${old!.id}`;
    assert.deepEqual(await call(caller, "DELETE", path), { deleted: true });
    await expectStatus(caller, 404, "GET", path);
  }
  return mine.at(-1)!;
}

const textOf = ({ content }: Loose) => content;

export const save: Visit = async (caller) => {
  const { id, texts } = await some(caller);
  if (texts.length > 200) return "left";
  const added = Array.from(
    { length: 1 + caller.random.below(5) },
    () => `note ${caller.next()} ${"word ".repeat(caller.random.below(60))}`,
  );
  const messages = added.map((content) => ({ role: "user", content }));
  const body = { userId: caller.name, conversationId: id, messages };
  assert.deepEqual(await call(caller, "POST", `${BASE}/save-messages`, body), { saved: added.length });
  texts.push(...added);
  return "answered";
};

export const page: Visit = async (caller) => {
  const { id, texts } = await some(caller);
  const limit = 1 + caller.random.below(50);
  const path = `${BASE}/conversations/${id}/messages?userId=${caller.name}&limit=${limit}`;
  const { messages } = await call(caller, "GET", path);
  assert.deepEqual(messages.map(textOf), texts.slice(-limit), `messages of ${id}`);
  const list = await call(caller, "GET", `${BASE}/conversations?userId=${caller.name}&resourceId=soak&limit=200`);
  const ids = list.conversations.map((each: Loose) => each.id).toSorted();
  assert.deepEqual(
    ids,
    conversationsOf(caller)
      .map((each) => each.id)
      .toSorted(),
  );
  return "answered";
};

export const search: Visit = async (caller) => {
  const { texts } = await some(caller);
  const wanted = texts.at(-1);
  if (wanted === undefined) return "left";
  const query = new URLSearchParams({ searchQuery: wanted, userId: caller.name, limit: "5" });
  const { results } = await call(caller, "GET", `${BASE}/search?${query}`);
  assert.equal(textOf(results[0].message), wanted);
  for (const { conversationId } of results) assert.ok(conversationId.startsWith(`${caller.name}-`), "of another user");
  return "answered";
};

export const note: Visit = async (caller) => {
  const { id } = await some(caller);
  const path = `${BASE}/conversations/${id}/working-memory`;
  const content = `# Note ${caller.next()}`;
  await call(caller, "POST", path, { content, userId: caller.name });
  const stored = await call(caller, "GET", `${path}?userId=${caller.name}&scope=conversation`);
  assert.equal(stored.content, content);
  return "answered";
};

export const copy: Visit = async (caller) => {
  const { id, texts } = await some(caller);
  const newConversationId = `${caller.name}-copy-${caller.next()}`;
  const { messageCount } = await call(caller, "POST", `${BASE}/conversations/${id}/clone`, { newConversationId });
  assert.equal(messageCount, texts.length);
  await call(caller, "DELETE", `${BASE}/conversations/${newConversationId}`);
  return "answered";
};
