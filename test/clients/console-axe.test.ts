/** Every view of the console at `GET /`, and the manual, before axe-core: what keyboards, screen readers and weak eyes need. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { type TestContext, test } from "node:test";
import type { Page } from "playwright-core";
import { AUTH, CONSOLE, PAY_PLUGIN } from "../support/approvals.ts";
import { browserMissing, openPage, startBrowser } from "../support/browser.ts";
import { navigation } from "../support/console.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { startService, type TestService } from "../support/service.ts";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const MAIN = new URL("../../core/api/pages/console/main.js", import.meta.url);

const MANIFEST = `name: Desk
store: "sqlite:penstock.db"
logs: { level: debug }
providers:
  demo:
    use: scripted
    replies:
      - { when: pay, call: { tool: pay, input: { amount: 250 } }, then: "**Paid.**" }
      - { when: broken, error: unavailable }
      - when: prices
        text: "# Prices\\n\\nThey are **low**: see [the list](https://example.com/).\\n\\n- \`one\`\\n\\n| City | Days |\\n| --- | ---: |\\n| Porto | 3 |\\n\\n\`\`\`\\ncode\\n\`\`\`\\n"
    models: { slow: { firstDelay: 600s }, "echo*": { prices: { input: 1000, output: 1000, asOf: "2026-11-22" } } }
memory: { default: { workingMemory: { scope: conversation, format: markdown, template: "# Customer" } } }
tools:
  pay: { use: pay, approval: true }
  sum: { use: add }
agents:
  assistant: { name: Assistant, description: Helps people, instructions: Help., model: demo/echo, tools: [pay, sum] }
  slow: { name: Slow, description: Waits, instructions: Wait., model: demo/slow, memory: false }
workflows:
  refund:
    name: Refund
    purpose: Pays an order back
    input: { type: object, properties: { order: { type: string }, amount: { type: number } }, required: [order] }
    resume: { type: object, properties: { approved: { type: boolean } }, required: [approved] }
    steps:
      - { id: check, name: Check the order, andAgent: { agent: assistant, prompt: "{{ input.order }}" } }
      - id: gate
        andWhen: { if: "input.amount > 100", then: { id: ask, name: Ask a person, andThen: { suspend: { reason: Please look } } } }
      - { id: pay, andThen: { set: { paid: "{{ input.amount }}" } } }
  moving:
    name: Moving
    resume: { type: object, properties: { street: { type: string }, floor: { enum: [first, second] }, lift: { type: boolean } }, required: [street] }
    steps: [{ id: ask, andThen: { suspend: {} } }]
  broken: { name: Broken, steps: [{ id: read, name: Read, andThen: { set: "{{ data.missing }}" } }] }
  lasting: { name: Lasting, steps: [{ id: wait, andAgent: { agent: slow, prompt: Wait. } }] }
`;

/** Something of each kind, as a day leaves it. @returns the trace of an execution */
async function fill(service: TestService): Promise<string> {
  const post = (path: string, body: object) => service.post(path, body, CONSOLE);
  const execute = (workflow: string, executionId: string, input: object) =>
    post(`/workflows/${workflow}/execute`, { input, options: { executionId, userId: "ada" } });
  const tell = (input: string, conversationId: string) =>
    post("/agents/assistant/text", { input, options: { memory: { conversationId, userId: "ada" } } });
  const begin = (agent: string, input: string, runId: string) =>
    post(`/agents/${agent}/text`, { input, options: { background: true, runId } });
  await execute("refund", "paid", { order: "A-1", amount: 20 });
  await execute("refund", "asked", { order: "A-2", amount: 200 });
  await execute("moving", "moves", {});
  await execute("broken", "failed", { order: "A-3" });
  await tell("prices please", "priced");
  await post("/api/memory/conversations/priced/working-memory", { content: "# Customer\n\n- likes **tea**" });
  await tell("broken", "lost");
  const { headers } = await post("/tools/pay/execute", { input: { amount: 40 } });
  await post(`/approvals/${headers.get("x-approval-id")}`, { approved: false, reason: "too late" });
  await begin("assistant", "pay", "paying");
  await begin("assistant", "prices", "told");
  await begin("slow", "Wait", "lasting");
  void execute("lasting", "long", {}).catch(() => {});
  const query = "entityType=workflow&entityId=refund&limit=1";
  const list = (await (await service.get(`/observability/traces?${query}`, CONSOLE)).json()) as {
    data: { traces: { traceId: string }[] };
  };
  return list.data.traces[0]!.traceId;
}

/** Clicks what a view shows only then. */
const click =
  (name: string, role: "button" | "checkbox" = "button") =>
  (page: Page) =>
    page.getByRole(role, { name }).first().click();

