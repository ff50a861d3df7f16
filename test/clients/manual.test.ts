/** The manual at `GET /docs` in a browser: its chapters, its links and its search, with what the package has and nothing else. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { browserMissing, openPage, startBrowser } from "../support/browser.ts";
import { weakTexts } from "../support/contrast.ts";
import { DOCUMENTS } from "../support/documents.ts";
import { manifestWith, startService } from "../support/service.ts";

const KEY = "the key of the console";

async function openManual(t: TestContext) {
  const auth = { mode: "authNext", provider: { use: "jwt", secret: "a secret of thirty-two characters or more" } };
  const env = { NODE_ENV: "production", SERVICE_CONSOLE_ACCESS_KEY: KEY };
  const service = await startService(t, manifestWith({}, { auth }), { env });
  const opened = await openPage(await startBrowser(t));
  const foreign: string[] = [];
  opened.page.on("request", (request) => {
    if (!request.url().startsWith(service.url)) foreign.push(request.url());
  });
  await opened.page.goto(`${service.url}/docs?key=${encodeURIComponent(KEY)}`);
  return { ...opened, service, foreign };
}

test("GET /docs shows the tutorial first, a chapter by its link at the place that is named, and finds sections by their words", {
  skip: browserMissing(),
}, async (t) => {
  const { page, complaints, foreign, service } = await openManual(t);
  assert.equal((await fetch(`${service.url}/docs`)).status, 401, "the page is in the class of GET /ui");
  await page.getByRole("heading", { level: 1, name: "Tutorial" }).waitFor();
  const address = page.getByRole("main").getByRole("link", { name: "http://127.0.0.1:3141/" }).first();
  assert.match((await address.locator("..").textContent()) ?? "", /^Open http:\S+ beside it/);
  const chapters = page.locator("#chapters").getByRole("link");
  assert.equal(
    await chapters.count(),
    [...DOCUMENTS.keys()].filter((path) => /^docs\/(?!decisions)/.test(path)).length,
  );
  // A link to another chapter, and one to a heading of it.
  await page.getByRole("link", { name: "Access", exact: true }).last().click();
  await page.getByRole("heading", { level: 1, name: "Access" }).waitFor();
  await page.goto(`${page.url().split("#")[0]}#reference.manifest:agentsid`);
  await page.getByRole("heading", { level: 2, name: "agents.ID", exact: true }).waitFor();
  const link = page.getByRole("link", { name: "agents.ID.options", exact: true });
  await link.click();
  assert.match(page.url(), /#reference\.manifest:agentsidoptions$/);
  // Words in any order, and their beginnings.
  await page.getByRole("searchbox", { name: "Search" }).fill("heartbeat lease postg");
  await page
    .getByRole("navigation", { name: "Manual" })
    .getByRole("link", { name: /PostgreSQL/ })
    .first()
    .waitFor();
  assert.ok((await chapters.count()) < 40);
  await page.getByRole("searchbox", { name: "Search" }).fill("zzzz");
  await page.getByText("Nothing has all of these words.").waitFor();
  assert.deepEqual((await weakTexts(page)).weak, []);
  assert.deepEqual([complaints, foreign], [[], []]);
});

test("GET /docs takes the key out of the address at once, keeps it out of its links, and is there after a reload", {
  skip: browserMissing(),
}, async (t) => {
  const { page } = await openManual(t);
  await page.getByRole("heading", { level: 1, name: "Tutorial" }).waitFor();
  assert.equal(page.url().includes("key="), false, page.url());
  assert.equal(await page.locator('a[href*="key="]').count(), 0);
  await page.reload();
  await page.getByRole("heading", { level: 1, name: "Tutorial" }).waitFor();
});
