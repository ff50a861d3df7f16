/** What the tests of the console have in front of them: a service, and a page that shows it. */
import assert from "node:assert/strict";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { type OpenedPage, openPage } from "./browser.ts";
import { manifestWith } from "./service.ts";

/** Runs what it says where markup is made of text. */
export const HOSTILE = `<img src=x onerror="document.title='taken over'">`;

const AMOUNT = { type: "object", properties: { amount: { type: "number", minimum: 120 } }, required: ["amount"] };
const APPROVED = { type: "object", properties: { approved: { type: "boolean" } }, required: ["approved"] };

export const CONSOLE_MANIFEST = manifestWith(
  { name: `Helper ${HOSTILE}`, description: "Helps people", tools: ["sum"] },
  {
    name: "Desk",
    tools: { sum: { use: "add" } },
    providers: {
      demo: {
        use: "scripted",
        chunks: 4,
        delay: "400ms",
        replies: [
          { when: "add", call: { tool: "sum", input: { a: 40, b: 2 } }, then: "It is {{ string(result.sum) }}." },
          { when: "busy", error: "unavailable" },
        ],
        models: { slow: { firstDelay: "60s" } },
      },
    },
    agents: {
      assistant: {
        name: `Helper ${HOSTILE}`,
        description: "Helps people",
        instructions: "Help.",
        model: "demo/echo",
        memory: false,
        tools: ["sum"],
      },
      slow: { name: "Slow", description: "Waits", instructions: "Wait.", model: "demo/slow", memory: false },
    },
    workflows: {
      refund: {
        name: "Refund",
        purpose: "Refund an order, with approval",
        input: AMOUNT,
        resume: APPROVED,
        steps: [
          { id: "check", name: `Check ${HOSTILE}`, andThen: { set: { amount: "{{ input.amount }}" } } },
          {
            id: "gate",
            name: "Large ones are asked about",
            andWhen: {
              if: "input.amount > 100",
              then: { id: "ask", name: "Ask a person", andThen: { suspend: { reason: "Needs approval" } } },
            },
          },
          { id: "pay", andThen: { set: { paid: "{{ input.amount }}" } } },
        ],
      },
      waiting: { name: "Waiting", steps: [{ id: "wait", andAgent: { agent: "slow", prompt: "Wait." } }] },
    },
  },
);

/** Opens the console at an address. What the page complains of is in `complaints`. */
export async function openConsole(
  browser: Browser,
  address: string,
  options?: BrowserContextOptions,
): Promise<OpenedPage> {
  const opened = await openPage(browser, options);
  await opened.page.goto(address);
  await navigation(opened.page).waitFor();
  return opened;
}

export const navigation = (page: Page) => page.getByRole("navigation", { name: "Console" });

/** Goes to a view by the bar. */
export async function visit(page: Page, name: string): Promise<void> {
  await navigation(page).getByRole("link", { name }).click();
  await page.getByRole("heading", { level: 1, name }).waitFor();
}

/** Nothing that a service says has run, and the page has broken none of its own rules. */
export async function assertSound({ page, complaints }: OpenedPage): Promise<void> {
  assert.notEqual(await page.title(), "taken over");
  assert.equal(await page.locator("img:not([src^='data:image/'])").count(), 0);
  assert.deepEqual(complaints, []);
}
