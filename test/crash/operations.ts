/** What a client of the crash test does: one request at a time, chosen by chance, with what it promises. */
import type { Conversation, Operation, Outcome, Role, Stored } from "./model.ts";

type Known = readonly [id: string, conversation: Conversation];

/** What an operation is chosen from. */
export interface Scene {
  readonly client: string;
  readonly round: number;
  /** The last conversations of the client alone, newest last. */
  readonly own: readonly Known[];
  /** Ids of such that were deleted. */
  readonly gone: readonly string[];
  /** Conversations that everybody writes into, with this client's messages. */
  readonly shared: readonly Known[];
  random(): number;
  /** A number that was not there before. */
  next(): number;
}

const MEMORY = "/api/memory";
const ROLES: readonly Role[] = ["user", "assistant", "system"];

const below = (scene: Scene, bound: number) => Math.floor(scene.random() * bound);
const one = <T>(scene: Scene, items: readonly T[]): T => items[below(scene, items.length)]!;
const textOf = (scene: Scene) => `${scene.client}.${scene.next()} says ${"so ".repeat(1 + below(scene, 12))}`.trim();
const touch = (id: string, conversation: Conversation | null): Outcome => new Map([[id, conversation]]);
const withMessages = (conversation: Conversation, more: readonly Stored[]): Conversation => ({
  ...conversation,
  messages: [...conversation.messages, ...more],
});

/** One message as it is stored, and an entry of a save for it: wrapped or bare, a UI message or a model's, with an id or without. */
function message(scene: Scene, conversationId: string, userId: string): { stored: Stored; entry: object } {
  const form = scene.random() < 0.5 ? "parts" : "content";
  const id = scene.random() < 0.7 ? `m-${scene.client}-${scene.next()}` : null;
  const stored: Stored = { role: one(scene, ROLES), text: textOf(scene), id, form };
  return { stored, entry: entryOf(scene, stored, conversationId, userId) };
}

function entryOf(scene: Scene, { id, role, text, form }: Stored, conversationId: string, userId: string): object {
  const said = form === "parts" ? { parts: [{ type: "text", text }] } : { content: text };
  const bare = { ...(id === null ? {} : { id }), role, ...said, metadata: { by: scene.client } };
  return scene.random() < 0.5 ? { message: bare, conversationId, userId } : { ...bare, conversationId, userId };
}

function saveInto(scene: Scene, targets: readonly Known[]): Operation {
  const messages: object[] = [];
  const outcome = new Map<string, Conversation>();
  for (const [id, conversation] of targets) {
    const batch = Array.from({ length: 1 + below(scene, 6) }, () => message(scene, id, conversation.userId));
    messages.push(...batch.map(({ entry }) => entry));
    outcome.set(
      id,
      withMessages(
        conversation,
        batch.map(({ stored }) => stored),
      ),
    );
  }
  return { name: "save", method: "POST", path: `${MEMORY}/save-messages`, body: { messages }, outcomes: [outcome] };
}

function create(scene: Scene, id = `c-${scene.client}-${scene.next()}`): Operation {
  const conversation: Conversation = {
    userId: scene.client,
    resourceId: `resource-${below(scene, 4)}`,
    title: textOf(scene),
    metadata: { round: scene.round },
    working: null,
    messages: [],
    shared: false,
  };
  const { userId, resourceId, title, metadata } = conversation;
  return {
    name: "create",
    method: "POST",
    path: `${MEMORY}/conversations`,
    body: { conversationId: id, userId, resourceId, title, metadata },
    outcomes: [touch(id, conversation)],
  };
}

/** Replaces one message in place, and adds one in the same batch. */
function replace(scene: Scene): Operation {
  const [id, conversation] = one(scene, scene.own);
  const known = conversation.messages.filter((stored) => stored.id !== null);
  if (known.length === 0) return saveInto(scene, [[id, conversation]]);
  const old = one(scene, known);
  const now: Stored = { ...old, text: textOf(scene) };
  const more = message(scene, id, conversation.userId);
  const messages = [entryOf(scene, now, id, conversation.userId), more.entry];
  const replaced = conversation.messages.map((stored) => (stored === old ? now : stored));
  const outcome = touch(id, { ...conversation, messages: [...replaced, more.stored] });
  return { name: "replace", method: "POST", path: `${MEMORY}/save-messages`, body: { messages }, outcomes: [outcome] };
}

function deleteMessages(scene: Scene): Operation {
  const [conversationId, conversation] = one(scene, scene.own);
  const gone = conversation.messages.filter((stored) => stored.id !== null && scene.random() < 0.4);
  if (gone.length === 0) return saveInto(scene, [[conversationId, conversation]]);
  const messages = conversation.messages.filter((stored) => !gone.includes(stored));
  return {
    name: "delete messages",
    method: "POST",
    path: `${MEMORY}/messages/delete`,
    body: { userId: conversation.userId, conversationId, messageIds: gone.map((stored) => stored.id) },
    outcomes: [touch(conversationId, { ...conversation, messages })],
  };
}

function patch(scene: Scene): Operation {
  const [id, conversation] = one(scene, scene.own);
  const title = textOf(scene);
  const key = `k${below(scene, 3)}`;
  const drop = key in conversation.metadata && scene.random() < 0.5;
  const { [key]: _, ...rest } = conversation.metadata;
  const value = scene.next();
  return {
    name: "patch",
    method: "PATCH",
    path: `${MEMORY}/conversations/${id}`,
    body: { title, metadata: { [key]: drop ? null : value } },
    outcomes: [touch(id, { ...conversation, title, metadata: drop ? rest : { ...rest, [key]: value } })],
  };
}

