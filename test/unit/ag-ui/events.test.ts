/** `POST /agents/:id/ag-ui`: parts of a run as events, and messages of the client as an answer, without a service. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { RunEvents } from "../../../core/ag-ui/events.ts";
import { readMessages } from "../../../core/ag-ui/messages.ts";
import { threadMessages } from "../../../core/ag-ui/thread-messages.ts";
import type { AgentPart } from "../../../core/agents/run/parts.ts";
import { validators } from "../../../generated/all-validators.js";
import { type Random, randomOf } from "../../fuzz/random.ts";

// biome-ignore lint/suspicious/noExplicitAny: tests look into events as they need
type Loose = any;

const RUN = { threadId: "t1", runId: "r1", messageId: "msg_1" };
const USAGE = { promptTokens: 1, completionTokens: 2, totalTokens: 3, cachedInputTokens: 0, reasoningTokens: 0 };
const FINISH = { type: "finish", finishReason: "stop", totalUsage: USAGE } as const;

function eventsOf(parts: readonly AgentPart[], isCurrent = true): Loose[] {
  const run = new RunEvents({ ...RUN, isCurrent });
  const last = parts.at(-1);
  if (last?.type !== "finish") return parts.flatMap((part) => run.of(part));
  return [...parts.slice(0, -1).flatMap((part) => run.of(part)), ...run.finish(last, [])];
}

/** What the official clients refuse: something that begins twice, goes on without a beginning, or is left open at the end. */
function refusals(events: readonly Loose[]): string[] {
  const open = new Map<string, string | undefined>();
  const found: string[] = [];
  const used = new Set<string>();
  for (const [index, event] of events.entries()) {
    const { type, subagentRunId } = event;
    const id = event.messageId ?? event.toolCallId ?? event.stepName ?? subagentRunId;
    const family = /^(TEXT_MESSAGE|REASONING_MESSAGE|REASONING|TOOL_CALL|STEP|SUBAGENT)_(\w+)$/.exec(type);
    if (index === 0 && type !== "RUN_STARTED") found.push(`begins with ${type}`);
    if (!validators.AgUiEvent!(event)) found.push(`${type} does not fit its schema`);
    if (type === "RUN_FINISHED" && open.size > 0) found.push(`ends with ${[...open.keys()]} open`);
    if (family === null || family[2] === "RESULT" || family[2] === "ENCRYPTED_VALUE") continue;
    const key = `${family[1]} ${family[1] === "STEP" ? `${subagentRunId} ` : ""}${id}`;
    if (family[2] === "START" || family[2] === "STARTED") {
      if (open.has(key)) found.push(`${key} begins twice`);
      if (family[1] === "SUBAGENT" && used.has(key)) found.push(`${key} is used twice`);
      used.add(key);
      open.set(key, subagentRunId);
    } else if (!open.has(key)) found.push(`${type} of ${key}, which is not open`);
    else if (open.get(key) !== subagentRunId) found.push(`${key} has two owners`);
    if (/^(END|FINISHED|ERROR)$/.test(family[2]!)) open.delete(key);
  }
  return found;
}

const sub = (callId: string | null) =>
  callId === null ? {} : { subAgentId: "s", subAgentName: "S", subAgentCallId: callId };

/** Parts by chance: many that no model would give in this order. */
function chanceParts(random: Random): AgentPart[] {
  const parts: Loose[] = [{ type: "start" }];
  const owners = [null, "d1", "d1:d2", "d3"];
  const prefix = (owner: string | null, id: string) => (owner === null ? id : `${owner}:${id}`);
  for (let count = random.below(60); count > 0; count--) {
    const owner = random.pick(owners);
    const id = prefix(owner, random.pick(["1", "2"]));
    const call = prefix(owner, random.pick(["c1", "c2", "d1", "d2", "d3"]));
    const metadata = random.chance(0.3) ? { providerMetadata: { up: { signature: "x" } } } : {};
    const kind = random.pick(["text", "reasoning"]);
    const part = random.pick<Loose>([
      { type: "start-step" },
      { type: "finish-step", usage: USAGE, finishReason: "stop" },
      { type: `${kind}-start`, id },
      { type: `${kind}-delta`, id, delta: random.pick(["", "word"]) },
      { type: `${kind}-end`, id, ...metadata },
      { type: "tool-input-start", id: call, toolName: "sum" },
      { type: "tool-input-delta", id: call, delta: random.pick(["", "{}"]) },
      { type: "tool-input-end", id: call },
      { type: "tool-call", toolCallId: call, toolName: "sum", input: {}, ...metadata },
      { type: "tool-result", toolCallId: call, toolName: "sum", input: {}, output: { n: 1 } },
      { type: "tool-error", toolCallId: call, toolName: "sum", input: {}, error: "no" },
      { type: "file", file: { base64: "", mediaType: "image/png" } },
      { type: "raw", rawValue: 1 },
    ]);
    parts.push({ ...part, ...sub(owner) });
  }
  parts.push(random.chance(0.5) ? FINISH : { type: "abort" });
  return parts;
}

