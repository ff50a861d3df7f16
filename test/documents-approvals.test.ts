/** What docs/approvals.md, docs/idempotency.md, docs/workflows.md and docs/workflows/errors.md show is run as it stands. */
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { parse } from "yaml";
import { PENSTOCK, run } from "./support/command-line.ts";
import { block, DOCUMENTS, FLAGSHIP, folder, merge, shell } from "./support/documents.ts";
import { dataOf, type Loose } from "./support/served-upstream.ts";
import { startService } from "./support/service.ts";

test("docs/approvals.md: the commands, one after the other: a refund is asked for, found, approved, and runs once", async (t) => {
  const manifest = merge(parse(FLAGSHIP), parse(block("yaml", "input.amount > 100 }}")));
  const service = await startService(t, manifest, { env: {} });
  const { stdout } = await run("sh", ["-c", block("sh", "curl -si").replaceAll("http://127.0.0.1:3141", service.url)]);
  assert.match(stdout, /^HTTP\/1\.1 409 /);
  const [, id = ""] = /^x-approval-id: (\S+)/im.exec(stdout) ?? [];
  const ask = (holds: string) => shell(block("sh", holds).replaceAll("$APPROVAL", id), service.url);
  const open = await ask("/approvals?status=open");
  assert.deepEqual(
    open.data.map(({ approvalId }: Loose) => approvalId),
    [id],
  );
  assert.equal((await ask("agreed on the phone")).data.status, "approved");
  const again = "x-approval-id: $APPROVAL";
  assert.equal((await ask(again)).data.result.amount, 250);
  assert.match((await ask(again)).error, /has been used/);
});

test("docs/idempotency.md: the command, twice: the refund is made once, and both replies name it", async (t) => {
  const service = await startService(t, FLAGSHIP, { env: {} });
  const command = block("sh", "Idempotency-Key:");
  const [first, second] = [await shell(command, service.url), await shell(command, service.url)];
  assert.equal(first.data.result.amount, 25);
  assert.deepEqual(second, first);
});

test("docs/workflows.md: a step that waits beside a timer is shown, and a resume that names it ends the race", async (t) => {
  const steps = parse(block("yaml", "May it be paid?"));
  const manifest = merge(parse(FLAGSHIP), { workflows: { pay: { purpose: "Pays", steps } } });
  const service = await startService(t, manifest, { env: {} });
  const options = { executionId: "pay-1", background: true };
  assert.equal((await service.post("/workflows/pay/execute", { input: {}, options })).status, 202);
  const path = "/workflows/pay/executions/pay-1";
  const state = () => dataOf(service.get(`${path}/state`));
  let seen = await state();
  while (seen.suspension === undefined || seen.suspension === null) seen = await state();
  assert.deepEqual([seen.status, seen.suspension.stepId], ["running", "ask"]);
  const body = { resumeData: { approved: true }, options: { stepId: "ask" } };
  const ended = await dataOf(service.post(`${path}/resume`, body));
  assert.deepEqual([ended.status, ended.result], ["completed", { approved: true }]);
});

test("docs/workflows.md: the retry that is shown is one that the manifest takes", async (t) => {
  const [, retry = ""] = /`(retry: \{[^`]*maxDelay[^`]*\})`/.exec(DOCUMENTS.get("docs/workflows.md")!) ?? [];
  const steps = [{ id: "a", andThen: { set: { a: 1 } } }];
  const workflow = { purpose: "Tries again", ...parse(retry), steps };
  assert.equal(workflow.retry.attempts, 5);
  const service = await startService(t, merge(parse(FLAGSHIP), { workflows: { again: workflow } }), { env: {} });
  assert.deepEqual((await dataOf(service.post("/workflows/again/execute", { input: {} }))).result, { a: 1 });
});

test("docs/workflows.md: penstock executions: an execution that waits is listed, and ended with the reason that is given", async (t) => {
  const cwd = await folder(t, {});
  const config = join(cwd, "service.yaml");
  const manifest = { ...parse(FLAGSHIP), store: `sqlite:${join(cwd, "desk.db")}` };
  await writeFile(config, JSON.stringify(manifest));
  const service = await startService(t, manifest, { env: {} });
  const options = { executionId: "order-7" };
  await dataOf(service.post("/workflows/refund/execute", { input: { orderId: "A-1002", amount: 250 }, options }));
  await service.stop();
  const [list = "", end = ""] = [...block("console", "executions list").matchAll(/^\$ (.*)$/gm)].map(
    ([, line]) => line!,
  );
  const command = (line: string) => {
    const own = line.replace("npx penstock-gateway", `"${process.execPath}" "${PENSTOCK}"`);
    return run("sh", ["-c", `${own} --config "${config}"`], { cwd });
  };
  assert.match((await command(list)).stdout, /^order-7 .*suspended/m);
  const ended = await command(end);
  assert.equal(ended.code, 0, ended.stderr);
  assert.match(ended.stdout, /order-7: ended with the error "stops the service"/);
  assert.doesNotMatch((await command(list)).stdout, /order-7/);
});

test("docs/workflows/errors.md: the refund that is refused waits for a person, becomes a voucher, and what is nothing bails", async (t) => {
  const manifest = merge(parse(FLAGSHIP), parse(block("yaml", "Pays back, or gives a voucher")));
  const service = await startService(t, manifest, { env: {} });
  const waiting = await shell(block("sh", "/workflows/settle/execute"), service.url);
  const refused = "a refund is at most 1000 EUR";
  assert.deepEqual([waiting.data.status, waiting.data.suspension.reason], ["suspended", refused]);
  const { data } = await shell(block("sh", "settle-1/resume"), service.url);
  assert.deepEqual(data.result, { orderId: "A-1002", how: { voucher: 5000, because: refused } });
  const settle = async (amount: number, orderId = "A-1002") =>
    (await dataOf(service.post("/workflows/settle/execute", { input: { orderId, amount } }))).result;
  assert.deepEqual(await settle(0), { paid: 0 });
  assert.equal((await settle(20)).how.amount, 20);
});
