/** The console at `GET /` for who runs the service: its limits, its manifest, its routes, kept runs, and why something failed. */
import assert from "node:assert/strict";
import { after, before, describe, type TestContext, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { PAY_PLUGIN } from "../support/approvals.ts";
import { browserMissing, type OpenedPage, startBrowser } from "../support/browser.ts";
import { assertSound, HOSTILE, navigation, openConsole, visit } from "../support/console.ts";
import { weakTexts } from "../support/contrast.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { manifestWith, startService, type TestService } from "../support/service.ts";

const MANIFEST = `name: Desk
store: "sqlite:penstock.db"
server: { limits: { body: 2KiB, executions: "\${MOST}" } }
x-note: ${JSON.stringify(HOSTILE)}
providers:
  demo:
    use: scripted
    replies:
      - { when: pay, call: { tool: pay, input: { amount: 250 } }, then: "**Paid.**" }
      - { when: broken, error: unavailable }
    models: { slow: { firstDelay: 600s }, "echo*": { prices: { input: 10000000, output: 10000000, asOf: "2026-11-22" } } }
tools:
  pay: { use: pay, approval: true }
  ask:
    description: Asks elsewhere
    parameters: { type: object }
    http: { method: GET, url: "https://elsewhere.example/", headers: { x-api-key: written-down, authorization: "Bearer \${KEY}" } }
agents:
  assistant: { name: Assistant, description: Helps, instructions: Secret recipe., model: demo/echo, memory: false, tools: [pay] }
  slow: { name: Slow, description: Waits, instructions: Wait., model: demo/slow, memory: false }
workflows:
  export:
    name: Export
    steps:
      - { id: gather, andThen: { set: { rows: 3 } } }
      - { id: send, name: Send it, andThen: { set: "{{ data.rows.missing }}" } }
  asking: { name: Asking, steps: [{ id: hear, andAgent: { agent: assistant, prompt: Hello. } }] }
  lasting: { name: Lasting, steps: [{ id: wait, andAgent: { agent: slow, prompt: Wait. } }] }
`;

describe("what runs the service, in the console at GET /", { skip: browserMissing() }, () => {
  let browser: Browser;
  let service: TestService;
  let opened: OpenedPage;
  let page: Page;
  const endings: (() => unknown)[] = [];
  const file = { after: (end: () => unknown) => void endings.push(end) } as Pick<TestContext, "after">;

  before(async () => {
    const plugins = [pluginFolder(file, PAY_PLUGIN)];
    const env = { MOST: "40", KEY: "from-the-environment" };
    [browser, service] = await Promise.all([startBrowser(file), startService(file, MANIFEST, { plugins, env })]);
    opened = await openConsole(browser, service.url);
    page = opened.page;
  });
  after(async () => {
    for (const end of endings) await end();
  });

  const row = (table: string, text: string | RegExp) =>
    page.getByRole("table", { name: table }).getByRole("row").filter({ hasText: text });
  const begin = (agent: string, input: string, runId: string) =>
    service.post(`/agents/${agent}/text`, { input, options: { background: true, runId } });

  test("service: a limit is seen with its value, what is in use, what was refused, and where the value comes from", async () => {
    await navigation(page).getByRole("link", { name: "Service" }).click();
    await page.getByRole("heading", { level: 1, name: "Limits" }).waitFor();
    const executions = row("Limits of the service", "server.limits.executions");
    await executions.getByText("environment variable MOST").waitFor();
    await executions.getByRole("cell", { name: "40", exact: true }).waitFor();
    await executions.getByRole("meter", { name: "0 of 40" }).waitFor();
    const body = row("Limits of the service", /server\.limits\.body.*2 KiB/);
    await body.getByRole("cell", { name: "0", exact: true }).waitFor();
    assert.equal((await service.post("/agents/slow/text", { input: "x".repeat(4000) })).status, 413);
    await body.getByRole("cell", { name: "1", exact: true }).waitFor();
    await row("Limits of providers, agents, memories, tools and workflows", "agents.slow.maxSteps").waitFor();
    await body.getByRole("link", { name: "server.limits.body" }).click();
    await page.getByRole("heading", { level: 1, name: "Manifest" }).waitFor();
    await row("Values of the manifest", "server.limits.body")
      .getByText(/service\.yaml:3:\d+$/)
      .waitFor();
    await assertSound(opened);
  });

  test("service: a value of the manifest is found with its line, its variable or its default, and no secret reaches the browser", async () => {
    const received = page.waitForResponse((response) => response.url().endsWith("/observability/manifest"));
    await page.goto(`${service.url}/#/service/manifest`);
    const text = await (await received).text();
    for (const secret of ["from-the-environment", "written-down", "recipe"]) assert.ok(!text.includes(secret), secret);
    await page.getByRole("textbox", { name: "Search" }).fill("headers");
    await page.keyboard.press("Enter");
    await row("Values of the manifest", /headers\.authorization.*\[redacted\].*environment variable KEY/).waitFor();
    await row("Values of the manifest", /headers\.x-api-key.*\[redacted\].*service\.yaml:\d+:\d+/).waitFor();
    await page.getByRole("textbox", { name: "Search" }).fill("drain");
    await page.keyboard.press("Enter");
    await row("Values of the manifest", /server\.limits\.drain.*30 s.*default of the schema/).waitFor();
    await page.getByRole("textbox", { name: "Search" }).fill("x-note");
    await page.keyboard.press("Enter");
    await row("Values of the manifest", HOSTILE).waitFor();
    await page.getByRole("combobox", { name: "Comes from" }).selectOption("default");
    await page.getByText("No values.").waitFor();
    await assertSound(opened);
  });

  test("service: a route is found with who may use it, and how often it was used", async () => {
    await page.getByRole("navigation", { name: "Service" }).getByRole("link", { name: "Routes" }).click();
    await page.getByRole("textbox", { name: "Search" }).fill("agents text");
    await page.keyboard.press("Enter");
    await page.getByText(/^1 route\./).waitFor();
    const route = row("Routes", "/agents/:id/text");
    assert.deepEqual(
      (await route.getByRole("cell").allTextContents()).map((text) => text.trim()),
      ["public", "1", "1", "0"],
      "the body that was too large",
    );
  });

  test("service: models are listed with their state, their calls and failures, from the numbers of GET /metrics", async () => {
    await service.post("/agents/assistant/text", { input: "broken" });
    await page.goto(`${service.url}/#/service/models`);
    const model = row("Models", "demo/echo");
    await model.getByText("ready").waitFor();
    const [, calls, failed] = await model.getByRole("cell").allTextContents();
    assert.ok(Number(calls) >= 1 && Number(failed) >= 1, `${calls} calls, ${failed} failed`);
    await row("Store", /^Commits/).waitFor();
    await assertSound(opened);
  });

  test("runs: kept runs are listed as they stand, one goes on after the yes of a person, and one is cancelled", async () => {
    await begin("assistant", "pay", "paying");
    await begin("slow", "Wait", "lasting");
    await begin("slow", "Wait", "stopped");
    await begin("assistant", "broken", "failed");
    await visit(page, "Runs");
    await row("Runs", "paying").getByText("waiting").waitFor();
    await row("Runs", "failed").getByText("error").waitFor();
    await page.getByRole("button", { name: "Cancel stopped" }).click();
    await row("Runs", "stopped").getByText("cancelled").waitFor();
    await row("Runs", "lasting").getByText("running").waitFor();
    await page.getByRole("combobox", { name: "Status" }).selectOption("error");
    await row("Runs", "lasting").waitFor({ state: "detached" });
    const streamed = page.waitForResponse((reply) => reply.url().endsWith("/runs/failed/stream"));
    await row("Runs", "failed").getByRole("link").click();
    await page.getByRole("region", { name: "Error" }).getByText("unavailable").waitFor();
    await (await streamed).finished();
    assert.equal(await page.getByText("unavailable").count(), 1, "what it failed with is said once");
    await page.goto(`${service.url}/#/runs`);
    await page.getByRole("textbox", { name: "Id" }).fill("stopped");
    await page.keyboard.press("Enter");
    await row("Runs", "lasting").waitFor({ state: "detached" });
    await row("Runs", "stopped").getByText("cancelled").waitFor();
    // The other agents say that they have no such run.
    opened.complaints.length = 0;
    await page.goto(`${service.url}/#/runs?text=UNAVAIL`);
    await page.getByText("of the newest 500 that the other filters leave").waitFor();
    await row("Runs", "failed").waitFor();
    assert.equal(await row("Runs", "lasting").count(), 0);
    await page.goto(`${service.url}/#/runs`);
    await page.getByRole("combobox", { name: "Order" }).selectOption("oldest");
    await page.waitForURL(/order=oldest/);
    await row("Runs", "failed").waitFor();
    assert.match((await row("Runs", /./).nth(1).textContent()) ?? "", /^paying/);
    for (const filter of ["", "&agent=slow"]) {
      await page.goto(`${service.url}/#/runs?page=20${filter}`);
      await page.getByText("No runs.").waitFor();
    }

    await page.goto(`${service.url}/#/runs/assistant/paying`);
    const waits = page.getByRole("region", { name: "Waits for a person" });
    await waits.getByText("250").waitFor();
    await page.getByText("waits for a person", { exact: true }).waitFor();
    await waits.getByRole("link", { name: "Approve pay" }).click();
    const open = page.locator("#inbox-detail").getByRole("article");
    await open.getByRole("button", { name: "Approve" }).click();
    await page.getByRole("region", { name: "Decided lately" }).getByRole("link", { name: "its run" }).click();
    await page.getByRole("region", { name: "Answer" }).locator("strong").getByText("Paid.").waitFor();
    await page.getByText("✓ completed").waitFor();
    assert.equal(await page.getByRole("button", { name: "Cancel" }).count(), 0, "it has ended");
    await assertSound(opened);
  });

  test("executions: a failing one is followed from the overview to its step, its trace and the span that failed", async () => {
    await service.post("/workflows/export/execute", { input: {}, options: { executionId: "export-1" } });
    await page.goto(`${service.url}/#/`);
    await page.getByRole("region", { name: "Failed in the last day" }).getByRole("link", { name: "Export" }).click();
    await page.getByRole("region", { name: "Step", exact: true }).getByText("missing").waitFor();
    await page.getByRole("region", { name: "Traces" }).getByRole("link").click();
    await page.getByRole("button", { name: "andThen send" }).click();
    const span = page.getByRole("region", { name: "Span" });
    await span.getByText("error", { exact: true }).waitFor();
    await span.locator(".problem").getByText("missing").waitFor();
    await page.getByRole("link", { name: "export-1" }).click();
    await page.getByRole("heading", { name: "Execution of Export" }).waitFor();
    assert.equal(await navigation(page).locator("[aria-current]").textContent(), "Executions");
    const error = page.getByRole("region", { name: "Error" });
    await error.getByText("Failed at step Send it").waitFor();
    await error.getByText("warn the execution failed at step send").waitFor();
    await page.getByRole("button", { name: "Retry" }).click();
    await page.getByText("export-1, from send").waitFor();
    await page.goto(`${service.url}/#/executions?status=error`);
    await row("Executions", "export-1").getByText("missing").waitFor();
    const asked = page.waitForRequest(/executions\?.*from=/);
    await page.getByRole("combobox", { name: "Began in" }).selectOption("hour");
    await asked;
    await page.waitForURL(/since=hour/);
    await row("Executions", "export-1").waitFor();
    await assertSound({ ...opened, complaints: opened.complaints.filter((text) => !text.includes("status of 500")) });
    opened.complaints.length = 0;
  });

  test("executions: one is found by its text, in any order, and says what its models cost", async () => {
    for (const order of ["A-1", "A-2", "B-1"])
      await service.post("/workflows/asking/execute", { input: { order }, options: { executionId: `asks-${order}` } });
    await page.goto(`${service.url}/#/executions?order=oldest&text=a-`);
    await page.getByText("of the newest 500 that the other filters leave").waitFor();
    await row("Executions", "asks-A-2").waitFor();
    assert.deepEqual(
      (await page.getByRole("table", { name: "Executions" }).getByRole("rowheader").allTextContents()).filter((id) =>
        id.startsWith("asks"),
      ),
      ["asks-A-1", "asks-A-2"],
    );
    await row("Executions", "asks-A-1").getByRole("link").click();
    await page.getByText(/^Models cost \$[1-9]\d{1,3}\.\d\d\.$/).waitFor();
    await assertSound(opened);
  });

  test("the overview of the console names the models that are not called any more, with a way to their numbers", async (t) => {
    const replies = [{ when: "broken", error: "unavailable" }];
    const own = await startService(t, manifestWith({}, { providers: { demo: { use: "scripted", replies } } }));
    const { page, context } = await openConsole(browser, own.url);
    t.after(() => context.close());
    await page.clock.install();
    await page.reload();
    await page.getByText("Nothing failed.").waitFor();
    const read = page.waitForResponse("**/metrics");
    await page.clock.fastForward(15_000);
    await (await read).finished();
    assert.equal(await page.getByRole("alert").count(), 0);
    for (let calls = 0; calls < 5; calls++) await own.post("/agents/assistant/text", { input: "broken" });
    await page.clock.fastForward(15_000);
    const alert = page.getByRole("alert").filter({ hasText: "1 model not called, because of failures: demo/echo" });
    await alert.getByRole("link", { name: "Models" }).click();
    await page.getByRole("heading", { level: 1, name: "Models" }).waitFor();
  });

  test("executions: what a step has taken so far is seen to grow while it runs", async () => {
    const ended = service.post("/workflows/lasting/execute", { input: {}, options: { executionId: "long" } });
    await page.goto(`${service.url}/#/executions?status=running`);
    await row("Executions", "long").getByRole("link").click();
    const step = page.getByRole("region", { name: "Timeline" }).getByRole("row").filter({ hasText: "wait" });
    await step.getByRole("cell", { name: /^[1-9]\d* s$/ }).waitFor();
    const first = await step.getByRole("cell").last().textContent();
    await step.getByRole("cell", { name: first!, exact: true }).waitFor({ state: "detached" });
    await page.getByRole("button", { name: "Cancel" }).click();
    await ended;
  });

  for (const colorScheme of ["light", "dark"] as const) {
    test(`service and runs in the console are legible in ${colorScheme}, and fit a narrow screen`, async () => {
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width: 390, height: 800 });
      for (const [path, shown] of [
        ["service/limits", "server.limits.body"],
        ["service/manifest", "default of the schema"],
        ["service/routes", "/agents/:id/text"],
        ["service/models", "demo/echo"],
        ["runs", "lasting"],
        ["runs/slow/lasting", "running"],
        ["runs/assistant/paying", "Paid."],
      ] as const) {
        await page.goto(`${service.url}/#/${path}`);
        await page.getByRole("main").getByText(shown).first().waitFor();
        const { texts, weak } = await weakTexts(page);
        assert.ok(texts > 10, path);
        assert.deepEqual(weak, [], path);
        assert.equal(await page.evaluate("document.documentElement.scrollWidth"), 390, path);
      }
    });
  }
});
