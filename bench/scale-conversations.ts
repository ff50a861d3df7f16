/** The requests for a file with very many conversations (scale-build.ts). */
import { MARKER, type Numbers } from "./numbers.ts";
import { enveloped, WORDS } from "./replies.ts";
import { EACH_READER, MESSAGES, population } from "./scale-build.ts";
import type { HttpScenario } from "./scenarios.ts";

/** Requests that read come first, and those that write last, because the others would read what they add. */
export function conversationScenarios(conversations: number): HttpScenario[] {
  const { single, readers } = population(conversations);
  const owned: Numbers = { below: single, pick: "random" };
  const [userId, conversationId] = [`user-${MARKER}`, `conversation-${MARKER}`];
  const base = { kind: "http", service: "memory", aim: { measure: "requests/s" } } as const;
  const post = { ...base, method: "POST", numbers: owned } as const;
  const get = { ...base, method: "GET", body: null } as const;
  const memory = { userId, conversationId, options: { contextLimit: MESSAGES } };
  return [
    {
      ...get,
      name: "list",
      title: `list ${EACH_READER} conversations of a user`,
      path: `/api/memory/conversations?userId=reader-${MARKER}&limit=${EACH_READER}`,
      numbers: { below: readers, pick: "random" },
      check: enveloped((data) => {
        const { length } = data.conversations as unknown[];
        return length === EACH_READER && data.total === EACH_READER ? null : `${length} conversations`;
      }),
    },
    {
      ...get,
      name: "messages",
      title: "get messages, limit 50",
      path: `/api/memory/conversations/${conversationId}/messages?limit=50`,
      numbers: owned,
      check: enveloped((data) => ((data.messages as unknown[]).length >= MESSAGES ? null : "too few messages")),
    },
    {
      ...post,
      name: "save",
      title: "save one message",
      path: "/api/memory/save-messages",
      body: JSON.stringify({ userId, conversationId, messages: [{ role: "user", content: WORDS }] }),
      check: enveloped((data) => (data.saved === 1 ? null : `saved is ${String(data.saved)}`)),
    },
    {
      ...post,
      name: "text",
      title: "POST /agents/:id/text with memory",
      path: "/agents/assistant/text",
      body: JSON.stringify({ input: WORDS, options: { memory } }),
      check: enveloped((data) => (data.text === WORDS ? null : "another text")),
    },
  ];
}
