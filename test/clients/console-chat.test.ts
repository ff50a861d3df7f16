/** The console at `GET /`: chats with an agent that remembers, tools that are run by hand, and what is in memory. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, describe, type TestContext, test } from "node:test";
import type { Browser, Page } from "playwright-core";
import { PAY_PLUGIN } from "../support/approvals.ts";
import { browserMissing, type OpenedPage, startBrowser } from "../support/browser.ts";
import { assertSound, HOSTILE, openConsole, visit } from "../support/console.ts";
import { weakTexts } from "../support/contrast.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import type { Loose } from "../support/served-upstream.ts";
import { manifestWith, startService, type TestService } from "../support/service.ts";

const MARKDOWN = [
  "# Prices",
  "",
  "They are **low**, *very* `low`: see [the list](https://example.com/list) or [run](javascript:alert(1)).",
  "",
  "- one",
  "  1. within",
  "- two",
  "",
  "| City | Days |",
  "| --- | ---: |",
  `| Porto | ${HOSTILE} |`,
  "",
  "```html",
  `<script>document.title = "taken over"</script>`,
  "",
  "still code",
  "```",
  "> quoted",
].join("\n");

/** A picture of one pixel. */
const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
const HOUSE = [
  { type: "text", text: `The house ${HOSTILE}` },
  { type: "image-data", data: PNG, mediaType: "image/png", filename: "house.png" },
  { type: "image-data", data: PNG, mediaType: 'text/html,<b>"' },
  { type: "file-data", data: "AAAA", mediaType: "audio/wav", filename: "bell.wav" },
  { type: "image-url", url: "https://example.com/house.png" },
  { type: "file-url", url: "javascript:alert(1)" },
];
const HOUSE_PLUGIN = {
  "tools/house.mjs": `export default { kind: "tool", name: "house", description: "Shows a house",
    execute: () => (${JSON.stringify({ type: "content", value: HOUSE })}) };`,
};

const MANIFEST = manifestWith(
  {},
  {
    providers: {
      demo: {
        use: "scripted",
        chunks: 40,
        replies: [
          { when: "prices", text: MARKDOWN },
          { when: "hello", text: "Good day." },
          { when: "crash", text: "It goes", error: "overloaded" },
          { when: "house", call: { tool: "house", input: {} }, then: "Here it is." },
          {
            when: "pay (\\d+)",
            call: { tool: "pay", input: { amount: "{{ int(match[1]) }}" } },
            then: "Paid {{ string(result.paid) }}.",
          },
        ],
        models: { "echo*": { prices: { input: 1000, output: 1000, asOf: "2026-11-22" } } },
      },
    },
    memory: { default: { workingMemory: { scope: "conversation", format: "markdown", template: "# Customer" } } },
    tools: { sum: { use: "add" }, pay: { use: "pay", approval: true }, house: { use: "house" } },
    agents: {
      assistant: {
        name: "Assistant",
        description: "Helps",
        instructions: "Help in {{ has(context.language) ? context.language : 'English' }}.",
        model: "demo/echo",
        tools: ["sum", "pay", "house"],
      },
    },
  },
);

/** What Markdown may become. */
const ALLOWED = "a blockquote br code div em h4 h5 h6 hr li ol p pre s strong table tbody td th thead tr ul".split(" ");

