/** What the service under test has, and what clients have called things: few names, so that requests meet what others have made. */
import { CONSOLE_KEY } from "../support/access-credentials.ts";
import { token } from "../support/tokens.ts";
import type { Random } from "./random.ts";

const numbered = (letter: string, count: number) => Array.from({ length: count }, (_, index) => `${letter}${index}`);

const USERS = ["ada", "grace"] as const;

export const NAMES: Readonly<Record<string, readonly string[]>> = {
  agentId: ["support", "writer"],
  workflowId: ["refund", "complaint"],
  serverId: ["main"],
  toolName: ["lookup_order", "delivery_days", "refund", "agent_support", "workflow_refund", "workflow_refund_resume"],
  conversationId: numbered("c", 8),
  newConversationId: numbered("c", 12),
  executionId: numbered("e", 40),
  stepId: ["order", "gate", "ask", "decision", "pay", "audit", "prepare", "money"],
  userId: USERS,
  resourceId: ["support", "desk"],
  messageId: numbered("m", 20),
  taskId: numbered("t", 8),
  orderId: ["A-1001", "A-1002", "A-9999"],
  asset: ["swagger-ui.css", "console.css", "main.js", "index.js"],
  city: ["Lisbon", "Paris"],
  packageName: ["penstock", "@scope%2Fname"],
  traceId: ["0123456789abcdef0123456789abcdef"],
  spanId: ["0123456789abcdef"],
};

/** What a parameter called `id` or `name` means below the first segment of a path. */
const OWNERS: Readonly<Record<string, string>> = {
  agents: "agentId",
  workflows: "workflowId",
  tools: "toolName",
  a2a: "agentId",
  ".well-known": "agentId",
};

export function parameter(random: Random, path: string, name: string): string {
  const known = NAMES[name] ?? NAMES[OWNERS[path.split("/")[1]!] ?? ""];
  return known === undefined ? "x" : random.pick(known);
}

/** Inputs of tools and workflows, and texts that the scripted model has rules for. */
export const INPUTS: readonly unknown[] = [
  { orderId: "A-1001", amount: 20 },
  { orderId: "A-1002", amount: 500 },
  { customer: "Ada", orderId: "A-1001", amount: 300 },
  { city: "Lisbon" },
  { approved: true },
  "Where is order A-1002?",
  "Do you deliver to Lisbon?",
  "I have a complaint",
  "Hello",
  "Are you busy?",
  [{ role: "user", parts: [{ type: "text", text: "Where is order A-1001?" }] }],
  [
    { role: "user", content: "Hello" },
    { role: "assistant", content: [{ type: "text", text: "Yes?" }] },
    { role: "user", content: [{ type: "text", text: "A letter, please" }] },
  ],
];

const TOKENS = USERS.map((sub) => token({ sub }));
const EXPIRED = token({ sub: "ada", exp: 1 });

/** Headers that let a request in everywhere, mostly; some that do not. */
export function credentials(random: Random): string[] {
  const user = `authorization: Bearer ${random.pick(TOKENS)}`;
  const key = `x-console-access-key: ${CONSOLE_KEY}`;
  return random.weighted<string[]>([
    [80, [user, key]],
    [4, ["x-service-dev: true"]],
    [3, [user]],
    [3, [key]],
    [2, []],
    [2, [`authorization: Bearer ${EXPIRED}`, key]],
    [2, [user.slice(0, user.length - random.below(40)), key]],
    [2, [user, user, `${key}x`]],
    [2, [`authorization: ${random.pick(["Bearer", "Basic YTpi", "bearer  x", "Bearer a.b.c", ","])}`]],
  ]);
}
