/** The console at `GET /` for a person who is asked: what waits, what to answer, and what failed. */
import assert from "node:assert/strict";
import { after, before, beforeEach, describe, type TestContext, test } from "node:test";
import type { Browser, Locator, Page } from "playwright-core";
import { ran, serveApprovals } from "../support/approvals.ts";
import { browserMissing, startBrowser } from "../support/browser.ts";
import { assertSound, HOSTILE, navigation, openConsole, visit } from "../support/console.ts";
import { weakTexts } from "../support/contrast.ts";
import type { TestService } from "../support/service.ts";

const MANIFEST = {
  workflows: {
    payout: {
      name: "Payout",
      steps: [{ id: "pay", andThen: { tool: "pay", input: { amount: "{{ input.amount }}" } } }],
    },
    broken: { name: "Broken", steps: [{ id: "read", andThen: { set: "{{ data.missing }}" } }] },
  },
};

describe("approvals in the console at GET /", { skip: browserMissing() }, () => {
  let browser: Browser;
  const endings: (() => unknown)[] = [];
  const file = { after: (end: () => unknown) => void endings.push(end) } as Pick<TestContext, "after">;

  before(async () => {
    browser = await startBrowser(file);
  });
  after(async () => {
    for (const end of endings) await end();
  });
  beforeEach(() => void ran.splice(0));

  /** Asks for a payment by hand. @returns the id of the question */
  async function ask(service: TestService, amount: number, headers = {}): Promise<string> {
    const reply = await service.post("/tools/pay/execute", { input: { amount } }, headers);
    assert.equal(reply.status, 409);
    return reply.headers.get("x-approval-id")!;
  }

  const open = (page: Page): Locator => page.getByRole("region", { name: "Open" }).getByRole("article");
  const decided = (page: Page): Locator => page.getByRole("region", { name: "Decided lately" }).getByRole("article");

  test("approvals: a question is answered with a changed input and a reason, and the call runs with it", async (t) => {
    const service = await serveApprovals(t, MANIFEST);
    const id = await ask(service, 250);
    const opened = await openConsole(browser, service.url);
    const { page, context } = opened;
    await navigation(page).getByRole("link", { name: "Approvals 1" }).click();
    const card = open(page).first();
    await card.getByText("waiting for").waitFor();
    await card.getByText("expires in").waitFor();
    await card.getByText("Change the input").click();
    await card.getByLabel("amount").fill("");
    await card.getByRole("button", { name: "Approve" }).click();
    await card.getByRole("alert").filter({ hasText: "amount" }).waitFor();
    await card.getByLabel("amount").fill("200");
    await card.getByLabel("Reason").fill(`half of it ${HOSTILE}`);
    await card.getByRole("button", { name: "Approve" }).click();
    const answered = decided(page).first();
    await answered.getByText("approved").waitFor();
    await answered.getByText("half of it").waitFor();
    await answered.getByText("200").waitFor();
    await page.getByText("Nothing waits for a person.").waitFor();
    assert.deepEqual(ran, []);
    assert.equal(
      (await service.post("/tools/pay/execute", { input: { amount: 250 } }, { "x-approval-id": id })).status,
      200,
    );
    assert.deepEqual(ran, [200]);
    await answered.getByText("has run").waitFor();
    await assertSound({ ...opened, complaints: opened.complaints.filter((text) => !text.includes("status of 400")) });
    await context.close();
  });

  test("approvals: what comes while the page is open appears, and leaves alone what is being typed", async (t) => {
    const service = await serveApprovals(t, MANIFEST);
    await ask(service, 10);
    const { page, context } = await openConsole(browser, `${service.url}/#/approvals`);
    const reason = open(page).first().getByLabel("Reason");
    await reason.fill("not yet deci");
    await ask(service, 20);
    await open(page).nth(1).waitFor();
    assert.deepEqual(await open(page).locator("dd").allTextContents(), ["20", "10"], "newest first");
    await page.keyboard.type("ded");
    assert.equal(await open(page).nth(1).getByLabel("Reason").inputValue(), "not yet decided");
    await navigation(page).getByRole("link", { name: "Approvals 2" }).waitFor();
    await open(page).nth(1).getByRole("button", { name: "Refuse" }).click();
    const refused = decided(page).first();
    await refused.getByText("denied").waitFor();
    await refused.getByText("not yet decided").waitFor();
    assert.deepEqual(await open(page).locator("dd").allTextContents(), ["20"]);
    await context.close();
  });

  test("approvals: a question of a workflow leads to its execution, which its yes continues", async (t) => {
    const service = await serveApprovals(t, MANIFEST);
    await service.post("/workflows/payout/execute", { input: { amount: 30 }, options: { executionId: "first" } });
    const { page, context } = await openConsole(browser, `${service.url}/#/approvals`);
    await open(page).getByRole("button", { name: "Approve" }).click();
    await decided(page).getByRole("link", { name: "payout" }).click();
    await page.getByRole("region", { name: "Result" }).getByText('"paid": 30').waitFor();
    assert.deepEqual(ran, [30]);
    await context.close();
  });

  test("the overview of the console shows what waits, what failed, and the requests of the last hour", async (t) => {
    const service = await serveApprovals(t, MANIFEST);
    const { page, context } = await openConsole(browser, service.url);
    const requests = page.getByRole("img", { name: /^Requests in each minute/ });
    await requests.waitFor();
    assert.equal(await requests.locator("rect").count(), 0, "nobody has asked for anything");
    await ask(service, 40);
    await service.post("/workflows/broken/execute", { input: {} });
    await service.post("/agents/assistant/text", { input: "Hello" });
    const waits = page.getByRole("region", { name: "Waits for a person" });
    await waits.getByRole("link", { name: "Approve pay" }).waitFor();
    const failed = page.getByRole("region", { name: "Failed in the last day" });
    await failed.getByText("missing").waitFor();
    await page.getByText("3, 1 failed").waitFor();
    assert.ok(
      (await page
        .getByRole("img", { name: /^Tokens in each minute/ })
        .locator("rect")
        .count()) > 0,
    );
    await failed.getByRole("link", { name: "Broken" }).click();
    await page.getByRole("heading", { name: "Execution of Broken" }).waitFor();
    await context.close();
  });

  test("approvals: the view is legible in the dark and fits a narrow screen, with a question and an answer", async (t) => {
    const service = await serveApprovals(t, MANIFEST);
    await service.post(`/approvals/${await ask(service, 1)}`, { approved: false, reason: "no" });
    await ask(service, 2);
    for (const colorScheme of ["light", "dark"] as const) {
      const viewport = { width: 390, height: 800 };
      const { page, context } = await openConsole(browser, service.url, { colorScheme, viewport });
      await visit(page, "Approvals");
      await decided(page).first().waitFor();
      await open(page).first().getByText("Change the input").click();
      const { texts, weak } = await weakTexts(page);
      assert.ok(texts > 15);
      assert.deepEqual(weak, []);
      assert.equal(await page.evaluate("document.documentElement.scrollWidth"), 390);
      await context.close();
    }
  });
});