describe("chats, tools and memory in the console at GET /", { skip: browserMissing() }, () => {
  let browser: Browser;
  let service: TestService;
  let opened: OpenedPage;
  let page: Page;
  const endings: (() => unknown)[] = [];
  const file = { after: (end: () => unknown) => void endings.push(end) } as TestContext;

  before(async () => {
    const plugins = [pluginFolder(file, { ...PAY_PLUGIN, ...HOUSE_PLUGIN })];
    [browser, service] = await Promise.all([startBrowser(file), startService(file, MANIFEST, { plugins })]);
    opened = await openConsole(browser, service.url);
    page = opened.page;
  });
  after(async () => {
    for (const end of endings) await end();
  });

  const say = async (text: string) => {
    await page.getByRole("textbox", { name: "Your message" }).fill(text);
    await page.keyboard.press("Enter");
  };
  /** Two looks of the page at what is stored: the first may have begun before. */
  async function nextLook(page: Page) {
    for (let looks = 0; looks < 2; looks++) await page.waitForResponse(/\/messages\?/);
  }
  const answer = () => page.getByRole("log", { name: "Conversation" }).locator(".answer").last();

  test("agents: an answer in Markdown is shown as such and runs nothing, with its tokens, model, cost and a link to its trace", async () => {
    await page.goto(`${service.url}/#/agents/assistant`);
    await say("prices please");
    await answer().getByRole("link", { name: "Trace" }).waitFor();
    assert.equal(await answer().getByRole("heading").textContent(), "Prices", (await answer().textContent()) ?? "");
    assert.equal(
      await answer().getByRole("link", { name: "the list" }).getAttribute("href"),
      "https://example.com/list",
    );
    assert.equal(await answer().getByRole("link", { name: "run" }).count(), 0);
    assert.deepEqual(await answer().locator("li").allTextContents(), ["onewithin", "within", "two"]);
    assert.equal(await answer().getByRole("cell").last().textContent(), HOSTILE);
    assert.match((await answer().locator("pre").textContent()) ?? "", /<script>.*\n\nstill code$/);
    assert.match(
      (await answer().locator(".answer-facts").textContent()) ?? "",
      /^\d+ tokens.*s.*demo\/echo.*\$0\.\d+Trace$/,
    );
    await nextLook(page);
    await answer().getByRole("link", { name: "Trace" }).click();
    await page.getByRole("button", { name: "invoke_agent Assistant" }).waitFor();
    await assertSound(opened);
  });

  test("agents: why an answer failed stays in the chat, and what an answer took stays behind the next one", async () => {
    const { page } = await openConsole(browser, `${service.url}/#/agents/assistant`);
    const chat = page.getByRole("log", { name: "Conversation" });
    for (const [index, words] of ["prices please", "crash", "prices again"].entries()) {
      await page.getByRole("textbox", { name: "Your message" }).fill(words);
      await page.keyboard.press("Enter");
      await chat.locator(".answer-facts").nth(index).waitFor();
      await nextLook(page);
    }
    assert.equal(await chat.locator(".answer-facts").count(), 3);
    assert.equal(await chat.getByRole("alert").count(), 1);
    // What others say just then is none of it.
    await page.getByRole("textbox", { name: "Your message" }).fill("crash");
    await page.keyboard.press("Enter");
    await chat.getByRole("alert").nth(1).waitFor();
    const conversationId = /conversation=([^&]+)/.exec(page.url())![1]!;
    await service.post("/agents/assistant/text", { input: "hello there", options: { memory: { conversationId } } });
    await chat.getByText("hello there").waitFor();
    await page.context().close();
  });

  test("Markdown of a model becomes plain elements alone, and its links lead to web pages and mail alone", async () => {
    const texts = [
      MARKDOWN,
      HOSTILE,
      "[a](data:text/html,x) [b](vbscript:x) [c](JavaScript:x) [d](/x) [e](mailto:a@example.com) https://example.com/x",
      "<svg onload=alert(1)>\n# <b>x</b>\n- <i>y</i>\n> <u>z</u>",
      "![image](https://example.com/x.png)",
      "```\nno end",
      "|a|b|\n|-|-|\n|only one",
      "-".repeat(5000),
      `${"[".repeat(3000)}${"*".repeat(3000)}${"`".repeat(3000)}`,
      "- a\n      - b\n  - c\n 7. d\n\ttext",
    ];
    // The console is served as one script. Its modules are what is looked at here.
    await page.route(/\/console\/(?!main)[\w-]+\.js$/, async (route) => {
      const name = new URL(route.request().url()).pathname.split("/").at(-1)!;
      const body = readFileSync(new URL(`../../core/api/pages/console/${name}`, import.meta.url), "utf8");
      await route.fulfill({ contentType: "text/javascript", body });
    });
    const seen = await page.evaluate<{ tags: string[]; links: string[]; handlers: number }>(`(async () => {
      const { markdownBlocks } = await import("./console/markdown.js");
      const all = ${JSON.stringify(texts)}.flatMap(markdownBlocks).flatMap((block) => [block, ...block.querySelectorAll("*")]);
      return {
        tags: [...new Set(all.map((each) => each.localName))],
        links: all.filter((each) => each.localName === "a").map((each) => new URL(each.href).protocol),
        handlers: all.filter((each) => [...each.attributes].some(({ name }) => name.startsWith("on"))).length,
      };
    })()`);
    assert.deepEqual(
      seen.tags.filter((tag) => !ALLOWED.includes(tag)),
      [],
    );
    assert.deepEqual([...new Set(seen.links)].sort(), ["https:", "mailto:"]);
    assert.equal(seen.handlers, 0);
  });

  test("agents: a new chat begins a conversation of its user, which is found by its words and goes on", async () => {
    await page.goto(`${service.url}/#/agents/assistant`);
    await page.reload();
    await page.getByText("User, conversation, context and temperature").click();
    await page.getByLabel("User", { exact: true }).fill("ada");
    await page.getByLabel("Context").fill('{"language": "Portuguese"}');
    await say("hello, where is my parcel?");
    await answer().getByText("Good day.").waitFor();
    const list = page.getByRole("region", { name: "Conversations" });
    await list.getByRole("link", { name: "hello, where is my parcel?" }).waitFor();
    await page.getByRole("button", { name: "New chat" }).click();
    assert.equal(await page.getByRole("log").isVisible(), false);
    await say("something else");
    await list.getByRole("link", { name: "something else" }).waitFor();
    await list.getByRole("searchbox").fill("PARCEL");
    await list.getByRole("link", { name: "something else" }).waitFor({ state: "detached" });
    await list.getByRole("link", { name: "hello, where is my parcel?" }).click();
    await answer().getByText("Good day.").waitFor();
    await say("and again hello");
    await answer().getByRole("link", { name: "Trace" }).waitFor();
    const { data } = (await (await service.get("/api/memory/conversations?userId=ada")).json()) as {
      data: { conversations: { id: string; title: string }[] };
    };
    const found = data.conversations.find(({ title }) => title.includes("parcel"))!;
    const stored = await (await service.get(`/api/memory/conversations/${found.id}/messages?userId=ada`)).json();
    assert.equal((stored as { data: { messages: unknown[] } }).data.messages.length, 4, "one conversation");
    await assertSound(opened);
  });

  test("agents: pictures that a tool returned are shown in the chat, in the stored conversation, on the page of the run and of the tool", async () => {
    const memory = { conversationId: "houses", userId: "hal" };
    const options = { memory, background: true, runId: "house-run" };
    assert.equal((await service.post("/agents/assistant/text", { input: "the house", options })).status, 202);
    await page.goto(`${service.url}/#/agents/assistant`);
    await page.reload();
    await say("the house please");
    await answer().getByText("Here it is.").waitFor();
    for (const path of [
      "",
      "runs/assistant/house-run",
      "memory/assistant/houses?userId=hal",
      "agents/assistant?conversation=houses&userId=hal",
      "tools/house",
    ]) {
      if (path !== "") await page.goto(`${service.url}/#/${path}`);
      const shown = page.getByRole("main");
      if (path === "tools/house") await page.getByRole("button", { name: "Run" }).click();
      else await shown.getByText("Tool house").last().click();
      const picture = shown.getByRole("img", { name: "house.png" });
      await picture.waitFor();
      assert.equal(await picture.evaluate((image: Loose) => image.decode().then(() => image.naturalWidth)), 1, path);
      await shown.getByText(`The house ${HOSTILE}`).waitFor();
      await shown.getByText("bell.wav (audio/wav)").waitFor();
      await shown.getByText('text/html,<b>"').first().waitFor();
      assert.deepEqual(
        await shown.locator(".content a").evaluateAll((links) => links.map((each) => each.getAttribute("href"))),
        ["https://example.com/house.png"],
        path,
      );
      await assertSound(opened);
    }
  });

  test("agents: an answer that waits for a person goes on in the open page, in another one and after a reload, whoever says yes", async () => {
    await page.goto(`${service.url}/#/agents/assistant`);
    await page.reload();
    await page.getByText("User, conversation, context and temperature").click();
    await page.getByLabel("User", { exact: true }).fill("kim");
    await page.getByLabel("Temperature").fill("0.5");
    await say("pay 31");
    await answer().getByRole("button", { name: "Approve" }).waitFor();
    await page.waitForURL(/#\/agents\/assistant\?conversation=console-\w+&userId=kim$/);
    const other = await openConsole(browser, page.url());
    const there = other.page.getByRole("log", { name: "Conversation" }).locator(".answer").last();
    await there.getByRole("button", { name: "Approve" }).waitFor();
    await page.reload();
    await answer().getByRole("button", { name: "Approve" }).waitFor();
    await there.getByRole("button", { name: "Approve" }).click();
    for (const shown of [answer(), there]) {
      await shown.getByText("Paid 31.").waitFor();
      await shown.getByText("Tool pay done").waitFor();
      assert.equal(await shown.getByRole("button", { name: "Approve" }).count(), 0);
    }
    const { data: runs } = (await (await service.get("/agents/assistant/runs?limit=1")).json()) as {
      data: { runId: string }[];
    };
    const run = await openConsole(browser, `${service.url}/#/runs/assistant/${runs[0]!.runId}`);
    await run.page.getByRole("region", { name: "Input" }).getByText("pay 31").waitFor();
    await run.page.getByRole("region", { name: "Answer" }).getByText("Paid 31.").waitFor();
    await run.page.getByRole("link", { name: "of this run" }).click();
    await run.page.getByRole("button", { name: "invoke_agent Assistant" }).waitFor();
    await run.context.close();
    await other.page.getByRole("textbox", { name: "Your message" }).fill("hello from the other page");
    await other.page.keyboard.press("Enter");
    await page.getByRole("log").getByText("hello from the other page").waitFor();
    await answer().getByText("Good day.").waitFor();
    const conversation = page.url();
    await page.getByRole("button", { name: "New chat" }).click();
    assert.equal(await page.getByRole("log").isVisible(), false);
    await page.goBack();
    await page.waitForURL(conversation);
    await page.getByRole("log").getByText("Paid 31.").waitFor();
    await assertSound(opened);
    await other.context.close();
  });

  test("agents: a question that the next message supersedes is shown as withdrawn in the open page", async () => {
    await page.goto(`${service.url}/#/agents/assistant`);
    await page.reload();
    await page.getByText("User, conversation, context and temperature").click();
    await page.getByLabel("User", { exact: true }).fill("sue");
    await say("pay 77");
    await answer().getByRole("button", { name: "Approve" }).waitFor();
    // From now on there is one view of the run: the page follows it from its beginning.
    await page.waitForURL(/conversation=console-\w+&userId=sue$/);
    await page.reload();
    await answer().getByRole("button", { name: "Approve" }).waitFor();
    await say("hello instead");
    await answer().getByText("Good day.").waitFor();
    const log = page.getByRole("log", { name: "Conversation" });
    await log.getByText("“superseded”").waitFor();
    await log.getByText("Tool pay withdrawn").waitFor();
    assert.equal(await log.getByRole("button", { name: "Approve" }).count(), 0);
    // Where it cannot be read why, the next look at the conversation takes the question away.
    const withdrawn = "**/approvals?status=withdrawn*";
    await page.route(withdrawn, (route) => route.fulfill({ status: 503, json: { error: "away" } }));
    await say("pay 78");
    await log.getByRole("button", { name: "Approve" }).waitFor();
    await say("hello again");
    await log.getByRole("button", { name: "Approve" }).waitFor({ state: "detached" });
    await log.getByText("Tool pay refused").last().waitFor();
    await page.unroute(withdrawn);
    await assertSound({ ...opened, complaints: opened.complaints.filter((text) => !text.includes("status of 503")) });
    opened.complaints.length = 0;
  });

  test("agents: what is said before the page knows the agent, or has the conversation, is answered there and not lost", async () => {
    const options = { memory: { conversationId: "lates", userId: "lin" } };
    await service.post("/agents/assistant/text", { input: "first words", options });
    for (const [path, late] of [
      ["agents/assistant", "**/agents/assistant"],
      ["agents/assistant?conversation=lates&userId=lin", "**/conversations/lates/messages?*"],
    ] as const) {
      let release = () => {};
      const released = new Promise<void>((resolve) => {
        release = resolve;
      });
      await page.route(late, async (route) => {
        await released;
        await route.continue();
      });
      await page.goto(`${service.url}/#/${path}`);
      await page.reload();
      await say(`hello to ${path}`);
      release();
      await answer().getByText("Good day.").waitFor();
      await page.getByRole("log").getByText(`hello to ${path}`).waitFor();
      await page.unroute(late);
    }
    await page.getByRole("log").getByText("first words").first().waitFor();
    await page.getByRole("region", { name: "Conversations" }).getByRole("link", { name: "hello to agents" }).waitFor();
    await assertSound(opened);
  });

  test("memory: a conversation is found, with its messages and its working memory", async () => {
    await service.post("/agents/assistant/text", {
      input: "hello from Grace",
      options: { memory: { conversationId: "graces", userId: "grace" } },
    });
    await service.post("/api/memory/conversations/graces/working-memory", {
      content: "# Customer\n\n- **prefers** tea",
    });
    await visit(page, "Memory");
    await page.getByRole("searchbox").fill("grace");
    await page.getByRole("link", { name: "hello from Grace" }).click();
    const messages = page.getByRole("region", { name: "Messages" });
    await messages.getByText("hello from Grace").waitFor();
    await messages.getByText("Good day.").waitFor();
    await page.getByRole("region", { name: "Working memory" }).locator("strong").getByText("prefers").waitFor();
    await page.getByRole("link", { name: "go on with it" }).click();
    await answer().getByText("Good day.").waitFor();
    await assertSound(opened);
  });

  test("tools: one is run with a form that its schema makes, and one that a person must approve runs after the yes", async () => {
    await visit(page, "Tools");
    await page.getByRole("link", { name: "sum" }).click();
    await page.getByLabel("a", { exact: true }).fill("40");
    await page.getByLabel("b", { exact: true }).fill("2");
    await page.getByRole("button", { name: "Run" }).click();
    await page.getByText('"sum": 42').waitFor();
    await page.goto(`${service.url}/#/tools/pay`);
    await page.getByLabel("amount").fill("7");
    await page.getByRole("button", { name: "Run" }).click();
    await page.getByRole("alert").filter({ hasText: "approval" }).waitFor();
    const list = (await (await service.get("/approvals")).json()) as { data: { approvalId: string }[] };
    await service.post(`/approvals/${list.data[0]!.approvalId}`, { approved: true });
    await page.getByRole("button", { name: "Run" }).click();
    await page.getByText('"paid": 7').waitFor();
    await assertSound({ ...opened, complaints: opened.complaints.filter((text) => !text.includes("status of 409")) });
    opened.complaints.length = 0;
  });

  for (const colorScheme of ["light", "dark"] as const) {
    test(`chats, tools and memory in the console are legible in ${colorScheme}, and fit a narrow screen`, async () => {
      await service.post("/agents/assistant/text", {
        input: "prices please",
        options: { memory: { conversationId: "priced", userId: "eve" } },
      });
      await page.emulateMedia({ colorScheme });
      await page.setViewportSize({ width: 390, height: 800 });
      for (const [path, shown] of [
        ["tools", "Adds"],
        ["tools/sum", "Run it"],
        ["memory", "prices please"],
        ["memory/assistant/priced?userId=eve", "still code"],
        ["agents/assistant?conversation=priced&userId=eve", "still code"],
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
