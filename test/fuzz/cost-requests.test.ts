/** The search for requests that cost more than their size: the whole way of every request, in the process. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { LONG, spread } from "../support/at-length.ts";
import { inject } from "../support/inject.ts";
import { startService } from "../support/service.ts";
import { findExcess, SIZES } from "./cost-meter.ts";
import { type Asked, askable, MANIFEST } from "./cost-service.ts";

/** Bytes of a query, which is part of the head, and of a message on a socket. */
const SHORT = { query: [1_000, 4_000, 15_000], message: [1_000, 4_000, 16_000, 60_000] };
/** Each operation is asked so many of the forms that its schema gives: there are thousands, and `cost.test.ts` checks more of them. */
const MOST_FORMS = LONG ? 40 : 10;

const CONVERSATION = { userId: "ada", conversationId: "main", agentId: "assistant" };
const EXECUTION = { input: "a", options: { executionId: "x" } };

type Ends = Parameters<typeof startService>[0];

/** With a service of its own for each of them: what the others have left behind is none of its cost. */
async function ask(ends: Ends): Promise<Asked[]> {
  const service = await startService(ends, MANIFEST, { env: {} });
  await inject(service.dispatch, { path: "/api/memory/conversations", body: CONVERSATION });
  await inject(service.dispatch, { path: "/workflows/anything/execute", body: EXECUTION });
  return askable(service);
}

const asked = await ask({ after });

function sizesOf({ title }: Asked): readonly number[] {
  if (title.endsWith("?")) return SHORT.query;
  return title.startsWith("WS") ? SHORT.message : SIZES;
}

test("the search for costly requests finds what may be asked over HTTP, A2A, MCP and WebSockets", () => {
  for (const start of ["GET /", "POST /api", "POST /a2a", "POST /mcp", "WS /"])
    assert.ok(
      asked.some(({ title }) => title.startsWith(start)),
      start,
    );
});

for (const [index, { title }] of asked.entries()) {
  test(`${title}: what it costs the service does not grow faster than its size`, async (t) => {
    const each = (await ask(t))[index]!;
    assert.equal(each.title, title);
    const found: string[] = [];
    for (const { title, text } of spread([...each.growths()], MOST_FORMS)) {
      const look = () =>
        findExcess((size) => {
          const sent = text(size);
          return { bytes: Buffer.byteLength(sent), work: () => each.send(sent) };
        }, sizesOf(each));
      // What grows so does it each time; what else the process does takes time once.
      const excess = (await look()) && (await look()) && (await look());
      if (excess !== null) found.push(`${title}: ${JSON.stringify(excess)}`);
    }
    assert.deepEqual(found, []);
  });
}
