/** Names that clients choose, given to three real processes over one PostgreSQL at once: one begins, and nothing outside is asked twice. */
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import type { Served } from "../support/command-line.ts";
import { NO_POSTGRES, sharedPostgres } from "../support/postgres.ts";
import { parseEvents } from "../support/service.ts";
import { holdingFolder, twoProcesses } from "../support/two-processes.ts";

const server = await sharedPostgres();
const skip = server === null ? NO_POSTGRES : false;
const { folder } = await holdingFolder();

/** Notes what is asked: a question of the model, or the input of the step. */
const NOTE = `import { appendFileSync } from "node:fs";
const note = (text) => appendFileSync(${JSON.stringify(join(folder, "asked"))}, text + "\\n");`;
const LOOK = `${NOTE}
export default { kind: "step", readOnly: true, execute: async ({ data }) => { note(data); return data; } };`;
const PROVIDER = `${NOTE}
const tokens = { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 };
const usage = { inputTokens: tokens, outputTokens: { total: 1, text: 1, reasoning: 0 } };
export default { kind: "provider", name: "noting", create: () => ({ retries: 0,
  languageModel: (id) => ({ specificationVersion: "v3", provider: "noting", modelId: id, supportedUrls: {},
    doStream: async ({ prompt }) => {
      note(prompt.filter(({ role }) => role === "user").at(-1).content.map(({ text }) => text).join(""));
      const parts = [{ type: "stream-start", warnings: [] }, { type: "text-start", id: "t" }, { type: "text-delta", id: "t", delta: "{}" },
        { type: "text-end", id: "t" }, { type: "finish", finishReason: { unified: "stop", raw: "stop" }, usage }];
      return { stream: new ReadableStream({ pull(controller) {
        const part = parts.shift();
        if (part === undefined) controller.close(); else controller.enqueue(part);
      } }) };
    } }) }) };`;

const { start, one, other } = await twoProcesses(server, folder, {
  plugins: { "steps/look.mjs": LOOK, "providers/noting.mjs": PROVIDER },
  providers: { noting: { use: "noting" } },
  memory: { default: {} },
  agents: { plain: { model: "noting/any" }, durable: { model: "noting/any", durable: true } },
  workflows: { look: { steps: [{ id: "look", andThen: { use: "look" } }] } },
});
const processes = server === null ? [] : [one, other, await start()];
const CALLS = 24;

const asked = (question: string) =>
  (existsSync(join(folder, "asked")) ? readFileSync(join(folder, "asked"), "utf8") : "")
    .split("\n")
    .filter((line) => line === question).length;
const memory = { userId: "ada", conversationId: "c" };

interface Door {
  readonly path: string;
  body(name: string, input: string): object;
  readonly key?: true;
  /** Of the one that begins it, and of those that come too late. */
  readonly statuses: readonly [number, number];
}

const DOORS: Record<string, Door> = {
  "POST /agents/:id/text with options.runId in the background": {
    path: "/agents/plain/text",
    body: (runId, input) => ({ input, options: { runId, background: true, memory } }),
    statuses: [202, 409],
  },
  "POST /agents/:id/text of a durable agent with options.runId": {
    path: "/agents/durable/text",
    body: (runId, input) => ({ input, options: { runId } }),
    statuses: [200, 409],
  },
  "POST /agents/:id/object with options.runId in the background": {
    path: "/agents/plain/object",
    body: (runId, input) => ({ input, schema: { type: "object" }, options: { runId, background: true } }),
    statuses: [202, 409],
  },
  "POST /agents/:id/stream of a durable agent with options.runId": {
    path: "/agents/durable/stream",
    body: (runId, input) => ({ input, options: { runId } }),
    statuses: [200, 409],
  },
  "POST /agents/:id/chat with options.runId and options.resumableStream": {
    path: "/agents/plain/chat",
    body: (runId, input) => ({ input, options: { runId, resumableStream: true, memory } }),
    statuses: [200, 409],
  },
  "POST /agents/:id/stream with an Idempotency-Key": {
    path: "/agents/plain/stream",
    body: (_, input) => ({ input }),
    key: true,
    statuses: [200, 200],
  },
  "POST /agents/:id/text with an Idempotency-Key": {
    path: "/agents/durable/text",
    body: (_, input) => ({ input }),
    key: true,
    statuses: [200, 200],
  },
  "POST /workflows/:id/execute with options.executionId, whose first step is read-only": {
    path: "/workflows/look/execute",
    body: (executionId, input) => ({ input, options: { executionId } }),
    statuses: [200, 409],
  },
  "POST /workflows/:id/stream with options.executionId, whose first step is read-only": {
    path: "/workflows/look/stream",
    body: (executionId, input) => ({ input, options: { executionId } }),
    statuses: [200, 409],
  },
  "POST /workflows/:id/stream with an Idempotency-Key": {
    path: "/workflows/look/stream",
    body: (_, input) => ({ input }),
    key: true,
    statuses: [200, 200],
  },
};

for (const [index, [door, { path, body, key, statuses }]] of Object.entries(DOORS).entries())
  test(`${door}, ${CALLS} times over three processes: one begins it, the model or the step is asked once`, {
    skip,
  }, async () => {
    const [first, late] = statuses;
    for (const round of [1, 2]) {
      const name = `name-${index}-${round}`;
      const replies = await Promise.all(
        Array.from({ length: CALLS }, (_, call) =>
          fetch((processes[call % processes.length] as Served).url + path, {
            method: "POST",
            headers: { "content-type": "application/json", ...(key && { "idempotency-key": name }) },
            body: JSON.stringify(body(name, `question ${name}`)),
          }),
        ),
      );
      const texts = await Promise.all(replies.map((reply) => reply.text()));
      const begun = replies.filter(({ status }) => status === first).length;
      assert.equal(begun, first === late ? CALLS : 1, texts.join("\n"));
      assert.equal(replies.filter(({ status }) => status === late).length, first === late ? CALLS : CALLS - 1);
      if (replies[0]!.headers.get("content-type")?.startsWith("text/event-stream"))
        assert.ok(texts.every((text, each) => replies[each]!.status !== 200 || parseEvents(text).length > 1));
      assert.equal(asked(`question ${name}`), 1, "it was asked again");
    }
  });
