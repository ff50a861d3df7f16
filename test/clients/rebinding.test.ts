/**
 * A real browser against a service without authentication on the loopback: what a page can do whose name was made to lead here (DNS
 * rebinding), what a page of another site can do, and what the service's own page can.
 */
import assert from "node:assert/strict";
import { existsSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import type { Page } from "playwright-core";
import { browserMissing, openPage, startBrowser } from "../support/browser.ts";
import { FIXTURES } from "../support/fixtures.ts";
import { manifestWith, startService, type TestService } from "../support/service.ts";
import { TRANSPORTS } from "../support/transports.ts";

const EVIL = "evil.example";
const SUM = JSON.stringify({ input: { a: 1, b: 2 } });
const KEYS = JSON.stringify({ publicKey: "pk", secretKey: "sk" });
const JSON_TYPE = { "content-type": "application/json" };

/** In the page: the status and the body of a fetch, or that the page does not get to see them. */
const fetched = (page: Page, url: string, init: RequestInit = {}) =>
  page.evaluate(
    async ([address, given]) => {
      try {
        const reply = await fetch(address, given);
        return { status: reply.status, body: await reply.text() };
      } catch {
        return null;
      }
    },
    [url, init] as const,
  );

/** In the page: whether a socket opens. */
const opens = (page: Page, url: string) =>
  page.evaluate(
    (address) =>
      new Promise<boolean>((resolve) => {
        const socket = new WebSocket(address);
        socket.onopen = () => resolve(true);
        socket.onclose = () => resolve(false);
      }),
    url,
  );

describe("in a browser, without auth on the loopback", { skip: browserMissing() }, () => {
  const ends: (() => unknown)[] = [];
  const t = { after: (end: () => unknown) => void ends.push(end) };
  const services = new Map<string, TestService>();
  let page: Page;
  /** A site of its own, on another port: to the browser it is another origin. */
  let site: string;

  before(async () => {
    const server = createServer((_request, response) => {
      response.setHeader("content-type", "text/html");
      response.end("<!doctype html><title>A page</title>");
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    t.after(() => server.close());
    site = `http://other.example:${(server.address() as AddressInfo).port}`;
    const browser = await startBrowser(t as never, [`--host-resolver-rules=MAP *.example 127.0.0.1`]);
    for (const transport of TRANSPORTS) {
      const manifest = manifestWith({}, { server: { transport }, tools: { sum: { use: "add" } } });
      services.set(transport, await startService(t as never, manifest, { plugins: [FIXTURES] }));
    }
    ({ page } = await openPage(browser));
  });
  after(async () => {
    for (const end of ends.reverse()) await end();
  });

  for (const transport of TRANSPORTS) {
    const runs = ({ log }: TestService) =>
      log.filter(({ path, status }) => path === "/tools/sum/execute" && status === 200);
    const keysOf = (service: TestService) => join(service.booted.loaded.folder, ".env");

    test(`over ${transport}: a page whose name was made to lead here runs no tool, writes no file and reads nothing but probes`, async () => {
      const service = services.get(transport)!;
      const own = `http://${EVIL}:${service.port}`;
      const landing = await page.goto(`${own}/`);
      assert.equal(landing?.status(), 403);
      await page.goto(`${own}/healthz`);
      const before = runs(service).length;
      for (const [path, init] of [
        ["/agents", {}],
        ["/agents", { method: "HEAD" }],
        ["/doc", {}],
        ["/api/logs", {}],
        ["/nowhere", {}],
        ["/tools/sum/execute", { method: "POST", headers: JSON_TYPE, body: SUM }],
        [
          "/tools/sum/execute",
          { method: "POST", headers: { "x-forwarded-host": "localhost", ...JSON_TYPE }, body: SUM },
        ],
        ["/tools/sum/execute", { method: "POST", body: SUM }],
        ["/setup-observability", { method: "POST", headers: JSON_TYPE, body: KEYS }],
      ] as [string, RequestInit][]) {
        const reply = await fetched(page, own + path, init);
        assert.equal(reply?.status, 403, `${init.method ?? "GET"} ${path}`);
        if (init.method !== "HEAD") assert.match(reply.body, /server\.allowedHosts/);
      }
      for (const path of ["/ws", "/ws/logs", "/ws/observability"])
        assert.equal(await opens(page, `${own.replace("http", "ws")}${path}`), false, path);
      assert.equal(runs(service).length, before);
      assert.ok(!existsSync(keysOf(service)));
    });

    test(`over ${transport}: a page of another site gets nothing done with what its browser sends without asking`, async () => {
      const service = services.get(transport)!;
      await page.goto(site);
      const before = runs(service).length;
      for (const [path, body] of [
        ["/tools/sum/execute", SUM],
        ["/setup-observability", KEYS],
      ] as const) {
        for (const init of [{ body }, { headers: { "content-type": "text/plain" }, body }]) {
          const reply = await fetched(page, service.url + path, { method: "POST", ...init });
          assert.equal(reply?.status, 403, path);
          const unread = await fetched(page, service.url + path, { method: "POST", mode: "no-cors", ...init });
          assert.equal(unread?.status, 0, "what comes back is not shown to the page");
        }
      }
      // A form, which no CORS stops.
      await page.setContent(
        `<form method="post" enctype="text/plain" action="${service.url}/setup-observability">` +
          `<input name='{"publicKey":"pk","secretKey":"' value='"}'></form>`,
      );
      const [answer] = await Promise.all([page.waitForNavigation(), page.evaluate("document.forms[0].submit()")]);
      assert.equal(answer?.status(), 403);
      assert.equal(runs(service).length, before);

      await page.goto(site);
      const named = await fetched(page, `${service.url}/setup-observability`, {
        method: "POST",
        headers: JSON_TYPE,
        body: KEYS,
      });
      assert.equal(named?.status, 403, "marked as JSON, too: this is for pages of the service");
      assert.equal((await fetched(page, `${service.url}/updates`))?.status, 403);
      assert.ok(!existsSync(keysOf(service)));
      // CORS lets every site in, unless server.cors says otherwise.
      const asked = await fetched(page, `${service.url}/tools/sum/execute`, {
        method: "POST",
        headers: JSON_TYPE,
        body: SUM,
      });
      assert.equal(asked?.status, 200);
    });

    test(`over ${transport}: a page of the service itself works, by its address and as localhost`, async () => {
      const service = services.get(transport)!;
      for (const own of [service.url, `http://localhost:${service.port}`, `http://desk.localhost:${service.port}`]) {
        await page.goto(`${own}/`);
        assert.equal((await fetched(page, `${own}/agents`))?.status, 200);
        const call = { method: "POST", headers: JSON_TYPE, body: SUM };
        assert.equal((await fetched(page, `${own}/tools/sum/execute`, call))?.status, 200);
        const setup = { method: "POST", headers: JSON_TYPE, body: KEYS };
        assert.equal((await fetched(page, `${own}/setup-observability`, setup))?.status, 200);
        assert.ok(existsSync(keysOf(service)));
        rmSync(keysOf(service));
        assert.equal(await opens(page, `${own.replace("http", "ws")}/ws`), true);
      }
    });
  }
});
