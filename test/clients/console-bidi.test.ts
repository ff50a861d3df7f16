/** Characters of a model, a user or an id that turn text around: the console at GET / shows them, and they turn nothing. */
import assert from "node:assert/strict";
import { after, before, describe, type TestContext, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { serveApprovals } from "../support/approvals.ts";
import { browserMissing, startBrowser } from "../support/browser.ts";
import { assertSound, navigation, openConsole } from "../support/console.ts";

/** Shown by a browser as exe.png at its end. */
const TURNED = "\u202egnp.exe";
const SHOWN = "\\u202Egnp.exe";

const MANIFEST = {
  memory: { chats: {} },
  providers: {
    demo: {
      use: "scripted",
      replies: [
        { when: "pay", call: { tool: "pay", input: { amount: 5 } } },
        { when: "file", text: `Open **${TURNED}** or \`${TURNED}\`\n\n- one\n  ${TURNED}` },
      ],
    },
  },
  agents: {
    clerk: { name: "Clerk", model: "demo/echo", tools: ["pay"], memory: "chats" },
  },
};

/** Runs in the page: where it shows a text, the left edges of its characters. */
const EDGES = `(wanted) => {
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node !== null; node = walker.nextNode()) {
    const at = node.textContent.indexOf(wanted);
    if (at === -1) continue;
    const lefts = [];
    for (let index = at; index < at + wanted.length; index++) {
      const range = document.createRange();
      range.setStart(node, index);
      range.setEnd(node, index + 1);
      lefts.push(Math.round(range.getBoundingClientRect().left));
    }
    found.push(lefts);
  }
  return found;
}`;

/** The edges rise from left to right unless something turns the text. */
const edges = (page: Page, text: string): Promise<number[][]> => page.evaluate(`(${EDGES})(${JSON.stringify(text)})`);

describe("text that turns in the console at GET /", { skip: browserMissing() }, () => {
  let browser: Browser;
  const endings: (() => unknown)[] = [];
  const file = { after: (end: () => unknown) => void endings.push(end) } as Pick<TestContext, "after">;
  before(async () => {
    browser = await startBrowser(file);
  });
  after(async () => {
    for (const end of endings) await end();
  });

  async function assertReadAsWritten(page: Page, text: string): Promise<void> {
    await page.getByText(text).first().waitFor();
    const found = await edges(page, text);
    assert.ok(found.length > 0);
    for (const lefts of found)
      assert.deepEqual(
        lefts,
        [...lefts].sort((a, b) => a - b),
        `${text} reads from left to right`,
      );
    assert.ok(
      !/[\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c]/.test(await page.evaluate<string>("document.body.textContent")),
    );
  }

  test("approvals: in ids, inputs, contexts and users they are escapes, and the words after them stand as they are", async (t) => {
    const service = await serveApprovals(t, MANIFEST);
    const memory = { userId: `ada${TURNED}`, conversationId: `c${TURNED}` };
    const options = { memory, context: { file: TURNED } };
    await (await service.post("/agents/clerk/chat", { input: "pay", options })).text();
    const opened = await openConsole(browser, service.url);
    const { page } = opened;
    await navigation(page).getByRole("link", { name: "Inbox" }).click();
    await assertReadAsWritten(page, `c${SHOWN}`);
    await assertReadAsWritten(page, `user ada${SHOWN}`);
    await page.getByText("In this context").waitFor();
    await assertReadAsWritten(page, SHOWN);
    await assertSound(opened);
    await opened.context.close();
  });

  test("approvals: letters that are written from right to left do not take along what stands beside them", async (t) => {
    const service = await serveApprovals(t, MANIFEST);
    const memory = { userId: "אבג", conversationId: "שלום" };
    await (await service.post("/agents/clerk/chat", { input: "pay", options: { memory } })).text();
    const opened = await openConsole(browser, service.url, { viewport: { width: 1000, height: 800 } });
    const { page } = opened;
    await navigation(page).getByRole("link", { name: "Inbox" }).click();
    await page.getByText("שלום").first().waitFor();
    const isolated = await page.locator("bdi").allTextContents();
    assert.ok(isolated.some((text) => text.includes("שלום")) && isolated.some((text) => text.includes("אבג")));
    const box = async (text: string) => (await page.getByRole("article").getByText(text).first().boundingBox())!;
    assert.ok((await box("שלום")).x < (await box("אבג")).x, "the conversation stands before the user");
    await opened.context.close();
  });

  test("the chat: what a model says is shown with escapes, also in Markdown", async (t) => {
    const service = await serveApprovals(t, MANIFEST);
    const opened = await openConsole(browser, `${service.url}/#/agents/clerk`);
    const { page } = opened;
    await page.locator("#chat-text").fill(`file ${TURNED}`);
    await page.locator("#chat-text").press("Enter");
    await page.locator("li", { hasText: "one" }).first().waitFor();
    await assertReadAsWritten(page, SHOWN);
    await assertSound(opened);
    await opened.context.close();
  });
});
