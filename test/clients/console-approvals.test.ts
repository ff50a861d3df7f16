/** The console at `GET /` for a person who is asked: what waits, what to answer, and what failed. */
import assert from "node:assert/strict";
import { after, before, beforeEach, describe, type TestContext, test } from "node:test";
import type { Browser, Locator, Page } from "playwright-core";
import { ran, serveApprovals } from "../support/approvals.ts";
import { browserMissing, openPage, startBrowser } from "../support/browser.ts";
import { assertSound, HOSTILE, navigation, openConsole, visit } from "../support/console.ts";
import { weakTexts } from "../support/contrast.ts";
import type { TestService } from "../support/service.ts";

const MANIFEST = {
  workflows: {
    payout: {
      name: "Payout",
      steps: [{ id: "pay", andThen: { tool: "pay", input: { amount: "{{ input.amount }}" } } }],
    },
    refund: {
      name: "Refund",
      resume: { type: "object", properties: { approved: { type: "boolean" } }, required: ["approved"] },
      steps: [
        { id: "ask", andThen: { suspend: { reason: "Please look" } } },
        { id: "pay", andThen: { set: { paid: "{{ steps.ask.approved }}" } } },
      ],
    },
    moving: {
      name: "Moving",
      resume: { type: "object", properties: { street: { type: "string" } }, required: ["street"] },
      steps: [{ id: "ask", andThen: { suspend: {} } }],
    },
    broken: { name: "Broken", steps: [{ id: "read", andThen: { set: "{{ data.missing }}" } }] },
  },
};

