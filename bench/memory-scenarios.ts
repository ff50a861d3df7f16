/** Storage and memory, measured on a SQLite file with `synchronous=FULL`: every save is on disk before its reply. */
import { MARKER } from "./numbers.ts";
import { enveloped, WORDS } from "./replies.ts";
import type { HttpScenario } from "./scenarios.ts";
import { createConversations, fillConversations } from "./seed.ts";

/** As many conversations as there are connections: each is written repeatedly. */
const IN_USE = 64;
/** Far more than a cache of recent conversations contains. */
const MANY = 100_000;
const PAGE = 200;

const USER = `user-${MARKER}`;
const CONVERSATION = `conversation-${MARKER}`;

const message = { role: "user", content: WORDS };
const saving = (messages: object[]) => JSON.stringify({ userId: USER, conversationId: CONVERSATION, messages });

const saved = (count: number) => enveloped((data) => (data.saved === count ? null : `saved is ${String(data.saved)}`));

interface Page {
  messages: { content: string }[];
}

const TEXT: HttpScenario = {
  kind: "http",
  service: "memory",
  name: "text-memory",
  title: "POST /agents/:id/text with memory",
  method: "POST",
  path: "/agents/assistant/text",
  body: JSON.stringify({ input: WORDS, options: { memory: { userId: USER, conversationId: CONVERSATION } } }),
  numbers: { below: IN_USE, pick: "turn" },
  // Windows are full from the first request on.
  prepare: (port, count = IN_USE) => fillConversations(port, count, 12),
  aim: { measure: "requests/s", least: 8_000 },
  check: enveloped((data) => (data.text === WORDS && data.finishReason === "stop" ? null : "another text")),
};

const CREATE: HttpScenario = {
  kind: "http",
  service: "memory",
  name: "create",
  title: "create a conversation",
  method: "POST",
  path: "/api/memory/conversations",
  body: JSON.stringify({ userId: USER, resourceId: "assistant", title: "A talk", metadata: { kind: "bench" } }),
  numbers: { below: MANY, pick: "random" },
  aim: { measure: "requests/s", least: 20_000 },
  check: enveloped((data) =>
    (data.conversation as { title: string }).title === "A talk" ? null : "another conversation",
  ),
};

const SAVE: HttpScenario = {
  kind: "http",
  service: "memory",
  name: "save",
  title: "save one message, 64 conversations in use",
  method: "POST",
  path: "/api/memory/save-messages",
  body: saving([message]),
  numbers: { below: IN_USE, pick: "turn" },
  prepare: (port, count = IN_USE) => createConversations(port, count),
  aim: { measure: "requests/s", least: 30_000 },
  check: saved(1),
};

const SAVE_TWO: HttpScenario = {
  ...SAVE,
  name: "save-two",
  title: "save two messages, 64 conversations in use",
  body: saving([message, { role: "assistant", content: WORDS }]),
  check: saved(2),
};

/** The same on `memory:`. */
const inMemory = (row: HttpScenario, least: number): HttpScenario => ({
  ...row,
  service: "memory-memory",
  name: `${row.name}-memory`,
  title: `${row.title}, in memory`,
  aim: { measure: "requests/s", least },
});

export const MEMORY_SCENARIOS: readonly HttpScenario[] = [
  SAVE,
  SAVE_TWO,
  {
    kind: "http",
    service: "memory",
    name: "save-random",
    title: "save one message, any of 100,000 conversations",
    method: "POST",
    path: "/api/memory/save-messages",
    body: saving([message]),
    numbers: { below: MANY, pick: "random" },
    prepare: (port) => createConversations(port, MANY),
    aim: { measure: "requests/s", least: 15_000 },
    check: saved(1),
  },
  CREATE,
  TEXT,
  inMemory(SAVE_TWO, 11_500),
  inMemory(CREATE, 15_800),
  inMemory(TEXT, 4_350),
  {
    ...TEXT,
    service: "kept",
    name: "text-kept",
    title: "POST /agents/:id/text with memory, a kept run",
    aim: { measure: "requests/s", least: 4_000 },
  },
  {
    ...TEXT,
    name: "text-idempotent",
    title: "POST /agents/:id/text with memory and an Idempotency-Key",
    keyed: true,
    aim: { measure: "requests/s", least: 4_000 },
  },
  {
    kind: "http",
    service: "memory",
    name: "page",
    title: "a page of 200 messages",
    method: "GET",
    path: `/api/memory/conversations/${CONVERSATION}/messages?limit=${PAGE}`,
    body: null,
    numbers: { below: IN_USE, pick: "turn" },
    prepare: (port, count = IN_USE) => fillConversations(port, count, PAGE),
    aim: { measure: "requests/s", least: 8_000 },
    check: enveloped((data) => {
      const { messages } = data as unknown as Page;
      return messages.length === PAGE && messages.every(({ content }) => content === WORDS)
        ? null
        : `${messages.length} messages, not those that were saved`;
    }),
  },
];
