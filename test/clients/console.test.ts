/** The console at `GET /`, in a real browser: what people do with it. */
import assert from "node:assert/strict";
import { after, before, describe, type TestContext, test } from "node:test";
import type { Browser, Locator, Page } from "playwright-core";
import { browserMissing, type OpenedPage, openPage, startBrowser } from "../support/browser.ts";
import { assertSound, CONSOLE_MANIFEST, HOSTILE, navigation, openConsole, visit } from "../support/console.ts";
import { weakTexts } from "../support/contrast.ts";
import { eventually } from "../support/event-reader.ts";
import { manifestWith, startService, type TestService } from "../support/service.ts";

const textOf = async (locator: Locator) => (await locator.textContent()) ?? "";

/** Moments at which the text of an answer grew. */
const NOTE_CHANGES = `
  changes = [];
  new MutationObserver(() => {
    if (document.querySelector(".answer .said")?.textContent) changes.push(performance.now());
  }).observe(document.querySelector("main.console"), { subtree: true, childList: true, characterData: true });
`;

/** Each view, and something that it shows once it is there. */
const VIEWS = [
  ["", "The last hour"],
  ["inbox", "the oldest for"],
  ["agents", "Waits"],
  ["agents/assistant", "Helps people"],
  ["workflows", "with approval"],
  ["workflows/refund", "Schemas"],
  ["workflows/none", "does not exist"],
  ["workflows/refund/executions/kept", "Needs approval"],
  ["executions", "Took"],
  ["traces", "Took"],
  ["logs?level=debug", "request"],
] as const;

