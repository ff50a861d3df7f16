/** The commands and the manifests of docs/protocols/ag-ui.md, run as they stand. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { parse } from "yaml";
import { run } from "./support/command-line.ts";
import { block, FLAGSHIP, merge, shell } from "./support/documents.ts";
import type { Loose } from "./support/served-upstream.ts";
import { startService } from "./support/service.ts";

/** The events that a command gets. */
async function eventsOf(command: string, url: string): Promise<Loose[]> {
  const { code, stdout, stderr } = await run("sh", ["-c", command.replaceAll("http://127.0.0.1:3141", url)]);
  assert.equal(code, 0, stderr);
  return [...stdout.matchAll(/^data: (.*)$/gm)].map(([, data]) => JSON.parse(data!));
}

const textOf = (events: readonly Loose[]): string =>
  events.flatMap(({ type, delta }) => (type === "TEXT_MESSAGE_CONTENT" ? [delta] : [])).join("");

test("docs/protocols/ag-ui.md: the commands: an order is looked up, and the agent says what it can do", async (t) => {
  const service = await startService(t, FLAGSHIP, { env: {} });
  const events = await eventsOf(block("sh", '"runId": "run-1"'), service.url);
  assert.match(textOf(events), /Order A-1002/);
  assert.deepEqual(events.at(-1).outcome, { type: "success" });
  const { identity } = await shell(block("sh", "curl -s http://127.0.0.1:3141/agents/support/ag-ui"), service.url);
  assert.equal(identity.name, "Support");
});

test("docs/protocols/ag-ui.md: the interrupt, written into service.yaml, is asked, and the command answers it", async (t) => {
  const manifest = merge(parse(FLAGSHIP), parse(block("yaml", "lookup_order: { use: lookup-order, approval: true")));
  const service = await startService(t, manifest, { env: {} });
  const asked = await eventsOf(block("sh", '"runId": "run-1"'), service.url);
  const [{ id, toolCallId }] = asked.at(-1).outcome.interrupts;
  const { parentMessageId } = asked.find(({ type }) => type === "TOOL_CALL_START");
  const command = block("sh", "$INTERRUPT")
    .replaceAll("'$MESSAGE'", parentMessageId)
    .replaceAll("'$CALL'", toolCallId)
    .replaceAll("'$INTERRUPT'", id);
  const events = await eventsOf(command, service.url);
  assert.match(textOf(events), /Order A-1002/);
  assert.deepEqual(events.at(-1).outcome, { type: "success" });
});

test("docs/protocols/ag-ui.md: the state, written into service.yaml, is kept for the agent and its client", async (t) => {
  const manifest = merge(parse(FLAGSHIP), parse(block("yaml", "scope: conversation, schema")));
  const service = await startService(t, manifest, { env: {} });
  const body = { threadId: "t-1", runId: "r-1", state: { city: "Rome" }, messages: [] as Loose[] };
  body.messages.push({ id: "u-1", role: "user", content: "hello" });
  await (await service.post("/agents/support/ag-ui", body)).text();
  const text = await (await service.post("/agents/support/ag-ui", { ...body, messages: [], state: {} })).text();
  assert.match(text, /"snapshot":\{"city":"Rome"\}/);
});
