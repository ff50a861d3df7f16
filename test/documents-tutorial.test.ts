/** docs/tutorial.md, followed from its first line to its last in an empty folder. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { DOCUMENTS } from "./support/documents.ts";
import { calls, says, startOpenAIUpstream } from "./support/openai-upstream.ts";
import { follow } from "./support/reader.ts";

test("docs/tutorial.md: every block in order: a project grows a tool, memory, approval, a workflow, a real model, evals and a build, and each answer is as it says", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "penstock-tutorial-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const upstream = await startOpenAIUpstream();
  t.after(() => upstream.close());
  // A model that does what the tutorial asks of one.
  upstream.fallback(({ lastUserText, toolOutputs }) => {
    const [, amount] = /refund (\d+)/.exec(lastUserText) ?? [];
    const [orderId] = /A-\d{4}/.exec(lastUserText) ?? [];
    if (toolOutputs.length > 0 || orderId === undefined) return says("It is on its way.");
    const [name, input] =
      amount === undefined ? ["lookup_order", { orderId }] : ["refund", { orderId, amount: Number(amount) }];
    return calls([{ name: name as string, input }]);
  });
  await follow(t, DOCUMENTS.get("docs/tutorial.md")!, { folder, env: { OPENAI_BASE_URL: upstream.baseURL } });
  const [asked] = upstream.requests;
  assert.equal(asked?.headers.authorization, "Bearer sk-your-key");
  // Once at /text, twice in the evals that are recorded, each with the answer of its tool: none where they are replayed.
  assert.equal(upstream.requests.length, 6);
});
