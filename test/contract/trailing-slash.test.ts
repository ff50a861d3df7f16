/** Contract: one slash at the end of a known path is that path, as clients write it that join a base address with a path. */
import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { inject } from "../support/inject.ts";
import { injectUpgrade } from "../support/inject-upgrade.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { manifestWith, startService, type TestService } from "../support/service.ts";
import { TRANSPORTS } from "../support/transports.ts";

const TOKEN = "token-of-ada-0123456789";
const KEY = "console-key-0123456789";
const CALLERS = {
  nobody: {},
  user: { authorization: `Bearer ${TOKEN}` },
  console: { "x-console-access-key": KEY },
};
const PLUGINS = {
  "routes/count.mjs": `let count = 0;
    export default { kind: "route", method: "GET", path: "/counts/:id", handle: ({ params }) => ({ id: params.id, count: ++count }) };`,
};

let service: TestService;
before(async (t) => {
  service = await startService(
    t as never,
    manifestWith(
      { memory: "default" },
      {
        memory: { default: {} },
        auth: {
          mode: "authNext",
          provider: { use: "static", tokens: { [TOKEN]: { id: "ada" } } },
          publicRoutes: ["$defaults", "GET /counts/open", "GET /tools"],
          consoleRoutes: ["$defaults", "GET /counts/closed"],
        },
        routes: [{ use: "count" }],
        workflows: { keep: { steps: [{ id: "one", andThen: { set: 1 } }] } },
      },
    ),
    {
      env: { NODE_ENV: "production", SERVICE_CONSOLE_ACCESS_KEY: KEY },
      plugins: [pluginFolder(t as never, PLUGINS)],
    },
  );
});

type Request = { method: string; path: string; headers?: Record<string, string>; body?: unknown };
const ask = async ({ method, path, headers = {}, body }: Request) => {
  const answer = await inject(service.dispatch, { method, path, headers, body });
  return { status: answer.status, code: answer.headers["x-error-code"], allow: answer.headers.allow };
};

test("every route but pages answers with one slash at its end as without, whoever asks and whatever the method", async () => {
  const routes = service.booted.service!.routes.filter(
    ({ path, output }) => path !== "/" && !("page" in output && output.page.startsWith("text/html")),
  );
  assert.ok(routes.length > 80, `${routes.length} routes`);
  for (const { method, path: pattern } of routes) {
    const path = pattern.replace(/:\w+/g, "some");
    for (const [caller, headers] of Object.entries(CALLERS))
      for (const asked of [method, "OPTIONS", "PURGE"]) {
        const body = method === "GET" || asked !== method ? undefined : { a: 1 };
        const plain = await ask({ method: asked, path, headers, body });
        const slashed = await ask({ method: asked, path: `${path}/`, headers, body });
        assert.deepEqual(slashed, plain, `${asked} ${path}/ by ${caller}`);
      }
  }
});

test("lists of routes in the manifest decide over a path with one slash at its end as over the path without", async () => {
  for (const [path, nobody, user, console] of [
    ["/counts/open", 200, 200, 200],
    ["/counts/closed", 401, 401, 200],
    ["/counts/other", 401, 200, 401],
    ["/tools", 200, 200, 200],
  ] as const)
    for (const end of ["", "/"])
      assert.deepEqual(
        await Promise.all(
          Object.values(CALLERS).map(
            async (headers) => (await ask({ method: "GET", path: `${path}${end}`, headers })).status,
          ),
        ),
        [nobody, user, console],
        `${path}${end}`,
      );
});

test("an Idempotency-Key means the same request with and without one slash at the end of the path", async () => {
  const headers = { ...CALLERS.user, "idempotency-key": "once", "content-type": "application/json" };
  const body = JSON.stringify({ input: 1 });
  const replies: string[] = [];
  for (const path of ["/workflows/keep/execute", "/workflows/keep/execute/"]) {
    const answer = await inject(service.dispatch, { method: "POST", path, headers, body });
    assert.equal(answer.status, 200);
    replies.push(answer.text());
  }
  assert.equal(replies[1], replies[0]);
});

test("a path with two slashes at its end, with an escaped one, or with one at its beginning is no path that is known", async () => {
  for (const path of ["/tools//", "/tools/%2F", "/tools/%2f", "//tools", "//tools/", "/counts//", "/counts/open//"])
    for (const headers of [CALLERS.user, CALLERS.console])
      assert.match(String((await ask({ method: "GET", path, headers })).status), /401|404/, path);
});

test("a page is not served below a path with a slash at its end, to which its links would be relative: 308 to the page", async () => {
  for (const [path, location] of [
    ["/ui/", "../ui"],
    ["/ui/?key=a&b=%2F", "../ui?key=a&b=%2F"],
  ] as const)
    for (const method of ["GET", "HEAD"]) {
      const answer = await inject(service.dispatch, { method, path });
      assert.equal(answer.status, 308);
      assert.equal(answer.headers.location, location);
    }
});

for (const transport of TRANSPORTS)
  describe(`over ${transport}`, () => {
    test("GET /healthz/ is answered as /healthz, under a host that is not known too, and pages redirect within a base path", async (t) => {
      const { url } = await startService(t, manifestWith({}, { server: { transport } }));
      assert.equal((await fetch(`${url}/healthz/`, { headers: { host: "elsewhere.example" } })).status, 200);
      const page = await fetch(`${url}/ui/?a=1`);
      assert.equal(page.status, 200);
      assert.equal(page.url, `${url}/ui?a=1`);
    });
  });

test("WS /ws/: a socket opens at a path with one slash at its end, and a plain GET there is told that it is a socket", async (t) => {
  const { upgrade, dispatch } = await startService(t, manifestWith());
  for (const [path, status] of [
    ["/ws", 101],
    ["/ws/", 101],
    ["/ws//", 404],
  ] as const) {
    const opened = await injectUpgrade(upgrade, { path });
    opened.socket?.close();
    assert.equal(opened.status, status, path);
    assert.equal((await inject(dispatch, { path })).status, status === 101 ? 426 : 404, path);
  }
});