test("events of AG-UI: whatever the order of the parts, no client refuses the events", () => {
  for (let seed = 1; seed <= 2000; seed++) {
    const random = randomOf(seed);
    const parts = chanceParts(random);
    assert.deepEqual(refusals(eventsOf(parts, random.chance(0.7))), [], `seed ${seed}`);
  }
});

test("events of AG-UI: what the provider wants back goes out with thoughts, texts and calls, and comes back with them", () => {
  const signed = (signature: string) => ({ providerMetadata: { up: { signature } } });
  const events = eventsOf([
    { type: "start" },
    { type: "start-step" },
    { type: "reasoning-delta", id: "1", delta: "Hm." },
    { type: "reasoning-end", id: "1", ...signed("r") },
    { type: "reasoning-end", id: "2", ...signed("hidden") },
    { type: "text-delta", id: "1", delta: "Look:" },
    { type: "text-end", id: "1", ...signed("t") },
    { type: "tool-call", toolCallId: "c1", toolName: "sum", input: { a: 1 }, ...signed("c") },
    FINISH,
  ]);
  const carried = events.filter(({ type }) => type === "REASONING_ENCRYPTED_VALUE");
  const values = new Map<string, string>(carried.map(({ entityId, encryptedValue }) => [entityId, encryptedValue]));
  const thoughts = events.filter(({ type }) => type === "REASONING_START").map(({ messageId }) => messageId);
  assert.equal(values.size, 4);
  const messages = readMessages([
    { id: "u1", role: "user", content: "Hi" },
    { id: thoughts[0], role: "reasoning", content: "Hm.", encryptedValue: values.get(thoughts[0]) },
    { id: thoughts[1], role: "reasoning", content: "", encryptedValue: values.get(thoughts[1]) },
    {
      id: "msg_1",
      role: "assistant",
      content: "Look:",
      encryptedValue: values.get("msg_1"),
      toolCalls: [{ id: "c1", function: { name: "sum", arguments: '{"a":1}' }, encryptedValue: values.get("c1") }],
    },
    { id: "x", role: "tool", toolCallId: "c1", content: '{"sum":1}' },
  ]);
  assert.deepEqual(messages[1], {
    id: "msg_1",
    role: "assistant",
    parts: [
      { type: "step-start" },
      { type: "reasoning", text: "Hm.", ...signed("r") },
      { type: "reasoning", text: "", ...signed("hidden") },
      { type: "text", text: "Look:", ...signed("t") },
      {
        type: "tool-sum",
        toolCallId: "c1",
        state: "output-available",
        input: { a: 1 },
        output: { sum: 1 },
        callProviderMetadata: { up: { signature: "c" } },
      },
    ],
  });
});

test("events of AG-UI: an answer that is sent as a snapshot of messages comes back as it was stored", () => {
  const parts: Loose[] = [
    { type: "step-start" },
    { type: "reasoning", text: "Hm." },
    { type: "text", text: "Look:" },
    { type: "tool-sum", toolCallId: "c1", state: "output-available", input: { a: 1 }, output: { sum: 1 } },
    { type: "tool-sum", toolCallId: "c2", state: "output-available", input: {}, output: "no" },
    { type: "step-start" },
    { type: "text", text: "One." },
  ];
  const image = { type: "file", mediaType: "image/png", url: "data:image/png;base64,iVBORw0KGgo=" };
  const user = { id: "u1", role: "user", parts: [{ type: "text", text: "Sum" }, image], metadata: {}, createdAt: "" };
  const stored = [user, { id: "a1", role: "assistant", parts, metadata: {}, createdAt: "" }] as Loose;
  const { messages, waiting } = threadMessages(stored);
  assert.deepEqual(waiting, []);
  assert.deepEqual(readMessages(messages), [
    { id: "u1", role: "user", parts: user.parts },
    { id: "a1", role: "assistant", parts },
  ]);
});

test("events of AG-UI: what a sub-agent has said is not posted to the model again", () => {
  const messages = readMessages([
    { id: "u1", role: "user", content: "Hi" },
    { id: "a1", role: "assistant", toolCalls: [{ id: "d1", function: { name: "delegate_task", arguments: "{}" } }] },
    {
      id: "s1",
      role: "assistant",
      subagentRunId: "d1",
      toolCalls: [{ id: "d1:c1", function: { name: "sum", arguments: "{}" } }],
    },
    { id: "s2", role: "tool", toolCallId: "d1:c1", content: "3" },
    { id: "s3", role: "tool", toolCallId: "d1", content: "Three." },
    { id: "a2", role: "assistant", content: "It is three." },
  ]);
  assert.deepEqual(
    messages[1]!.parts.map(({ type, state }) => [type, state]),
    [
      ["step-start", undefined],
      ["tool-delegate_task", "output-available"],
      ["step-start", undefined],
      ["text", undefined],
    ],
  );
});
