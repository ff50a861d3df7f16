/** A chat in a real browser, with the newest `ai` in the page: it is loaded again in the middle of an answer, and opened in a second tab. */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { build } from "esbuild";
import type { Page } from "playwright-core";
import { browserMissing, openPage, startBrowser } from "../support/browser.ts";
import { heldModel } from "../support/held-model.ts";
import { startService } from "../support/service.ts";

const TOKEN = "token-of-ada-0123456789";
const QUESTION = "And then?";

/** What `useChat({ id: "c", resume: true })` does in a page, without React: it keeps its messages in the page's storage. */
const PAGE = `
import { AbstractChat, DefaultChatTransport } from "ai-7";
const messages = JSON.parse(localStorage.getItem("c") ?? "[]");
const show = () => {
  localStorage.setItem("c", JSON.stringify(messages));
  document.body.replaceChildren(...messages.map(({ role, parts }) => {
    const line = document.createElement("p");
    line.className = role;
    line.textContent = parts.map(({ text }) => text ?? "").join("");
    return line;
  }));
};
const state = {
  status: "ready", error: undefined, messages,
  pushMessage(message) { messages.push(structuredClone(message)); show(); },
  popMessage() { messages.pop(); show(); },
  replaceMessage(index, message) { messages[index] = structuredClone(message); show(); },
  snapshot: (value) => structuredClone(value),
};
class Chat extends AbstractChat {}
const transport = new DefaultChatTransport({
  api: SERVICE + "/agents/teller/chat",
  headers: { authorization: "Bearer ${TOKEN}" },
  body: { options: { resumableStream: true } },
});
window.chat = new Chat({ id: "c", state, transport });
show();
window.chat.resumeStream();
`;

/** A site of one page, which talks to a service at another address. */
async function startSite(t: { after(end: () => unknown): void }, code: () => Promise<string>): Promise<string> {
  const server = createServer(async (request, response) => {
    if (request.url === "/favicon.ico") return void response.writeHead(204).end();
    const isPage = request.url === "/";
    response.setHeader("content-type", isPage ? "text/html" : "text/javascript");
    response.end(
      isPage ? '<!doctype html><title>Chat</title><body></body><script src="/chat.js"></script>' : await code(),
    );
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.closeAllConnections());
  t.after(() => server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const shows = (page: Page, text: string) =>
  page.waitForFunction(`document.querySelector("p.assistant:last-child")?.textContent === ${JSON.stringify(text)}`);
const linesOf = (page: Page) => page.locator("p").allTextContents();

test("GET /agents/:id/chat/:conversationId/stream in a browser: a page that is loaded again in the middle of an answer shows the text and goes on with it, and a second tab does too", {
  skip: browserMissing(),
}, async (t) => {
  const model = heldModel(t);
  let service = "";
  const code = async () => {
    const options = { bundle: true, format: "iife", platform: "browser", write: false, logLevel: "error" } as const;
    const { outputFiles } = await build({
      ...options,
      stdin: { contents: PAGE, resolveDir: import.meta.dirname ?? "test/clients" },
      define: { SERVICE: JSON.stringify(service) },
    });
    return outputFiles[0]!.text;
  };
  const [browser, site] = await Promise.all([startBrowser(t), startSite(t, code)]);
  const manifest = {
    name: "Test",
    version: "1.0.0",
    store: "memory:",
    auth: { mode: "authNext", provider: { use: "static", tokens: { [TOKEN]: { id: "ada" } } } },
    server: { cors: { origin: [site] } },
    providers: { held: model.settings },
    memory: { default: {} },
    agents: { teller: { model: "held/any" } },
  };
  service = (await startService(t, manifest, { plugins: [model.plugins] })).url;
  const { page, context, complaints } = await openPage(browser);
  await page.goto(site);
  model.hold(QUESTION);
  // Not awaited: it resolves with the answer.
  await page.evaluate((text) => {
    (globalThis as unknown as { chat: { sendMessage(message: object): unknown } }).chat.sendMessage({ text });
  }, QUESTION);
  await shows(page, "half 1 ");
  await page.reload();
  const tab = await context.newPage();
  await tab.goto(site);
  const chat = (of: Page) =>
    of.waitForFunction(() => (globalThis as unknown as { chat: { status: string } }).chat.status === "streaming");
  for (const each of [page, tab]) {
    await chat(each);
    await shows(each, "half 1 ");
  }
  model.release(QUESTION);
  for (const each of [page, tab]) {
    await shows(each, "half 1 rest 1");
    assert.deepEqual(await linesOf(each), [QUESTION, "half 1 rest 1"]);
  }
  // Now nothing runs: 204.
  await page.reload();
  assert.deepEqual(await linesOf(page), [QUESTION, "half 1 rest 1"]);
  assert.deepEqual(complaints, []);
});
