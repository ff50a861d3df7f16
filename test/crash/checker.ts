/** Walks the memory API after a crash: rows, indexes, totals and working memory must tell one story, and the clients' own. */
import assert from "node:assert/strict";
import type { Dispatcher } from "undici";
import type { Client } from "./client.ts";
import { checkHistory, checkSearch } from "./derived.ts";
import { type Conversation, type Outcome, type Stored, writerOf } from "./model.ts";

const MEMORY = "/api/memory";
const PAGE = 200;
/** Requests at once; the server collects what comes together. */
const AT_ONCE = 32;

interface Listed {
  id: string;
  userId: string;
  resourceId: string;
  title: string;
  metadata: Record<string, unknown>;
  createdAt: string;
  updatedAt: string;
}

export interface SavedMessage {
  id: string;
  role: string;
  parts?: { type: string; text?: string }[];
  content?: unknown;
  createdAt: string;
}

interface Observed {
  conversation: Listed;
  messages: SavedMessage[];
  working: string | null;
}

export type Get = <T>(path: string) => Promise<T | null>;

/** GET that gives the envelope's data; null for 404; throws on everything else. */
function getter(pool: Dispatcher): Get {
  return async <T>(path: string) => {
    const reply = await pool.request({ method: "GET", path });
    const text = await reply.body.text();
    if (reply.statusCode === 404) return null;
    assert.equal(reply.statusCode, 200, `GET ${path} is ${reply.statusCode}: ${text}`);
    return (JSON.parse(text) as { data: T }).data;
  };
}

/** Works on some at a time. */
export async function forEach<T>(items: Iterable<T>, work: (item: T) => Promise<void>): Promise<void> {
  const iterator = items[Symbol.iterator]();
  const lane = async () => {
    for (let next = iterator.next(); !next.done; next = iterator.next()) await work(next.value);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, lane));
}

/** Every page of a list; its total must be what the pages hold, and nothing may be on two of them. */
async function walk(get: Get, filter: Record<string, string>): Promise<Listed[]> {
  const found: Listed[] = [];
  for (;;) {
    const query = new URLSearchParams({ ...filter, limit: String(PAGE), offset: String(found.length) });
    const path = `${MEMORY}/conversations?${query}`;
    const page = await get<{ conversations: Listed[]; total: number }>(path);
    assert.ok(page !== null, `GET ${path} is 404`);
    found.push(...page.conversations);
    if (page.conversations.length < PAGE) {
      assert.equal(page.total, found.length, `the total of ${path}`);
      assert.equal(new Set(found.map(({ id }) => id)).size, found.length, `a conversation is listed twice by ${path}`);
      return found;
    }
  }
}

const ORDERS = { created_at: "createdAt", updated_at: "updatedAt", title: "title" } as const;

/** All orders of a user's list have the same conversations, each in its order. Gives them by id. */
async function listOf(get: Get, userId: string): Promise<Map<string, Listed>> {
  const lists = await Promise.all(
    Object.entries(ORDERS).flatMap(([orderBy, field]) =>
      ["ASC", "DESC"].map(async (orderDirection) => {
        const list = await walk(get, { userId, orderBy, orderDirection });
        const values = list.map((row) => row[field]);
        const sorted = [...values].sort((left, right) => (left < right ? -1 : left > right ? 1 : 0));
        if (orderDirection === "DESC") sorted.reverse();
        assert.deepEqual(values, sorted, `${userId} by ${orderBy} ${orderDirection} is out of order`);
        return new Map(list.map((row) => [row.id, row]));
      }),
    ),
  );
  const [first, ...others] = lists;
  for (const other of others) {
    assert.equal(other.size, first!.size, `lists of ${userId} differ in length`);
    for (const [id, row] of other) assert.deepEqual(row, first!.get(id), `lists of ${userId} differ`);
  }
  return first!;
}

async function observe(get: Get, id: string): Promise<Observed | null> {
  const path = `${MEMORY}/conversations/${id}`;
  const [alone, page, working] = await Promise.all([
    get<{ conversation: Listed }>(path),
    get<{ conversation: Listed; messages: SavedMessage[] }>(`${path}/messages?limit=1000`),
    get<{ content: string | null }>(`${path}/working-memory`),
  ]);
  if (alone === null) {
    assert.ok(page === null && working === null, `${id} is gone, but not its messages or its working memory`);
    return null;
  }
  assert.ok(page !== null && working !== null, `${id} is there without its messages or its working memory`);
  assert.deepEqual(page.conversation, alone.conversation);
  const { messages } = page;
  assert.equal(new Set(messages.map((message) => message.id)).size, messages.length, `${id}: a message is there twice`);
  const times = messages.map(({ createdAt }) => createdAt);
  assert.deepEqual(times, [...times].sort(), `${id}: messages are not in the order of their times`);
  return { conversation: alone.conversation, messages, working: working.content };
}

/** Pages and filters of one conversation's messages agree with the whole. */
async function checkPages(get: Get, id: string, messages: readonly SavedMessage[]): Promise<void> {
  const path = `${MEMORY}/conversations/${id}/messages`;
  const page = async (query: string) => (await get<{ messages: SavedMessage[] }>(`${path}?${query}`))?.messages;
  assert.deepEqual(await page("limit=3"), messages.slice(-3), `${id}: the last three messages`);
  const said = messages.filter(({ role }) => role === "user");
  assert.deepEqual(await page("limit=1000&roles=user"), said, `${id}: the user's messages`);
}

export function textOf({ parts, content }: SavedMessage): string {
  if (typeof content === "string") return content;
  const list = parts ?? (content as { type: string; text?: string }[]);
  return list.map((part) => (part.type === "text" ? (part.text ?? "") : "")).join("");
}