/** Each view, something that it shows once it is there, and what is done in it. */
const views = (trace: string): readonly (readonly [path: string, shown: string, act?: (page: Page) => unknown])[] => [
  ["", "The last hour"],
  ["inbox", "the oldest for", click("Choose Moving", "checkbox")],
  ["inbox?item=moving%2Fmoves%2Fada", "street"],
  ["agents", "Waits"],
  ["agents/assistant", "Helps people", (page) => page.getByText("User, conversation, context").click()],
  ["agents/assistant?conversation=priced&userId=ada", "Porto"],
  ["tools", "Adds"],
  ["tools/sum", "Run it"],
  ["workflows", "Pays an order back"],
  ["workflows/refund", "Schemas"],
  ["executions", "missing"],
  ["workflows/refund/executions/paid?userId=ada", "Result", click("Check the order")],
  ["workflows/refund/executions/asked?userId=ada", "Please look"],
  ["workflows/broken/executions/failed?userId=ada", "Failed at step"],
  ["workflows/lasting/executions/long?userId=ada", "running"],
  ["runs", "lasting"],
  ["runs/assistant/paying", "Approve pay"],
  ["runs/assistant/told", "Porto"],
  ["memory", "prices please"],
  ["memory/assistant/priced?userId=ada", "likes"],
  ["traces", "Took"],
  [`traces/${trace}`, "Waterfall", click("andAgent check")],
  ["logs?level=debug", "request"],
  ["service", "server.limits.body"],
  ["service/limits", "server.limits.body"],
  ["service/models", "demo/echo"],
  ["service/manifest", "default of the schema"],
  ["service/routes", "/agents/:id/text"],
  ["nowhere", "No view has this address"],
];

/** What axe-core finds on a wide screen in light, and on a narrow one in the dark. */
async function findings(page: Page, place: string): Promise<string[]> {
  const found: string[] = [];
  for (const [width, colorScheme] of [
    [1280, "light"],
    [390, "dark"],
  ] as const) {
    await page.setViewportSize({ width, height: 900 });
    await page.emulateMedia({ colorScheme });
    const each = await page.evaluate<string[]>(
      `axe.run({ resultTypes: ["violations"] }).then(({ violations }) =>
        violations.flatMap(({ id, nodes }) => nodes.map(({ target, failureSummary }) => [id, target, failureSummary].join(" "))))`,
    );
    found.push(...each.map((finding) => `${place}, ${width} ${colorScheme}: ${finding}`));
  }
  return found;
}

test("every view of the console, its sign-in, its credentials and the manual are without findings of axe-core, wide in light and narrow in the dark", {
  skip: browserMissing(),
}, async (t: TestContext) => {
  const env = { NODE_ENV: "development", SERVICE_CONSOLE_ACCESS_KEY: CONSOLE["x-console-access-key"] };
  const plugins = [pluginFolder(t, PAY_PLUGIN)];
  const [browser, service, closed] = await Promise.all([
    startBrowser(t),
    startService(t, MANIFEST, { plugins, env }),
    startService(t, { name: "Closed", auth: AUTH, agents: {} }, { env }),
  ]);
  const shown = views(await fill(service));
  const patterns = [...readFileSync(MAIN, "utf8").matchAll(/\{ path: "([^"]*)"/g)].map(([, path]) => path!);
  const unseen = patterns.filter((pattern) => {
    const known = new RegExp(`^${pattern.replaceAll(/:\w+/g, "[^/]+")}$`);
    return !shown.some(([path]) => known.test(path.split("?", 1)[0]!));
  });
  assert.deepEqual(unseen, [], "each view is looked at");
  const { page, context } = await openPage(browser);
  await context.addInitScript(AXE);
  await page.goto(service.url);
  await navigation(page).waitFor();
  const found: string[] = [];
  for (const [path, text, act] of shown) {
    await page.setViewportSize({ width: 1280, height: 900 });
    await page.goto(`${service.url}/#/${path}`);
    await page.getByRole("main").getByText(text).first().waitFor();
    await act?.(page);
    found.push(...(await findings(page, path)));
  }
  await page.getByRole("button", { name: "Credentials" }).click();
  found.push(...(await findings(page, "credentials")));
  await page.goto(`${service.url}/docs`);
  await page.getByRole("heading", { level: 1, name: "Tutorial" }).waitFor();
  found.push(...(await findings(page, "docs")));
  await page.goto(closed.url);
  await page.getByRole("button", { name: "Sign in" }).waitFor();
  found.push(...(await findings(page, "sign-in")));
  assert.deepEqual(found, []);
});