function remove(scene: Scene): Operation {
  const [id] = one(scene, scene.own);
  return {
    name: "delete",
    method: "DELETE",
    path: `${MEMORY}/conversations/${id}`,
    outcomes: [touch(id, null)],
  };
}

function clone(scene: Scene): Operation {
  const [id, conversation] = one(scene, scene.own);
  const newConversationId = `c-${scene.client}-${scene.next()}`;
  const title = textOf(scene);
  const includeMessages = scene.random() < 0.8;
  const messages = includeMessages ? conversation.messages.map((stored) => ({ ...stored, id: null })) : [];
  return {
    name: "clone",
    method: "POST",
    path: `${MEMORY}/conversations/${id}/clone`,
    body: { newConversationId, title, includeMessages },
    outcomes: [touch(newConversationId, { ...conversation, title, messages })],
  };
}

function remember(scene: Scene): Operation {
  const [id, conversation] = one(scene, scene.own);
  const content = textOf(scene);
  const append = scene.random() < 0.5;
  const working = append && conversation.working !== null ? `${conversation.working}\n\n${content}` : content;
  return {
    name: "working memory",
    method: "POST",
    path: `${MEMORY}/conversations/${id}/working-memory`,
    body: { content, mode: append ? "append" : "replace" },
    outcomes: [touch(id, { ...conversation, working })],
  };
}

/** A run in a conversation: what it was told and what it answered; killed before its end, a beginning of that. */
function generate(scene: Scene, id: string, conversation: Conversation): Operation {
  const input = textOf(scene);
  const user: Stored = { role: "user", text: input, id: null, form: null };
  const answer: Stored = { ...user, role: "assistant" };
  const streamed = scene.random() < 0.5;
  const mode = scene.random() < 0.5 ? "step" : "finish";
  const memory = { userId: conversation.userId, conversationId: id, options: { conversationPersistence: { mode } } };
  return {
    name: `generate (${mode}${streamed ? ", streamed" : ""})`,
    method: "POST",
    path: `/agents/assistant/${streamed ? "stream" : "text"}`,
    body: { input, options: { memory } },
    ...(streamed ? { ends: '"type":"finish"' } : {}),
    outcomes: [
      touch(id, withMessages(conversation, [user])),
      touch(id, withMessages(conversation, [user, { ...answer, beginning: true }])),
      touch(id, withMessages(conversation, [user, answer])),
    ],
  };
}

/** A message of the user is said anew under its id: all that came after it goes with the commit that stores the turn, or nothing. */
function edit(scene: Scene): Operation {
  const [id, conversation] = one(scene, scene.own);
  const { messages } = conversation;
  const index = messages.findLastIndex((message) => message.role === "user" && message.id !== null);
  if (index === -1) return generate(scene, id, conversation);
  const text = textOf(scene);
  const input = [{ id: messages[index]!.id, role: "user", parts: [{ type: "text", text }] }];
  const memory = { userId: conversation.userId, conversationId: id };
  const edited: Stored = { ...messages[index]!, text, form: "parts" };
  const answer: Stored = { role: "assistant", text, id: null, form: null };
  return {
    name: "edit",
    method: "POST",
    path: "/agents/assistant/text",
    body: { input, options: { memory } },
    outcomes: [touch(id, { ...conversation, messages: [...messages.slice(0, index), edited, answer] })],
  };
}

function generateNew(scene: Scene): Operation {
  const id = `c-${scene.client}-${scene.next()}`;
  const empty = {
    userId: scene.client,
    resourceId: "assistant",
    metadata: {},
    working: null,
    messages: [],
    shared: false,
  };
  const operation = generate(scene, id, { ...empty, title: "" });
  const title = (operation.body as { input: string }).input.slice(0, 80);
  const outcomes = operation.outcomes.map((outcome) => touch(id, { ...outcome.get(id)!, title }));
  return { ...operation, outcomes };
}

/** How often each is done, beside the others. */
const CHOICES: readonly (readonly [weight: number, make: (scene: Scene) => Operation])[] = [
  [30, (scene) => saveInto(scene, [one(scene, scene.own)])],
  [10, (scene) => saveInto(scene, scene.own.slice(-2))],
  [15, (scene) => saveInto(scene, [one(scene, scene.shared)])],
  [8, (scene) => saveInto(scene, [one(scene, scene.own), one(scene, scene.shared)])],
  [6, replace],
  [6, deleteMessages],
  [8, (scene) => create(scene)],
  [2, (scene) => create(scene, scene.gone.at(-1))],
  [4, patch],
  [3, remove],
  [4, clone],
  [6, remember],
  [8, (scene) => generate(scene, ...one(scene, scene.own))],
  [6, edit],
  [4, generateNew],
  [6, (scene) => generate(scene, ...one(scene, scene.shared))],
];
const ALL = CHOICES.reduce((sum, [weight]) => sum + weight, 0);

/** The next thing to do. A client without conversations makes one first. */
export function chooseOperation(scene: Scene): Operation {
  if (scene.own.length === 0) return create(scene);
  let at = scene.random() * ALL;
  for (const [weight, make] of CHOICES) {
    at -= weight;
    if (at < 0) return make(scene);
  }
  return create(scene);
}
