/** docs/recipes.md, docs/runbook.md and docs/coming-from.md, followed from begin to end in a project that `init` makes. */
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { parse, stringify } from "yaml";
import { PENSTOCK, penstock, ROOT, serve } from "./support/command-line.ts";
import { DOCUMENTS, merge } from "./support/documents.ts";
import { startOpenAIUpstream } from "./support/openai-upstream.ts";
import { follow } from "./support/reader.ts";

/** What the runbook finds: an execution that has ended, and two that wait. */
const REFUND = `
workflows:
  refund:
    name: Refund
    steps:
      - { id: order, andThen: { tool: lookup_order, input: { orderId: A-1002 } } }
      - { id: gate, andWhen: { if: "input.amount > 100", then: { id: ask, andThen: { suspend: { reason: Large } } } } }
      - { id: pay, andThen: { set: { paid: "{{ input.amount }}" } } }
`;

async function project(t: TestContext, added = "{}"): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), "penstock-recipes-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const { code, stderr } = await penstock(["init"], { cwd: folder });
  assert.equal(code, 0, stderr);
  const manifest = join(folder, "service.yaml");
  writeFileSync(manifest, stringify(merge(parse(readFileSync(manifest, "utf8")), parse(added))));
  return folder;
}

test("docs/recipes.md: every recipe, one after the other in a project of init: check accepts each, and each answer is as it says", async (t) => {
  // A shop with seven of everything, and a provider that is down.
  const shop = createServer((request, response) => {
    const isStock = request.url?.startsWith("/stock/") === true;
    response.writeHead(isStock ? 200 : 503, { "content-type": "application/json" });
    response.end(isStock ? '{"count":7}' : '{"error":{"message":"away"}}');
  });
  await new Promise<void>((resolve) => shop.listen(0, "127.0.0.1", resolve));
  t.after(() => shop.close());
  const url = `http://127.0.0.1:${(shop.address() as AddressInfo).port}`;
  const upstream = await startOpenAIUpstream();
  t.after(() => upstream.close());
  const env = { SHOP_URL: url, MAIN_URL: url, SPARE_URL: upstream.baseURL };
  await follow(t, DOCUMENTS.get("docs/recipes.md")!, { folder: await project(t), env });
});

test("docs/runbook.md: every command, in the order of the page, beside a service that it finds ready", async (t) => {
  const folder = await project(t, REFUND);
  const before = await serve(t, [process.execPath, PENSTOCK, "serve", "--port", "0"], { cwd: folder });
  for (const [executionId, amount] of Object.entries({ desk: 10, slow: 200, stuck: 300 })) {
    const response = await fetch(`${before.url}/workflows/refund/execute`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ input: { amount }, options: { executionId } }),
    });
    assert.equal(response.status, 200, await response.text());
  }
  await before.interrupt("SIGTERM");
  await follow(t, DOCUMENTS.get("docs/runbook.md")!, { folder });
});

test("docs/runbook.md says what to do for each alert of docs/deploy/alerts.yaml, and each alert names its section", () => {
  const runbook = DOCUMENTS.get("docs/runbook.md")!;
  const { groups } = parse(readFileSync(join(ROOT, "docs/deploy/alerts.yaml"), "utf8"));
  const { rules } = groups[0];
  assert.ok(rules.length > 5);
  for (const { alert, annotations } of rules) {
    assert.ok(runbook.includes(`### ${alert}\n`), alert);
    assert.equal(annotations.runbook, `docs/runbook.md#${alert.toLowerCase()}`);
  }
});

test("docs/coming-from.md: what stands in the place of a program is a manifest that check accepts", async (t) => {
  await follow(t, DOCUMENTS.get("docs/coming-from.md")!, { folder: await project(t) });
});
