/**
 * A real browser against the contract's "CORS" and "WebSocket authentication": pages of an origin that is allowed, and of one
 * that is not.
 */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, describe, test } from "node:test";
import type { Page } from "playwright-core";
import { browserMissing, openPage, startBrowser } from "../support/browser.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { manifestWith, startService, type TestService } from "../support/service.ts";
import { TRANSPORTS } from "../support/transports.ts";

const KEY = "console-key-0123456789";
const TOKEN = "token-of-ada-0123456789";
const PLUGINS = {
  "sockets/whoami.mjs": `export default { kind: "socket", path: "/whoami", open: (peer) => peer.send({ user: peer.user?.id ?? null }) };`,
};

type Outcome = { opened: boolean; first: string | null; code: number | null };

/** In the page: opens a socket, waits for its first message or its end. */
const tried = (page: Page, url: string, protocols: string[] = []) =>
  page.evaluate(
    ([address, names]) =>
      new Promise<Outcome>((resolve) => {
        const socket = new WebSocket(address, names);
        let opened = false;
        socket.onopen = () => {
          opened = true;
        };
        socket.onmessage = ({ data }) => {
          socket.onclose = null;
          socket.close();
          resolve({ opened, first: String(data), code: null });
        };
        socket.onclose = ({ code }) => resolve({ opened, first: null, code });
      }),
    [url, protocols] as const,
  );

/** In the page: the status and body of a fetch, or that it may not be read. */
const fetched = (page: Page, url: string, init: RequestInit) =>
  page.evaluate(
    async ([address, given]) => {
      try {
        const reply = await fetch(address, given);
        return { status: reply.status, id: reply.headers.get("x-request-id") !== null, body: await reply.text() };
      } catch {
        return "refused by the browser";
      }
    },
    [url, init] as const,
  );

describe("in a browser", { skip: browserMissing() }, () => {
  const ends: (() => unknown)[] = [];
  const t = { after: (end: () => unknown) => void ends.push(end) };
  const services = new Map<string, TestService>();
  let app: Page;
  let foreign: Page;

  /** A blank page of an origin of its own. */
  async function site(): Promise<string> {
    const server = createServer((_request, response) => {
      response.setHeader("content-type", "text/html");
      response.end("<!doctype html><title>A page</title>");
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    t.after(() => server.close());
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  }

  before(async () => {
    const browser = await startBrowser(t as never);
    const [allowed, other] = [await site(), await site()];
    for (const transport of TRANSPORTS) {
      const manifest = manifestWith(
        {},
        {
          auth: { mode: "authNext", provider: { use: "static", tokens: { [TOKEN]: { id: "ada" } } } },
          server: { transport, cors: { origin: [allowed], credentials: true } },
          routes: [{ use: "whoami" }],
        },
      );
      const env = { NODE_ENV: "production", SERVICE_CONSOLE_ACCESS_KEY: KEY };
      services.set(
        transport,
        await startService(t as never, manifest, { env, plugins: [pluginFolder(t as never, PLUGINS)] }),
      );
    }
    app = (await openPage(browser)).page;
    foreign = (await openPage(browser)).page;
    await Promise.all([app.goto(allowed), foreign.goto(other)]);
  });
  after(async () => {
    for (const end of ends.reverse()) await end();
  });

  for (const transport of TRANSPORTS) {
    test(`over ${transport}: fetch with credentials and an authorization header, after a preflight, from the allowed origin alone`, async () => {
      const { url } = services.get(transport)!;
      const init = {
        method: "POST",
        credentials: "include",
        headers: { authorization: `Bearer ${TOKEN}`, "content-type": "application/json" },
        body: JSON.stringify({ input: "Hello" }),
      } as const;
      const reply = await fetched(app, `${url}/agents/assistant/text`, init);
      assert.ok(typeof reply === "object" && reply.status === 200 && reply.id, JSON.stringify(reply));
      assert.equal(await fetched(foreign, `${url}/agents/assistant/text`, init), "refused by the browser");
      // A refusal can be read by who may read replies.
      const unknown = await fetched(app, `${url}/agents`, { credentials: "include" });
      assert.ok(typeof unknown === "object" && unknown.status === 401);
      assert.match(unknown.body, /console access required/);
      assert.equal(await fetched(foreign, `${url}/agents`, { credentials: "include" }), "refused by the browser");
    });

    test(`over ${transport}: a socket with ?key= or ?token=, from the allowed origin alone`, async () => {
      const url = services.get(transport)!.url.replace("http", "ws");
      const echo = await tried(app, `${url}/ws?key=${KEY}`);
      assert.ok(echo.opened && echo.first?.includes('"authenticated":true'), JSON.stringify(echo));
      assert.equal((await tried(app, `${url}/whoami?token=${TOKEN}`)).first, '{"user":"ada"}');
      assert.equal((await tried(app, `${url}/whoami?token=${TOKEN}`, ["chat.v1"])).first, '{"user":"ada"}');
      for (const path of ["/ws", "/ws?key=wrong", `/ws?token=${TOKEN}`, `/whoami?key=${KEY}`, "/nowhere"])
        assert.deepEqual(await tried(app, url + path), { opened: false, first: null, code: 1006 }, path);
      for (const path of [`/ws?key=${KEY}`, `/whoami?token=${TOKEN}`])
        assert.deepEqual(await tried(foreign, url + path), { opened: false, first: null, code: 1006 }, path);
    });
  }
});