describe("the inbox and the overview of the console at GET /", { skip: browserMissing() }, () => {
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

  /** What waits, and the question that is shown. */
  const waiting = (page: Page): Locator => page.getByRole("region", { name: "All that waits" }).getByRole("listitem");
  const open = (page: Page): Locator => page.locator("#inbox-detail").getByRole("article");
  const said = (page: Page, text: string) =>
    page.getByRole("region", { name: "All that waits" }).getByText(text).waitFor();
  const decided = (page: Page): Locator => page.getByRole("region", { name: "Decided lately" }).getByRole("article");

  test("the inbox: a question is answered with a changed input and a reason, and the call runs with it", async (t) => {
    const service = await serveApprovals(t, MANIFEST);
    const id = await ask(service, 250);
    const opened = await openConsole(browser, service.url);
    const { page, context } = opened;
    await navigation(page).getByRole("link", { name: "Inbox 1 open" }).click();
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

  test("the inbox: what comes while the page is open appears, and leaves alone what is being typed", async (t) => {
    const service = await serveApprovals(t, MANIFEST);
    await ask(service, 10);
    const { page, context } = await openConsole(browser, `${service.url}/#/inbox`);
    const reason = open(page).first().getByLabel("Reason");
    await reason.fill("not yet deci");
    await ask(service, 20);
    await waiting(page).nth(1).waitFor();
    assert.deepEqual(
      await waiting(page).locator(".what").allTextContents(),
      ["amount 10", "amount 20"],
      "the oldest first",
    );
    await page.keyboard.type("ded");
    assert.equal(await reason.inputValue(), "not yet decided");
    await navigation(page).getByRole("link", { name: "Inbox 2 open" }).waitFor();
    await open(page).getByRole("button", { name: "Refuse" }).click();
    const refused = decided(page).first();
    await refused.getByText("denied").waitFor();
    await refused.getByText("not yet decided").waitFor();
    await open(page).locator("dd").getByText("20").waitFor();
    assert.equal(await waiting(page).count(), 1);
    await context.close();
  });

  test("the inbox: a question of a workflow leads to its execution, which its yes continues", async (t) => {
    const service = await serveApprovals(t, MANIFEST);
    await service.post("/workflows/payout/execute", { input: { amount: 30 }, options: { executionId: "first" } });
    const { page, context } = await openConsole(browser, `${service.url}/#/inbox`);
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

  describe("with 258 that wait, by steps and by tools", () => {
    let service: TestService;

    before(async () => {
      service = await serveApprovals(file, MANIFEST);
      for (let order = 0; order < 128; order++)
        await service.post("/workflows/refund/execute", {
          input: { order: `A-${order}` },
          options: { executionId: `refund-${order}`, userId: order === 127 ? "grace" : "ada" },
        });
      await service.post("/workflows/moving/execute", { input: {}, options: { executionId: "moves" } });
      for (let amount = 1; amount <= 129; amount++) await ask(service, amount);
    });

    test("the first view of the console takes at most 20 requests and 100 KB on the wire", async () => {
      const { page, context } = await openPage(browser);
      const network = await context.newCDPSession(page);
      const addresses = new Map<string, string>();
      /** Bytes by address: what is asked again and again counts once, whatever moment it asks from. */
      const bytes = new Map<string, number>();
      network.on("Network.requestWillBeSent", ({ requestId, request }) =>
        addresses.set(requestId, request.url.replace(/from=[^&]*/, "")),
      );
      network.on("Network.loadingFinished", ({ requestId, encodedDataLength }) => {
        const address = addresses.get(requestId)!;
        if (!bytes.has(address)) bytes.set(address, encodedDataLength);
      });
      await network.send("Network.enable");
      await page.goto(service.url);
      await page.getByRole("link", { name: "More than 137 questions in the inbox" }).waitFor();
      await page.getByText("Nothing failed.").waitFor();
      await page.getByRole("img", { name: /^Requests in each minute/ }).waitFor();
      await page.getByRole("link", { name: "Run: Refund" }).waitFor();
      const sent = new Set(addresses.values());
      assert.ok(sent.size <= 20 && sent.size > 5, [...sent].join("\n"));
      const total = [...bytes.values()].reduce((sum, each) => sum + each, 0);
      assert.ok(total <= 100_000 && total > 30_000, `${total}: ${JSON.stringify([...bytes])}`);
      await context.close();
    });

    test("the inbox: 258 that wait by steps and by tools are all listed and counted, found, and answered by keyboard and many at once", async () => {
      const { page, context } = await openConsole(browser, `${service.url}/#/inbox`);
      await said(page, "258 questions, the oldest");
      await navigation(page).getByRole("link", { name: "Inbox 258 open" }).waitFor();
      assert.equal(await waiting(page).count(), 258);
      assert.match(
        (await waiting(page).first().textContent()) ?? "",
        /^RefundPlease look: order A-0by execution refund-0ada/,
      );
      assert.match((await waiting(page).last().textContent()) ?? "", /^payamount 129by a request/);

      await page.getByRole("button", { name: "Approve", exact: true }).waitFor();
      for (let left = 257; left >= 248; left--) {
        await page.keyboard.press(left === 248 ? "d" : "a");
        await said(page, `${left} questions`);
        await page
          .locator("#inbox-detail")
          .getByText(`A-${258 - left}`, { exact: true })
          .waitFor();
        await page.getByRole("button", { name: "Approve", exact: true }).waitFor();
      }
      const result = async (id: string) => {
        const { data } = (await (await service.get(`/workflows/executions?workflowId=refund&limit=500`)).json()) as {
          data: { id: string; output?: unknown }[];
        };
        return data.find((each) => each.id === id)?.output;
      };
      assert.deepEqual([await result("refund-0"), await result("refund-9")], [{ paid: true }, { paid: false }]);

      await page.keyboard.press("j");
      await page.locator("#inbox-detail").getByText("A-11", { exact: true }).waitFor();
      await page.waitForURL(/item=refund%2Frefund-11%2Fada/);
      await page.keyboard.press("k");
      await page.locator("#inbox-detail").getByText("A-10", { exact: true }).waitFor();

      await page.getByRole("navigation", { name: "What is asked" }).getByRole("link", { name: "pay 129" }).click();
      await said(page, "248 questions, 129 of them listed");
      await page.getByRole("checkbox", { name: "Choose all that are listed" }).check();
      await page.getByRole("checkbox", { name: "Choose pay: amount 7", exact: true }).uncheck();
      await page.getByLabel("Reason").first().fill("the month is over");
      await page.getByRole("button", { name: "Refuse 128" }).click();
      await said(page, "120 questions, 1 of them listed");
      await page.getByText("128 questions refused.").waitFor();
      await decided(page).first().getByText("“the month is over”").waitFor();

      await page.getByRole("navigation", { name: "What is asked" }).getByRole("link", { name: "All 120" }).click();
      await said(page, "120 questions, the oldest");
      await page.getByRole("textbox", { name: "Search" }).fill("GRACE");
      await page.keyboard.press("Enter");
      await said(page, "120 questions, 1 of them listed");
      await page.waitForURL(/search=GRACE/);
      await page.locator("#inbox-detail").getByText("A-127").waitFor();

      const colleague = await openConsole(browser, `${service.url}/#/inbox?item=moving%2Fmoves%2F`);
      await colleague.page.getByLabel("street").fill("Main Street 1");
      await page.goto(`${service.url}/#/inbox`);
      await said(page, "120 questions, the oldest");
      const moving = page.getByRole("checkbox", { name: "Choose Moving" });
      await moving.check();
      await page.getByRole("button", { name: "Approve 1" }).click();
      await page.getByRole("alert").filter({ hasText: "it asks for more than yes or no" }).waitFor();
      assert.equal(await colleague.page.getByLabel("street").inputValue(), "Main Street 1");
      await colleague.page.getByRole("button", { name: "Resume" }).click();
      await said(page, "119 questions");
      await colleague.page.goto(`${service.url}/#/`);
      await colleague.page.goto(`${service.url}/#/inbox?item=moving%2Fmoves%2F`);
      await colleague.page.getByText("It does not wait any more.").waitFor();
      await colleague.page.getByRole("link", { name: "To the execution moves" }).click();
      await colleague.page.getByRole("region", { name: "Result" }).getByText("Main Street 1").waitFor();
      await colleague.context.close();
      await context.close();
    });
  });

  test("the inbox: it is legible in the dark and fits a narrow screen, with a question and an answer", async (t) => {
    const service = await serveApprovals(t, MANIFEST);
    await service.post(`/approvals/${await ask(service, 1)}`, { approved: false, reason: "no" });
    await ask(service, 2);
    for (const colorScheme of ["light", "dark"] as const) {
      const viewport = { width: 390, height: 800 };
      const { page, context } = await openConsole(browser, service.url, { colorScheme, viewport });
      await visit(page, "Inbox");
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
