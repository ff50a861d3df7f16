/**
 * Paths in disguise, sent as they are over sockets: none of them reaches a handler that the plain request would not reach
 * with the same credentials (contract, "Authentication").
 */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { KEY, opened, send, tokenOf } from "../support/access-wire.ts";
import { TRANSPORTS } from "../support/transports.ts";

const escaped = (character: string) => `%${character.charCodeAt(0).toString(16)}`;

/** The path of a route that is there, written otherwise. */
const DISGUISES: readonly [title: string, write: (path: string) => string][] = [
  ["a slash at the end", (path) => `${path}/`],
  ["two slashes at the end", (path) => `${path}//`],
  ["two slashes before it", (path) => `/${path}`],
  ["two slashes within it", (path) => path.replace(/(.)\//, "$1//")],
  ["a dot before it", (path) => `/.${path}`],
  ["a dot behind it", (path) => `${path}/.`],
  ["up from nowhere", (path) => `/..${path}`],
  ["up from an open door", (path) => `/custom/x/../..${path}`],
  ["up from a probe", (path) => `/healthz/..${path}`],
  ["up in escapes", (path) => `/custom/%2e%2e${path}`],
  ["up in escapes, slash and all", (path) => `/custom/x%2f..%2f..${path.replaceAll("/", "%2f")}`],
  ["up in escapes of escapes", (path) => `/custom/%252e%252e${path}`],
  ["up with backslashes", (path) => `/custom/x\\..\\..${path.replaceAll("/", "\\")}`],
  ["backslashes", (path) => path.replaceAll("/", "\\")],
  ["a backslash at the end", (path) => `${path}\\`],
  ["slashes in escapes", (path) => `/${path.slice(1).replaceAll("/", "%2F")}`],
  ["the first slash in an escape", (path) => `/%2f${path.slice(1)}`],
  ["a slash in an escape at the end", (path) => `${path}%2F`],
  ["a letter in an escape", (path) => `/${escaped(path[1]!)}${path.slice(2)}`],
  ["a letter in an escape of an escape", (path) => `/%25${escaped(path[1]!).slice(1)}${path.slice(2)}`],
  ["capitals", (path) => path.toUpperCase()],
  ["a capital", (path) => `/${path[1]!.toUpperCase()}${path.slice(2)}`],
  ["a semicolon", (path) => `${path};x=1`],
  ["a semicolon and an open door", (path) => `${path};/../custom/x`],
  ["a fragment", (path) => `${path}#/custom/x`],
  ["a question mark in an escape", (path) => `${path}%3f`],
  ["a zero at the end", (path) => `${path}%00`],
  ["a line end at the end", (path) => `${path}%0d%0a`],
  ["a space at the end", (path) => `${path}%20`],
  ["a tab before it", (path) => `/%09${path.slice(1)}`],
  ["a dot at the end", (path) => `${path}.`],
  ["a file's ending", (path) => `${path}.json`],
  [
    "wide letters",
    (path) => `/${encodeURIComponent(String.fromCodePoint(path.charCodeAt(1) + 0xfee0))}${path.slice(2)}`,
  ],
  ["a slash that is too long in UTF-8", (path) => `/custom/x%c0%af..${path}`],
  ["a broken escape", (path) => `${path}%`],
  ["the absolute form", (path) => `http://x${path}`],
  ["the absolute form of another host", (path) => `http://custom/custom/x/../..${path}`],
  ["the absolute form with a user", (path) => `http://a:b@x${path}`],
  ["another scheme", (path) => `file://${path}`],
  ["no slash", (path) => path.slice(1)],
  ["a star before it", (path) => `*${path}`],
];

/** Of each kind one that answers 200 to who may: what is asked for, and the credential that is not enough. */
const TARGETS: readonly [path: string, enough: "token" | "key"][] = [
  ["/agents", "key"],
  ["/agents/assistant/history", "key"],
  ["/doc", "key"],
  ["/workflows/executions", "key"],
  ["/observability/mine", "key"],
  ["/api/memory/conversations", "token"],
  ["/agents/assistant/secret", "token"],
];

for (const transport of TRANSPORTS) {
  describe(`every route, under paths in disguise, over ${transport}`, () => {
    test("paths with tricks are no way in to a guarded route, whatever they look like", async (t) => {
      const secured = await opened(t, transport);
      const token = tokenOf(secured);
      for (const [path, enough] of TARGETS) {
        const [right, wrong] = enough === "key" ? [KEY, token] : [token, KEY];
        assert.equal((await send(secured, `GET ${path}`, [right])).reply?.status, 200, path);
        for (const [title, write] of DISGUISES.filter((each) => each[1](path) !== path)) {
          for (const headers of [[], [wrong]]) {
            const { reply, reached } = await send(secured, `GET ${write(path)}`, headers);
            assert.ok(!reached, `${title}: ${write(path)} with ${headers} got ${reply?.status} ${reply?.body}`);
          }
        }
      }
    });

    test("paths with tricks are what they are for who may see it: no route, but for the absolute form and one slash at the end", async (t) => {
      const secured = await opened(t, transport);
      const PATH = "/agents/assistant/history";
      const both = [KEY, tokenOf(secured)];
      for (const [title, write] of DISGUISES) {
        const { reply, reached } = await send(secured, `GET ${write(PATH)}`, both);
        if (title === "a slash at the end") assert.equal(reply?.status, 200, title);
        else if (title.startsWith("the absolute form") && title !== "the absolute form of another host") {
          assert.equal(reply?.status, transport === "uws" ? 505 : 200, title);
        } else
          assert.ok(
            !reached && [null, 400, 404, 405, 505].includes(reply?.status ?? null),
            `${title}: ${reply?.status}`,
          );
      }
    });

    test("legacy: what is protected stays so, though unknown paths are open", async (t) => {
      const secured = await opened(t, transport, "legacy");
      for (const path of ["/api/memory/conversations", "/observability/mine"]) {
        assert.equal((await send(secured, `GET ${path}`)).reply?.status, 401);
        for (const [title, write] of DISGUISES) {
          const { reply, reached } = await send(secured, `GET ${write(path)}`);
          assert.ok(!reached, `${title}: ${write(path)} got ${reply?.status} ${reply?.body}`);
        }
      }
      for (const path of [
        "/%61pi/memory/nowhere",
        "/observability/%6dine",
        "/api/memory/%2e%2e",
        "/api/memory/..%2f..",
      ]) {
        assert.equal((await send(secured, `GET ${path}`)).reply?.status, 401, path);
        assert.equal((await send(secured, `HEAD ${path}`)).reply?.status, 401, path);
      }
    });

    test("a parameter that is written as the name of another route has the class of its own route", async (t) => {
      const secured = await opened(t, transport, "authNext", {
        publicRoutes: ["GET /workflows/executions", "/custom/*"],
        consoleRoutes: ["GET /workflows/:id", "GET /agents"],
      });
      const status = async (line: string, headers: string[] = []) => (await send(secured, line, headers)).reply?.status;
      const token = tokenOf(secured);
      assert.equal(await status("GET /workflows/executions"), 200);
      for (const path of ["/workflows/%65xecutions", "/workflows/executions%00", "/workflows/executions%2F"]) {
        assert.equal(await status(`GET ${path}`), 401, path);
        assert.equal(await status(`GET ${path}`, [token]), 401, path);
        assert.equal(await status(`GET ${path}`, [KEY]), 404, path);
      }
    });

    test("dots in the place of a parameter lead nowhere", async (t) => {
      const secured = await opened(t, transport, "authNext", { publicRoutes: ["GET /agents/open/*"] });
      for (const path of ["/agents/open%2f../secret", "/agents/open%2Fsecret", "/agents/open%5csecret"]) {
        const { reply } = await send(secured, `GET ${path}`);
        assert.equal(reply?.status, 401, path);
      }
      assert.equal((await send(secured, "GET /agents/open/secret")).reply?.status, 200);
      // What is public is the handler of `/agents/:id/secret`, which these do not leave.
      const dots = await send(secured, "GET /agents/open/../secret");
      assert.ok(!dots.reached);
    });
  });
}