function fits(saved: SavedMessage, expected: Stored): boolean {
  const text = textOf(saved);
  return (
    saved.role === expected.role &&
    (expected.beginning ? expected.text.startsWith(text) : text === expected.text) &&
    (expected.id === null || saved.id === expected.id) &&
    (expected.form === null || Object.hasOwn(saved, expected.form))
  );
}

/** What does not fit between what a client knows of a conversation and what is there, or null. */
function misfit(client: string, expected: Conversation | null, observed: Observed | null): string | null {
  if (expected === null || observed === null) {
    return (expected === null) === (observed === null) ? null : `it is ${observed === null ? "gone" : "still there"}`;
  }
  const { conversation, working } = observed;
  const messages = expected.shared
    ? observed.messages.filter((saved) => writerOf(textOf(saved)) === client)
    : observed.messages;
  const at = Math.max(expected.messages.length, messages.length);
  for (let index = 0; index < at; index += 1) {
    const [want, have] = [expected.messages[index], messages[index]];
    if (want === undefined) return `message ${index} of ${at} was never sent: ${JSON.stringify(have)}`;
    if (have === undefined) return `message ${index} of ${at} is lost: ${JSON.stringify(want)}`;
    if (!fits(have, want)) return `message ${index} is ${JSON.stringify(have)} instead of ${JSON.stringify(want)}`;
  }
  const known = { userId: expected.userId, resourceId: expected.resourceId, title: expected.title };
  const { userId, resourceId, title } = conversation;
  try {
    assert.deepEqual({ userId, resourceId, title }, known);
    assert.deepEqual(conversation.metadata, expected.metadata);
  } catch (error) {
    return (error as Error).message;
  }
  return working === expected.working ? null : `working memory is ${working} instead of ${expected.working}`;
}

function misfitOfAll(client: string, outcome: Outcome, observed: ReadonlyMap<string, Observed | null>): string | null {
  for (const [id, expected] of outcome) {
    const wrong = misfit(client, expected, observed.get(id) ?? null);
    if (wrong !== null) return `${id}: ${wrong}`;
  }
  return null;
}

/** What the pending request has left: all of it, nothing, or for a run a beginning. Becomes the client's state. */
function resolve(client: Client, observed: ReadonlyMap<string, Observed | null>): void {
  const { pending } = client;
  if (pending === null) return;
  const ids = [...pending.outcomes.at(-1)!.keys()];
  const before: Outcome = new Map(ids.map((id) => [id, client.state.get(id) ?? null]));
  const tried: string[] = [];
  for (const outcome of [before, ...pending.outcomes.toReversed()]) {
    const wrong = misfitOfAll(client.name, outcome, observed);
    if (wrong === null) {
      client.settle(outcome);
      return;
    }
    tried.push(wrong);
  }
  assert.fail(`${client.name}: "${pending.name}" is half there:\n${tried.join("\n")}`);
}

/**
 * Checks what the clients have touched since the last check, or everything, and makes what the crash has left of pending
 * requests the clients' state. Gives how many conversations and messages were looked at.
 */
export async function check(pool: Dispatcher, clients: readonly Client[], everything: boolean): Promise<string> {
  const get = getter(pool);
  const ids = new Set(clients.flatMap((client) => [...client.touched, ...(everything ? client.state.keys() : [])]));
  const observed = new Map<string, Observed | null>();
  await forEach(ids, async (id) => void observed.set(id, await observe(get, id)));
  for (const client of clients) {
    resolve(client, observed);
    for (const id of everything ? client.state.keys() : client.touched) {
      const wrong = misfit(client.name, client.state.get(id) ?? null, observed.get(id) ?? null);
      assert.equal(wrong, null, `${client.name}, ${id}: ${wrong}`);
    }
  }
  await checkLists(get, clients, observed);
  let messages = 0;
  await forEach(observed, async ([id, found]) => {
    messages += found?.messages.length ?? 0;
    if (found !== null) await checkPages(get, id, found.messages);
  });
  const known = [...observed].map(([id, found]) => [id, found?.messages ?? []] as const);
  await checkSearch(get, new Map(known));
  await checkHistory(get, "assistant");
  for (const client of clients) client.touched.clear();
  return `${observed.size} conversations, ${messages} messages`;
}

/** Lists by user, by resource and of all hold what exists, in the state it is in. */
async function checkLists(get: Get, clients: readonly Client[], observed: ReadonlyMap<string, Observed | null>) {
  const all = new Map<string, Listed>();
  await forEach(clients, async (client) => {
    const listed = await listOf(get, client.name);
    const own = [...client.state].filter(([, { shared }]) => !shared).map(([id]) => id);
    assert.deepEqual([...listed.keys()].sort(), own.sort(), `the list of ${client.name}`);
    for (const [id, row] of listed) {
      all.set(id, row);
      const found = observed.get(id);
      if (found) assert.deepEqual(row, found.conversation, `${id} in the list of ${client.name}`);
    }
  });
  for (const [id, row] of await listOf(get, SHARED_OWNER)) all.set(id, row);
  const whole = await walk(get, {});
  assert.deepEqual(new Set(whole.map(({ id }) => id)), new Set(all.keys()), "the list of all conversations");
  const resources = new Set([...all.values()].map(({ resourceId }) => resourceId));
  await forEach(resources, async (resourceId) => {
    const some = [...all.values()].filter((row) => row.resourceId === resourceId).map(({ id }) => id);
    const listed = await walk(get, { resourceId });
    assert.deepEqual(listed.map(({ id }) => id).sort(), some.sort(), `the list of ${resourceId}`);
  });
}

/** The user that conversations of all clients belong to. */
export const SHARED_OWNER = "everybody";
