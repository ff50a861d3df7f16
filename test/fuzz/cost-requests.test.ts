/** The search for requests that cost more than their size: the whole way of every request, in the process. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { inject } from "../../core/transport/inject.ts";
import { startService, type TestService } from "../support/service.ts";
import { findExcess, LONG, SIZES } from "./cost-meter.ts";
import { type Asked, askable, MANIFEST } from "./cost-service.ts";

/** Bytes of a query, which is part of the head, and of a message on a socket. */
const SHORT = { query: [1_000, 4_000, 15_000], message: [1_000, 4_000, 16_000, 60_000] };
/** In the normal run each operation is asked so many of the forms that its schema gives, spread over all of them. */
const MOST_FORMS = LONG ? Number.POSITIVE_INFINITY : 24;

const CONVERSATION = { userId: "ada", conversationId: "main", agentId: "assistant" };

const ends: (() => Promise<void>)[] = [];
let service: TestService;
let asked: Asked[] = [];

before(async () => {
  service = await startService({ after: (end) => void ends.push(end) }, MANIFEST, { env: {} });
  const execution = { input: "a", options: { executionId: "x" } };
  await inject(service.dispatch, { path: "/workflows/anything/execute", body: execution });
  asked = await askable(service);
});
after(async () => {
  for (const end of ends) await end();
});

function sizesOf({ title }: Asked): readonly number[] {
  if (title.endsWith("?")) return SHORT.query;
  return title.startsWith("WS") ? SHORT.message : SIZES;
}

/** Some of them, the first and the last among these. */
function spread<T>(all: readonly T[], most: number): T[] {
  const step = Math.max(1, all.length / most);
  return Array.from({ length: Math.min(all.length, most) }, (_, index) => all[Math.floor(index * step)]!);
}

describe("every request: what it costs the service does not grow faster than its size", () => {
  test("over HTTP, A2A, MCP and WebSockets", async (t) => {
    assert.ok(asked.length > 30, `${asked.length} operations`);
    for (const each of asked) {
      await t.test(each.title, async () => {
        // One of those before has perhaps deleted it.
        await inject(service.dispatch, { path: "/api/memory/conversations", body: CONVERSATION });
        const found: string[] = [];
        for (const { title, text } of spread([...each.growths()], MOST_FORMS)) {
          const excess = await findExcess((size) => {
            const sent = text(size);
            return { bytes: Buffer.byteLength(sent), work: () => each.send(sent) };
          }, sizesOf(each));
          if (excess !== null) found.push(`${title}: ${JSON.stringify(excess)}`);
        }
        assert.deepEqual(found, []);
      });
    }
  });
});
