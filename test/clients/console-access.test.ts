/** The console at `GET /` where the service asks for credentials, and where a proxy has put it below a path. */
import assert from "node:assert/strict";
import { after, before, describe, type TestContext, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { browserMissing, openPage, startBrowser } from "../support/browser.ts";
import { assertSound, CONSOLE_MANIFEST, openConsole, visit } from "../support/console.ts";
import { weakTexts } from "../support/contrast.ts";
import { startCutProxy } from "../support/cut-proxy.ts";
import { startPrefixProxy } from "../support/prefix-proxy.ts";
import { startService } from "../support/service.ts";
import { SECRET, token } from "../support/tokens.ts";

const KEY = "the key of the console";
const AUTH = { mode: "authNext", provider: { use: "jwt", secret: SECRET } };

/** Moments and texts of the lines of the log that are shown, with what is bound to each. */
const LINES = `[...document.querySelectorAll(".lines > div")].map((line) => [
  line.querySelector("time").dateTime,
  line.textContent,
])`;

describe("the console at GET /", { skip: browserMissing() }, () => {
  let browser: Browser;
  const endings: (() => unknown)[] = [];
  const file = { after: (end: () => unknown) => void endings.push(end) } as Pick<TestContext, "after">;

  before(async () => {
    browser = await startBrowser(file);
  });

  after(async () => {
    for (const end of endings) await end();
  });

  const credentials = async (page: Page, label: string, value: string) => {
    await page.getByRole("button", { name: "Credentials" }).click();
    await page.getByRole("dialog", { name: "Credentials" }).getByLabel(label).fill(value);
    await page.getByRole("button", { name: "Save" }).click();
  };
  const say = async (page: Page, text: string) => {
    await page.getByRole("textbox", { name: "Your message" }).fill(text);
    await page.keyboard.press("Enter");
  };

  test("under authNext: the key leaves the address and opens the lists; chats and runs ask for a token", async (t) => {
    const env = { NODE_ENV: "production", SERVICE_CONSOLE_ACCESS_KEY: KEY };
    const service = await startService(t, { ...CONSOLE_MANIFEST, auth: AUTH }, { env });
    const refused = await fetch(service.url);
    assert.equal(refused.status, 401, "the page itself is in the class of GET /");
    assert.equal((await fetch(`${service.url}/console/main.js`)).status, 200, "its files say nothing of the service");

    const opened = await openConsole(browser, `${service.url}/?key=${encodeURIComponent(KEY)}`);
    const { page, context } = opened;
    assert.equal(page.url(), `${service.url}/`);
    const explorer = await page.getByRole("link", { name: "API explorer" }).getAttribute("href");
    assert.equal(new URLSearchParams(explorer!.split("?")[1]).get("key"), KEY, "links of the landing page carry it");
    await visit(page, "Agents");
    await page.getByRole("link", { name: "Helper" }).click();
    await say(page, "Hello there");
    const { error } = (await (await fetch(`${service.url}/agents/x/text`, { method: "POST" })).json()) as {
      error: string;
    };
    await page.getByRole("alert").filter({ hasText: error }).waitFor();
    await credentials(page, "User token", token({ sub: "ada" }));
    await say(page, "Hello there");
    await page.getByRole("log").locator(".answer").getByText("Hello there").waitFor();
    await context.close();
  });

  test("agents under authNext: the refusal of an expired token is no alert any more once the next message is answered", async (t) => {
    const service = await startService(
      t,
      { ...CONSOLE_MANIFEST, auth: AUTH },
      { env: { NODE_ENV: "production", SERVICE_CONSOLE_ACCESS_KEY: KEY } },
    );
    const { page, context } = await openConsole(browser, `${service.url}/?key=${encodeURIComponent(KEY)}`);
    await visit(page, "Agents");
    await page.getByRole("link", { name: "Helper" }).click();
    let isExpired = true;
    await page.route("**/stream", (route) =>
      route.continue({
        headers: {
          ...route.request().headers(),
          authorization: `Bearer ${isExpired ? token({ sub: "ada", exp: 1 }) : token({ sub: "ada" })}`,
        },
      }),
    );
    await say(page, "Hello there");
    const log = page.getByRole("log");
    await log.getByRole("alert").waitFor();
    isExpired = false;
    await say(page, "Hello again");
    await log.locator(".answer").getByText("Hello again").waitFor();
    await log.getByText("Not sent.").waitFor();
    assert.equal(await log.getByRole("alert").count(), 0);
    await context.close();
  });

  test("GET / under authNext is a page to sign in with for a browser, which a reload does not ask again, and JSON for programs", async (t) => {
    const env = { NODE_ENV: "production", SERVICE_CONSOLE_ACCESS_KEY: KEY };
    const service = await startService(t, { ...CONSOLE_MANIFEST, auth: AUTH }, { env });
    const program = await service.get("/", { accept: "application/json" });
    assert.deepEqual([program.status, program.headers.get("content-type")], [401, "application/json; charset=utf-8"]);
    const shown = await service.get("/", { accept: "text/html,application/xhtml+xml,*/*;q=0.8" });
    assert.deepEqual([shown.status, shown.headers.get("x-error-code")], [401, "unauthorized"]);
    assert.equal(shown.headers.get("vary"), "accept");
    assert.match(shown.headers.get("content-type") ?? "", /^text\/html/);
    assert.match(shown.headers.get("www-authenticate") ?? "", /ConsoleKey/);
    assert.match(
      shown.headers.get("content-security-policy") ?? "",
      /default-src 'none'.*require-trusted-types-for 'script'/,
    );
    assert.doesNotMatch(await shown.text(), /Desk|Helper|refund/, "it says nothing of the service");

    const { page, context } = await openPage(browser, { viewport: { width: 390, height: 800 } });
    await page.goto(`${service.url}/#/agents`);
    await page.getByRole("heading", { name: "Sign in" }).waitFor();
    assert.deepEqual((await weakTexts(page)).weak, []);
    assert.equal(await page.evaluate("document.documentElement.scrollWidth"), 390);
    await page.getByLabel("Console key").fill("another key");
    await page.keyboard.press("Enter");
    await page.getByRole("alert").filter({ hasText: "key is wrong" }).waitFor();
    await page.getByLabel("Console key").fill(KEY);
    await page.keyboard.press("Enter");
    await page.getByRole("link", { name: "Helper" }).waitFor();
    assert.equal(await page.title(), "Agents · Desk");
    await page.reload();
    await page.getByRole("link", { name: "Helper" }).waitFor();
    await visit(page, "Traces");
    await context.close();
  });

  test("under authNext: with the key alone an execution shows what was written down; the token follows it", async (t) => {
    const env = { NODE_ENV: "production", SERVICE_CONSOLE_ACCESS_KEY: KEY };
    const service = await startService(t, { ...CONSOLE_MANIFEST, auth: AUTH }, { env });
    const ada = token({ sub: "ada" });
    await service.post(
      "/workflows/refund/execute",
      { input: { amount: 200 }, options: { executionId: "adas" } },
      { authorization: `Bearer ${ada}` },
    );
    const { page, context } = await openConsole(browser, `${service.url}/?key=${encodeURIComponent(KEY)}#/executions`);
    await page.getByRole("link", { name: "adas" }).click();
    const ask = page.getByRole("listitem").filter({ hasText: "Ask a person" }).last();
    await ask.getByText("suspended").waitFor();
    await page.getByRole("alert").first().waitFor();
    await credentials(page, "User token", ada);
    await page.getByText("What happened, in order").click();
    await page.getByText("workflow-suspended").waitFor();
    await page.getByRole("button", { name: "Approve" }).click();
    await page.getByRole("region", { name: "Result" }).getByText('"paid": 200').waitFor();
    await context.close();
  });

  test("the bypass of development opens all of it, and goes with every call", async (t) => {
    const env = { NODE_ENV: "development", SERVICE_CONSOLE_ACCESS_KEY: KEY };
    const service = await startService(t, { ...CONSOLE_MANIFEST, auth: { ...AUTH, publicRoutes: ["GET /"] } }, { env });
    const { page, context } = await openConsole(browser, `${service.url}/#/agents`);
    await page.getByRole("alert").waitFor();
    await page.getByRole("button", { name: "Credentials" }).click();
    await page.getByLabel("Development bypass").check();
    await page.keyboard.press("Enter");
    await page.getByRole("link", { name: "Helper" }).click();
    await say(page, "Hello there");
    await page.getByRole("log").locator(".answer").getByText("Hello there").waitFor();
    await page.reload();
    await page.getByRole("main").getByText("Helps people").waitFor();
    await context.close();
  });

  test("a connection that is lost while an execution is followed is taken up again", async (t) => {
    const service = await startService(t, CONSOLE_MANIFEST);
    const proxy = await startCutProxy({ host: "127.0.0.1", port: service.port });
    t.after(() => proxy.close());
    const begun = service.post("/workflows/waiting/execute", { input: null, options: { executionId: "lost" } });
    const { page, context } = await openConsole(browser, `http://127.0.0.1:${proxy.port}/`);
    proxy.cut("executions/lost/stream", "answered");
    await page.goto(`http://127.0.0.1:${proxy.port}/#/workflows/waiting/executions/lost`);
    const wait = page.getByRole("listitem").filter({ hasText: "wait" }).last();
    await wait.getByText("running").waitFor();
    assert.equal(proxy.cuts, 1);
    assert.equal((await service.post("/workflows/waiting/executions/lost/cancel", {})).status, 200);
    await wait.getByText("cancelled").waitFor();
    assert.equal(await page.getByRole("alert").count(), 0);
    await begun;
    await context.close();
  });

  test("below a path of a proxy everything is found: files, calls, streams and the live log", async (t) => {
    const service = await startService(t, CONSOLE_MANIFEST);
    const address = await startPrefixProxy(t, { prefix: "/desk", port: service.port, sockets: true });
    const opened = await openConsole(browser, address);
    const { page, context } = opened;
    await visit(page, "Workflows");
    await page.getByRole("link", { name: "Refund" }).click();
    await page.getByRole("textbox", { name: "Input (JSON)" }).fill('{"amount": 300}');
    await page.getByRole("button", { name: "Run" }).click();
    await page.getByText("Needs approval").waitFor();
    await visit(page, "Logs");
    await page.getByRole("status").filter({ hasText: "Live." }).waitFor();
    await assertSound(opened);
    await context.close();
  });

  test("where no WebSocket comes through, lines of the log are asked for: each once, in their order", async (t) => {
    const service = await startService(t, CONSOLE_MANIFEST);
    const address = await startPrefixProxy(t, { prefix: "/desk", port: service.port, sockets: false });
    for (let line = 0; line < 6; line++) await service.get("/agents");
    const { page, context } = await openConsole(browser, `${address}#/logs?level=debug`);
    await page.getByRole("status").filter({ hasText: "Not live: asked for every 2 s." }).waitFor();
    service.logger.warn("another line");
    await page.getByRole("log", { name: "Log" }).getByText("another line").waitFor();
    const lines = await page.evaluate<[string, string][]>(LINES);
    assert.ok(lines.length > 5);
    const moments = lines.map(([moment]) => moment);
    assert.deepEqual(moments, moments.toSorted(), "the newest last");
    assert.equal(new Set(lines.map(([, text]) => text)).size, lines.length, "each of them once");
    await context.close();
  });
});