describe("the console at GET /", { skip: browserMissing() }, () => {
  let browser: Browser;
  let service: TestService;
  let opened: OpenedPage;
  let page: Page;

  const endings: (() => unknown)[] = [];
  const file = { after: (end: () => unknown) => void endings.push(end) } as Pick<TestContext, "after">;

  before(async () => {
    [browser, service] = await Promise.all([startBrowser(file), startService(file, CONSOLE_MANIFEST)]);
    await service.post("/workflows/refund/execute", { input: { amount: 200 }, options: { executionId: "kept" } });
    opened = await openConsole(browser, service.url);
    page = opened.page;
  });

  after(async () => {
    for (const end of endings) await end();
  });

  const step = (name: string) => page.getByRole("listitem").filter({ hasText: name }).last();
  const say = async (text: string) => {
    await page.getByRole("textbox", { name: "Your message" }).fill(text);
    await page.getByRole("button", { name: "Send" }).click();
  };

  test("the console at GET / without JavaScript is the landing page, with its links", async () => {
    const plain = await openPage(browser, { javaScriptEnabled: false });
    await plain.page.goto(service.url);
    for (const name of ["API explorer", "OpenAPI document", "Agents", "Workflows", "Tools", "Health"])
      assert.ok(await plain.page.getByRole("link", { name, exact: true }).isVisible(), name);
    assert.equal(await navigation(plain.page).count(), 0);
    await plain.context.close();
  });

  test("the console at GET / begins with what waits and what failed, and leads from an agent to its chat, never to JSON", async () => {
    await page.getByRole("heading", { level: 1, name: "Desk" }).waitFor();
    const waits = page.getByRole("region", { name: "Waits for a person" });
    await waits.getByText("Needs approval").waitFor();
    await page.getByRole("region", { name: "Failed in the last day" }).getByText("Nothing failed.").waitFor();
    assert.ok(await page.getByRole("link", { name: "API explorer", exact: true }).isVisible());
    const targets = await page.evaluate<string[]>(
      `[...document.querySelectorAll("main.console a")].map((link) => link.getAttribute("href"))`,
    );
    assert.deepEqual(
      targets.filter((target) => !target.startsWith("#/")),
      ["./ui", "./docs"],
    );
    await page.getByText("Commands that work as they stand").click();
    await page.getByText("curl -sN").last().waitFor();
    await page.getByRole("link", { name: "Chat: Slow" }).click();
    await page.getByRole("heading", { level: 1, name: "Slow" }).waitFor();
  });

  test("agents: an answer streams, calls of tools are shown, and what it says stays text", async () => {
    await visit(page, "Agents");
    await page.getByRole("link", { name: "Helper" }).click();
    await page.evaluate(NOTE_CHANGES);
    await say(`one two three ${HOSTILE}`);
    const log = page.getByRole("log", { name: "Conversation" });
    await page.getByRole("status").filter({ hasText: "The answer is complete" }).waitFor({ state: "attached" });
    const changes = await page.evaluate<number[]>("changes");
    assert.ok(changes.at(-1)! - changes[0]! > 150, "the first words are shown before the last are there");
    assert.equal((await textOf(log)).split(HOSTILE).length, 3, "said and answered");
    await say("add these");
    await log.getByText("It is 42.").waitFor();
    await log.getByText("Tool sum").click();
    assert.match(await textOf(log), /"a": 40/);
    await say("are you busy?");
    await log.getByRole("alert").filter({ hasText: "model provider failed: unavailable" }).waitFor();
    await say("and now?");
    await log.locator(".answer").getByText("and now?").waitFor();
    await assertSound({ ...opened, complaints: opened.complaints.filter((text) => !text.includes("status of 500")) });
    opened.complaints.length = 0;
  });

  test("the console at GET /: Stop ends the answer of an agent", async () => {
    await page.goto(`${service.url}/#/agents/slow`);
    await say("Wait");
    await page.getByRole("button", { name: "Stop" }).click();
    await page.getByText("Stopped.").waitFor();
    assert.ok(await page.getByRole("button", { name: "Send" }).isEnabled());
  });

  test("workflows: a run is drawn as it goes, waits, is resumed, and is replayed from a step", async () => {
    await visit(page, "Workflows");
    await page.getByRole("link", { name: "Refund" }).click();
    const input = page.getByRole("textbox", { name: "Input (JSON)" });
    assert.deepEqual(JSON.parse(await input.inputValue()), { amount: 120 }, "an example that fits the schema");
    await input.fill("{");
    await page.getByRole("button", { name: "Run" }).click();
    await page.getByRole("alert").filter({ hasText: "this is not JSON" }).waitFor();
    await input.fill('{"amount": 300}');
    await page.getByRole("button", { name: "Run" }).click();

    await page.getByRole("heading", { name: "Execution of Refund" }).waitFor();
    await page.getByText("Needs approval").waitFor();
    await page.getByText("Waiting for").waitFor();
    await step("Ask a person").getByText("suspended").waitFor();
    await step("Check").getByText("success").waitFor();
    assert.match(await textOf(step("pay")), /not begun/);
    const drawing = page.getByRole("img", { name: "Drawing of Refund" });
    assert.equal(await drawing.locator("g.step").count(), 4);
    assert.equal(await drawing.locator("g.step.is-suspended").count(), 2);

    await page.getByRole("button", { name: "Approve" }).click();
    await page.getByRole("region", { name: "Result" }).getByText('"paid": 300').waitFor();
    await step("pay").getByText("success").waitFor();
    assert.equal(await page.getByRole("button", { name: "Cancel" }).count(), 0, "it has ended");

    const timeline = page.getByRole("region", { name: "Timeline" });
    assert.deepEqual(
      (await timeline.getByRole("rowheader").allTextContents()).map((name) => name.split(" ")[0]),
      ["Check", "Large", "Ask", "pay"],
      "each step once, in the order in which they began",
    );
    await timeline.getByRole("button", { name: "Check" }).click();
    const details = page.getByRole("region", { name: "Step", exact: true });
    await details.getByText("Output").waitFor();
    assert.deepEqual(
      await details.locator("dl.values dd").allTextContents(),
      ["300", "300"],
      "what it was given and gave",
    );

    const traces = page.getByRole("region", { name: "Traces" }).getByRole("link");
    await traces.filter({ hasText: "resume" }).waitFor();
    await traces.filter({ hasText: "execute" }).click();
    await page.getByRole("button", { name: "invoke_workflow Refund" }).waitFor();
    await page.goBack();
    await page.getByRole("region", { name: "Result" }).waitFor();

    const first = page.url();
    await page.getByRole("combobox", { name: "From step" }).selectOption("pay");
    await page.getByRole("button", { name: "Replay" }).click();
    await page.getByRole("link", { name: /, from pay$/ }).waitFor();
    assert.notEqual(page.url(), first);
    await assertSound(opened);
  });

  test("workflows: a running execution is cancelled, and the lists filter by how executions stand", async () => {
    await page.goto(`${service.url}/#/workflows/waiting`);
    await page.getByRole("button", { name: "Run" }).click();
    await step("wait").getByText("running").waitFor();
    await page.getByRole("button", { name: "Cancel" }).click();
    await page.getByRole("heading", { name: "Cancelled" }).waitFor();
    await step("wait").getByText("cancelled").waitFor();
    assert.equal(
      await page.locator(":focus").textContent(),
      "Execution of Waiting",
      "the button that had the focus is gone",
    );

    await visit(page, "Executions");
    const rows = page.getByRole("table", { name: "Executions" }).getByRole("row");
    await rows.nth(3).waitFor();
    const status = page.getByRole("combobox", { name: "Status" });
    await status.focus();
    await status.selectOption("cancelled");
    await page.waitForURL(/status=cancelled/);
    await rows.nth(2).waitFor({ state: "detached" });
    assert.match(await textOf(rows.nth(1)), /Waiting.*cancelled/);
    assert.equal(await page.locator(":focus").getAttribute("id"), "filter-status", "the focus stays");
  });

  test("executions: one is found by its id, says how long it has waited, and is seen to end though somebody else answers", async () => {
    await page.goto(`${service.url}/#/executions`);
    const rows = page.getByRole("table", { name: "Executions" }).getByRole("row");
    await rows.nth(3).waitFor();
    await page.getByRole("textbox", { name: "Id" }).fill("kept");
    await page.keyboard.press("Enter");
    await rows.nth(2).waitFor({ state: "detached" });
    assert.match(await textOf(rows.nth(1)), /kept.*suspended waiting for \d+ s/);
    const reply = { input: { amount: 500 }, options: { executionId: "live", metadata: { channel: "phone" } } };
    await service.post("/workflows/refund/execute", reply);
    await page.goto(`${service.url}/#/executions?attribute=channel%3Dphone`);
    await rows.filter({ hasText: "suspended" }).getByRole("link", { name: "live" }).click();
    await page.getByRole("button", { name: "Refuse" }).waitFor();
    const answer = { resumeData: { approved: true } };
    assert.equal((await service.post("/workflows/refund/executions/live/resume", answer)).status, 200);
    await page.getByRole("region", { name: "Result" }).getByText('"paid": 500').waitFor();
    opened.complaints.length = 0;
  });

  for (const [what, status, work] of [
    ["works on", "running", { andAgent: { agent: "assistant", prompt: "hello" } }],
    ["ends at once", "completed", { andThen: { set: "Done." } }],
  ] as const)
    test(`executions: one that somebody answers while the page looks at it, and that ${what}, is seen to end`, async (t) => {
      const workflow = {
        resume: {},
        steps: [
          { id: "ask", andThen: { suspend: {} } },
          { id: "work", ...work },
        ],
      };
      const model = { providers: { demo: { use: "scripted", chunks: 2, delay: "1s", replies: [{ text: "Done." }] } } };
      const own = await startService(t, manifestWith({}, { ...model, workflows: { late: workflow } }));
      await own.post("/workflows/late/execute", { input: {}, options: { executionId: "one" } });
      const path = "/workflows/late/executions/one";
      const isAt = async (wanted: string) => {
        const { data } = (await (await own.get(`${path}/state`)).json()) as { data: { status: string } };
        return data.status === wanted;
      };
      const { page, context } = await openPage(browser);
      t.after(() => context.close());
      let looks = 0;
      let answered: Promise<unknown> = Promise.resolve();
      await page.route(`**${path}/state`, async (route) => {
        // The first look draws the page, and the second comes when it has read all events.
        if (++looks === 2) {
          answered = own.post(`${path}/resume`, { resumeData: {} });
          await eventually(() => isAt(status), "the answer");
        }
        await route.continue();
      });
      await page.goto(`${own.url}/#${path}`);
      await page.getByRole("region", { name: "Result" }).getByText("Done.").waitFor();
      await answered;
    });

  test("traces: a chat is found, its spans are drawn as a waterfall, and one shows its attributes", async () => {
    await visit(page, "Traces");
    await page.getByRole("combobox", { name: "Of" }).selectOption("agent");
    await page.waitForURL(/entityType=agent/);
    const table = page.getByRole("table", { name: "Traces" });
    await table
      .getByRole("row")
      .filter({ hasText: /^Helper.*add these.*4 spans/ })
      .getByRole("link")
      .click();
    await page.getByRole("heading", { name: "Waterfall" }).waitFor();
    const spans = page.getByRole("row").getByRole("button");
    assert.deepEqual(
      (await spans.allTextContents()).map((text) => text.split(" ")[0]),
      ["invoke_agent", "chat", "execute_tool", "chat"],
    );
    const panel = page.getByRole("region", { name: "Span" });
    assert.match(await textOf(panel.locator("pre").first()), /^\[\n {2}\{/, "JSON is written on several lines");
    const tool = page.getByRole("button", { name: "execute_tool sum" });
    await tool.click();
    assert.equal(await tool.getAttribute("aria-pressed"), "true");
    await panel.getByText("gen_ai.tool.name").waitFor();
    await panel.getByText("Log lines").click();
    await panel
      .getByText("No lines.")
      .or(panel.getByText("Lines", { exact: true }))
      .waitFor();
    await assertSound(opened);
  });

  test("logs: lines come as they are written, from a level on, and wait in a pause", async () => {
    await visit(page, "Logs");
    await page.getByRole("status").filter({ hasText: "Live." }).waitFor();
    const log = page.getByRole("log", { name: "Log" });
    service.logger.info("an info");
    service.logger.warn({ order: 17 }, `a warning ${HOSTILE}`);
    await log.getByText("a warning").click();
    await log.getByText('"order": 17').waitFor();
    await log.getByText("an info").waitFor();
    await page.getByRole("button", { name: "Pause" }).click();
    service.logger.info("in the pause");
    await page.getByRole("button", { name: "Pause" }).click();
    service.logger.info("after the pause");
    await log.getByText("after the pause").waitFor();
    await log.getByText("in the pause").waitFor();
    await page.getByRole("combobox", { name: "Least level" }).selectOption("warn");
    await log.getByText("an info").waitFor({ state: "detached" });
    await log.getByText("a warning").waitFor();
    service.logger.error("an error");
    await log.getByText("an error").waitFor();
    await page.getByRole("textbox", { name: "Text" }).fill("AN ERR");
    await page.keyboard.press("Enter");
    await log.getByText("a warning").waitFor({ state: "detached" });
    await log.getByText("an error").waitFor();
    service.logger.error("something else");
    service.logger.child({ tool: "sum" }).error("an error of a tool");
    await log.getByText("an error of a tool").waitFor();
    assert.equal(await log.getByText("something else").count(), 0);
    await page.goto(`${service.url}/#/logs?tool=sum&level=debug`);
    await log.getByText("an error", { exact: true }).waitFor({ state: "detached" });
    await log.getByText("an error of a tool").waitFor();
    assert.deepEqual(await log.locator(".message").allTextContents(), ["an error of a tool"]);
    await assertSound(opened);
  });

  test("the console at GET / by keyboard alone: past the bar, to an agent, and through a chat; the focus follows", async () => {
    await page.goto(`${service.url}/#/workflows`);
    await page.reload();
    await page.getByRole("main").getByRole("link", { name: "Refund" }).waitFor();
    const focused = () => page.locator(":focus");
    await page.keyboard.press("Tab");
    assert.equal(await textOf(focused()), "Skip to the content");
    await page.keyboard.press("Enter");
    assert.equal(await focused().getAttribute("id"), "view");
    await page.keyboard.press("Tab");
    assert.equal(await textOf(focused()), "Refund");
    await navigation(page).getByRole("link", { name: "Agents" }).focus();
    await page.keyboard.press("Enter");
    await page.getByRole("link", { name: "Slow" }).waitFor();
    assert.equal(await textOf(focused()), "Agents", "the heading of the new view");
    for (let presses = 0; (await textOf(focused())) !== "Slow"; presses++) {
      assert.ok(presses < 5);
      await page.keyboard.press("Tab");
    }
    assert.notEqual(await focused().evaluate("(element) => getComputedStyle(element).outlineStyle"), "none");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { level: 1, name: "Slow" }).waitFor();
    for (let presses = 0; (await focused().getAttribute("id")) !== "chat-text"; presses++) {
      assert.ok(presses < 3);
      await page.keyboard.press("Tab");
    }
    await page.keyboard.type("Hello");
    await page.keyboard.press("Enter");
    await page.getByRole("log").getByText("Hello").waitFor();
    await page.keyboard.press("Tab");
    assert.equal(await textOf(focused()), "Stop");
    await page.keyboard.press("Enter");
    await page.getByText("Stopped.").waitFor();
  });

  for (const colorScheme of ["light", "dark"] as const) {
    test(`every view is legible in ${colorScheme}, and fits a narrow screen`, async () => {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width: 390, height: 800 });
      for (const [path, shown] of VIEWS) {
        await page.goto(`${service.url}/#/${path}`);
        await page.getByRole("main").getByText(shown).first().waitFor();
        const { texts, weak } = await weakTexts(page);
        assert.ok(texts > 10, path);
        assert.deepEqual(weak, [], path);
        assert.equal(await page.evaluate("document.documentElement.scrollWidth"), 390, path);
      }
      const ground = await page.evaluate("getComputedStyle(document.body).backgroundColor");
      assert.equal(ground, colorScheme === "dark" ? "rgb(12, 23, 28)" : "rgb(246, 248, 249)");
    });
  }
});
