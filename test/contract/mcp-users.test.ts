/** Foreign MCP servers that are called on behalf of users (`mcp.clients.X.auth`): with the user's token, or one exchanged for it. */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import { eventually } from "../support/event-reader.ts";
import { startForeignServer } from "../support/mcp-server.ts";
import { calls, says } from "../support/openai-upstream.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { rewrite } from "../support/reload.ts";
import { dataOf, errorOf, type Loose, serveUpstream } from "../support/served-upstream.ts";
import { manifestWith, startService, type TestService } from "../support/service.ts";
import { temporaryFolder } from "../support/storage.ts";
import { startTokenIssuer, type TokenIssuer, userGuard } from "../support/token-issuer.ts";
import { now, SECRET, token } from "../support/tokens.ts";

const LISTING = token({ sub: "lister" });
const CONSOLE_KEY = "the-key-of-the-console";
const CONSOLE = { "x-console-access-key": CONSOLE_KEY };
const AUTH = { mode: "authNext", provider: { use: "jwt", secret: SECRET }, publicRoutes: ["POST /tools/*"] };
const AS_USERS = { ...AUTH, publicRoutes: [] };
const OPTIONS = { env: { SERVICE_CONSOLE_ACCESS_KEY: CONSOLE_KEY } };
const bearer = (sent: string) => ({ authorization: `Bearer ${sent}` });

const execute = (service: TestService, tool: string, headers: Record<string, string>, input: object = {}) =>
  service.post(`/tools/${tool}/execute`, { input }, headers);
const resultOf = async (service: TestService, tool: string, sent: string) =>
  (await dataOf(execute(service, tool, bearer(sent)))).result;

/** Until the list of tools is there, which the service reads with credentials of its own. */
async function ready(service: TestService, name = "docs_whoami"): Promise<void> {
  await eventually(async () => {
    const tools = await dataOf(service.get("/tools", { ...bearer(LISTING), ...CONSOLE }));
    return tools.find((tool: Loose) => tool.name === name)?.status === "ready";
  }, `${name} is ready`);
}

const forwarding = (url: string) => ({ docs: { url, headers: bearer(LISTING), auth: "forward" } });

async function exchanging(
  t: TestContext,
  settings: object = {},
): Promise<{ issuer: TokenIssuer; service: TestService }> {
  const issuer = await startTokenIssuer(t, "docs");
  // The list of tools is open to those who have a token of the users' issuer.
  const server = await startForeignServer(t, "current", async (request) =>
    (await issuer.guard(request.clone())) === null ? null : listingOnly(request),
  );
  const { id: clientId, secret: clientSecret } = issuer.client;
  const tokenExchange = { url: issuer.url, clientId, clientSecret, audience: "docs", scope: "docs.read", ...settings };
  const docs = { url: server.url, headers: bearer(LISTING), auth: { tokenExchange } };
  const manifest = manifestWith({ tools: ["docs_whoami"] }, { auth: AS_USERS, mcp: { clients: { docs } } });
  const service = await startService(t, manifest, OPTIONS);
  await ready(service);
  return { issuer, service };
}

/** Calls of tools need a token of the issuer; what else there is, the token of the service. */
async function listingOnly(request: Request): Promise<Response | null> {
  if (
    !(await request.clone().text()).includes('"tools/call"') &&
    request.headers.get("authorization")?.endsWith(LISTING)
  )
    return null;
  return new Response("no", { status: 401 });
}

for (const kind of ["current", "sessions"] as const) {
  describe(`mcp.clients.X.auth: forward, a server of the kind ${kind}`, () => {
    test("POST /tools/:name/execute: each of two users is whom the server sees, also when both call at once", async (t) => {
      const server = await startForeignServer(t, kind, userGuard);
      const service = await startService(
        t,
        manifestWith({}, { auth: AS_USERS, mcp: { clients: forwarding(server.url) } }),
        OPTIONS,
      );
      await ready(service, "docs_whoami");
      const names = ["ada", "bob"];
      const tokens = names.map((sub) => token({ sub }));
      const asked = Array.from({ length: 12 }, (_, index) => index % 2);
      const seen = await Promise.all(asked.map((index) => resultOf(service, "docs_whoami", tokens[index]!)));
      assert.deepEqual(
        seen,
        asked.map((index) => names[index]),
      );
      // The same user with another token is not served by the session of the first one.
      assert.equal(await resultOf(service, "docs_whoami", token({ sub: "ada", n: 2 })), "ada");
    });

    test("the token is in no result, error, log line or trace, though the server repeats it", async (t) => {
      const server = await startForeignServer(t, kind, userGuard);
      const observability = { content: "full" };
      const service = await startService(
        t,
        manifestWith({}, { auth: AS_USERS, observability, mcp: { clients: forwarding(server.url) } }),
        OPTIONS,
      );
      await ready(service, "docs_leak");
      const ada = token({ sub: "ada" });
      assert.match(await resultOf(service, "docs_headers", ada), /"authorization":"Bearer \*\*\*"/);
      const { status, error } = await errorOf(execute(service, "docs_leak", bearer(ada)));
      assert.deepEqual([status, error], [500, "I do not like Bearer ***"]);
      const { traces } = await dataOf(service.get("/observability/traces", CONSOLE));
      assert.ok(traces.length > 0);
      const spans = traces.map(({ traceId }: Loose) => service.get(`/observability/traces/${traceId}`, CONSOLE));
      const told = await Promise.all(spans.map(async (reply: Promise<Response>) => (await reply).text()));
      assert.match(told.join(), /I do not like Bearer \*\*\*/);
      const [, payload, signature] = ada.split(".");
      for (const secret of [payload!, signature!]) {
        assert.ok(!told.join().includes(secret));
        assert.ok(!JSON.stringify(service.log).includes(secret));
      }
    });
  });
}

test("mcp.clients.X.auth: a call without a user's token fails with the reason, and the server hears nothing of it", async (t) => {
  let called = 0;
  const server = await startForeignServer(t, "current", async (request) => {
    if ((await request.clone().text()).includes('"tools/call"')) called++;
    return userGuard(request);
  });
  const manifest = manifestWith({}, { auth: AUTH, mcp: { clients: forwarding(server.url) } });
  const service = await startService(t, manifest, OPTIONS);
  await ready(service);
  const { status, error } = await errorOf(execute(service, "docs_whoami", {}));
  assert.equal(status, 500);
  assert.match(error, /^MCP server "docs" is called with the token of the user who asks, and there is none here: /);
  assert.equal(called, 0);
});

test("mcp.clients.X.auth: forward: a redirect takes the token to no other origin", async (t) => {
  const elsewhere: unknown[] = [];
  const thief = createServer((request, response) => {
    elsewhere.push(request.headers);
    response.end();
  });
  await new Promise<void>((resolve) => thief.listen(0, "127.0.0.1", resolve));
  t.after(() => thief.close());
  const location = `http://127.0.0.1:${(thief.address() as AddressInfo).port}/mcp`;
  const server = await startForeignServer(t, "current", async (request) => {
    const isCall = (await request.clone().text()).includes('"tools/call"');
    return isCall ? new Response(null, { status: 307, headers: { location } }) : userGuard(request);
  });
  const manifest = manifestWith({}, { auth: AS_USERS, mcp: { clients: forwarding(server.url) } });
  const service = await startService(t, manifest, OPTIONS);
  await ready(service);
  const { status, error } = await errorOf(execute(service, "docs_whoami", bearer(token({ sub: "ada" }))));
  assert.equal(status, 500);
  assert.match(error, /it answered 307/);
  assert.deepEqual(elsewhere, []);
});

test("mcp.clients.X.auth: forward: a token that the server refuses is a failure that says so", async (t) => {
  const server = await startForeignServer(t, "current", async (request) => {
    const isAda = request.headers.get("authorization") === `Bearer ${token({ sub: "ada", exp: 4_000_000_000 })}`;
    return isAda ? new Response("no", { status: 401 }) : userGuard(request);
  });
  const manifest = manifestWith({}, { auth: AS_USERS, mcp: { clients: forwarding(server.url) } });
  const service = await startService(t, manifest, OPTIONS);
  await ready(service);
  const refused = execute(service, "docs_whoami", bearer(token({ sub: "ada", exp: 4_000_000_000 })));
  assert.deepEqual(await errorOf(refused), {
    status: 500,
    error: `MCP server "docs" refused the user's token: it answered 401`,
  });
  assert.equal(await resultOf(service, "docs_whoami", token({ sub: "bob" })), "bob");
});

test("POST /reload: mcp.clients.X.auth holds from the next call on, and no longer once it is taken out", async (t) => {
  const server = await startForeignServer(t, "sessions", userGuard);
  const manifestOf = (client: object) => manifestWith({}, { auth: AS_USERS, mcp: { clients: { docs: client } } });
  const { auth: _, ...forAll } = forwarding(server.url).docs;
  const service = await startService(t, manifestOf(forAll), OPTIONS);
  const ada = token({ sub: "ada" });
  for (const [client, whom] of [
    [forAll, "lister"],
    [forwarding(server.url).docs, "ada"],
    [forAll, "lister"],
  ] as const) {
    rewrite(service, manifestOf(client));
    assert.equal((await service.post("/reload", {}, CONSOLE)).status, 200);
    await ready(service);
    assert.equal(await resultOf(service, "docs_whoami", ada), whom);
  }
});

test("mcp.clients.X.auth: a call that the server forbids is a failure of that call alone: others of the same user go on", async (t) => {
  let running = false;
  const server = await startForeignServer(t, "current", async (request) => {
    const text = await request.clone().text();
    running ||= text.includes('"steps"') && text.includes('"tools/call"');
    return text.includes('"broken"') ? new Response("no", { status: 403 }) : userGuard(request);
  });
  const manifest = manifestWith({}, { auth: AS_USERS, mcp: { clients: forwarding(server.url) } });
  const service = await startService(t, manifest, OPTIONS);
  await ready(service);
  const ada = bearer(token({ sub: "ada" }));
  const other = execute(service, "docs_steps", ada, { count: 4, pause: 200 });
  await eventually(() => running, "the other call");
  const { status, error } = await errorOf(execute(service, "docs_broken", ada));
  assert.deepEqual([status, error], [500, 'MCP server "docs": it answered 403']);
  assert.equal((await dataOf(other)).result, "all steps");
});

const ASKS = `export default { kind: "route", name: "asks", method: "POST", path: "/asks", handle: async (_request, call) =>
  ({ tool: await call.tools.execute("docs_whoami", {}), agent: (await call.agents.generateText("assistant", { input: "x" })).text }) };`;

test("mcp.clients.X.auth: agents, their sub-agents, kept runs, steps of workflows, custom routes and our own MCP servers call for the user of their request", async (t) => {
  const server = await startForeignServer(t, "current", userGuard);
  const workflows = {
    look: { steps: [{ id: "who", andThen: { tool: "docs_whoami", input: {} } }] },
    ask: { steps: [{ id: "agent", andAgent: { agent: "assistant", prompt: "Who?" } }] },
    waits: {
      steps: [
        { id: "wait", andThen: { suspend: { reason: "Yes?" } } },
        { id: "who", andThen: { tool: "docs_whoami", input: {} } },
      ],
    },
  };
  const agents = { head: { model: "up/test-model", instructions: "Delegate.", subAgents: ["assistant"] } };
  const mcp = { clients: forwarding(server.url), servers: { again: { tools: ["docs_whoami"] } } };
  const { service, upstream } = await serveUpstream(
    t,
    { tools: ["docs_whoami"] },
    { auth: AS_USERS, workflows, agents, routes: [{ use: "asks" }], mcp },
    { ...OPTIONS, plugins: [pluginFolder(t, { "routes/asks.mjs": ASKS })] },
  );
  await ready(service);
  upstream.fallback(({ toolOutputs, body }) => {
    if (toolOutputs.length > 0) return says(toolOutputs.join());
    const delegates = JSON.stringify(body).includes('"delegate_task"');
    return calls([
      delegates ? { name: "delegate_task", input: { agentId: "assistant", task: "x" } } : { name: "docs_whoami" },
    ]);
  });
  const bob = bearer(token({ sub: "bob" }));
  const post = (path: string, body: object) => dataOf(service.post(path, body, bob));
  assert.equal((await post("/agents/assistant/text", { input: "x" })).text, "bob");
  assert.equal((await post("/workflows/look/execute", { input: {} })).result, "bob");
  assert.deepEqual((await post("/workflows/ask/execute", { input: {} })).result, { text: "bob" });
  const { content } = await post("/mcp/servers/again/tools/docs_whoami", { arguments: {} });
  assert.equal(content[0].text, "bob");
  assert.match((await post("/agents/head/text", { input: "x" })).text, /bob/);
  assert.deepEqual(await post("/asks", {}), { tool: "bob", agent: "bob" });
  const kept = { input: "x", options: { background: true, runId: "kept" } };
  assert.equal((await service.post("/agents/assistant/text", kept, bob)).status, 202);
  await eventually(
    async () => (await dataOf(service.get("/agents/assistant/runs/kept", bob))).output === "bob",
    "the end of the kept run",
  );
  // Somebody else who goes on with the work does not get the token with it.
  const { executionId } = await post("/workflows/waits/execute", { input: {} });
  const resume = `/workflows/waits/executions/${executionId}/resume`;
  const { error } = await errorOf(service.post(resume, {}, { "x-service-dev": "true" }));
  assert.match(error, /there is none here/);
});

test("mcp.clients.X.auth: what goes on after a restart has no token and says so; a resume brings that of its user", async (t) => {
  const server = await startForeignServer(t, "current", userGuard);
  const store = `sqlite:${join(await temporaryFolder(t), "test.db")}`;
  const who = { id: "who", andThen: { tool: "docs_whoami", input: {} } };
  const workflows = {
    asks: { steps: [{ id: "ask", andThen: { suspend: { reason: "Yes?" } } }, who] },
    waits: { steps: [{ id: "wait", andThen: { tool: "docs_wait", input: {} } }] },
  };
  const manifest = {
    ...manifestWith({}, { auth: AS_USERS, workflows, mcp: { clients: forwarding(server.url) } }),
    store,
  };
  const first = await startService(t, manifest, OPTIONS);
  await ready(first);
  const ada = bearer(token({ sub: "ada" }));
  const suspended = async () => (await dataOf(first.post("/workflows/asks/execute", { input: {} }, ada))).executionId;
  const [one, other] = [await suspended(), await suspended()];
  const body = { input: {}, options: { executionId: "crashed" } };
  const lost = first.post("/workflows/waits/execute", body, ada).catch(() => null);
  await eventually(() => server.state.waiting, "the call");
  await first.kill();
  await lost;

  const second = await startService(t, manifest, OPTIONS);
  await ready(second);
  const later = token({ sub: "ada", n: 2 });
  const path = (id: string) => `/workflows/asks/executions/${id}/resume`;
  assert.equal((await dataOf(second.post(path(one), {}, bearer(later)))).result, "ada");
  const byNobody = await errorOf(second.post(path(other), {}, { "x-service-dev": "true" }));
  assert.match(byNobody.error, /there is none here/);
  let state: Loose;
  await eventually(async () => {
    state = await dataOf(second.get("/workflows/waits/executions/crashed/state", CONSOLE));
    return state.status !== "running";
  }, "the end of the execution");
  assert.equal(state.status, "error");
  assert.match(JSON.stringify(state.error), /goes on after a restart, has none/);
});

test("mcp.clients.X.auth: tokenExchange: each user's token is exchanged once, and the server sees the user", async (t) => {
  const { issuer, service } = await exchanging(t);
  const [ada, bob] = [token({ sub: "ada" }), token({ sub: "bob" })];
  const seen = await Promise.all([ada, bob, ada, bob, ada].map((sent) => resultOf(service, "docs_whoami", sent)));
  assert.deepEqual(seen, ["ada", "bob", "ada", "bob", "ada"]);
  assert.deepEqual([...issuer.exchanged].sort(), ["ada", "bob"]);
  assert.match(await resultOf(service, "docs_headers", ada), /"authorization":"Bearer \*\*\*"/);
  for (const secret of [ada, ...issuer.issued, issuer.client.secret])
    assert.ok(!JSON.stringify(service.log).includes(secret));
});

test("mcp.clients.X.auth: tokenExchange: a token near its end and one that is refused are exchanged anew", async (t) => {
  const { issuer, service } = await exchanging(t);
  const ada = token({ sub: "ada" });
  assert.equal(await resultOf(service, "docs_whoami", ada), "ada");
  issuer.revoked.add(issuer.issued[0]!);
  assert.equal(await resultOf(service, "docs_whoami", ada), "ada");
  assert.equal(issuer.exchanged.length, 2);
  issuer.lifetime = 0;
  const bob = token({ sub: "bob", exp: now() + 600 });
  await execute(service, "docs_whoami", bearer(bob));
  const before = issuer.exchanged.length;
  issuer.lifetime = 300;
  assert.equal(await resultOf(service, "docs_whoami", bob), "bob");
  assert.ok(issuer.exchanged.length > before, "a token without a life is not kept");
});

test("mcp.clients.X.auth: tokenExchange: a refused exchange is a clear error without the token, an issuer that is away a 503", async (t) => {
  const { issuer, service } = await exchanging(t);
  const ada = token({ sub: "ada" });
  issuer.refused.add("ada");
  assert.deepEqual(await errorOf(execute(service, "docs_whoami", bearer(ada))), {
    status: 500,
    error: 'MCP server "docs": the token exchange was refused: invalid_grant (not for ***)',
  });
  assert.equal(await resultOf(service, "docs_whoami", token({ sub: "bob" })), "bob");
  await issuer.stop();
  const { status, error } = await errorOf(execute(service, "docs_whoami", bearer(token({ sub: "eve" }))));
  assert.deepEqual([status, error], [503, 'MCP server "docs": the token endpoint cannot be used: ECONNREFUSED']);
});

test("mcp.clients.X.auth: a long token that is repeated in an error is hidden before the error is cut", async (t) => {
  const long = token({ sub: "ada", groups: "editors ".repeat(40) });
  const [head, claims] = long.split(".") as [string, string];
  const isCut = (error: string) => assert.ok(!error.includes(head) && !error.includes(claims.slice(0, 40)), error);

  const { issuer, service } = await exchanging(t);
  issuer.refused.add("ada");
  isCut((await errorOf(execute(service, "docs_whoami", bearer(long)))).error);

  const server = await startForeignServer(t, "current", async (request) => {
    const text = await request.clone().text();
    if (!text.includes('"tools/call"')) return userGuard(request);
    const message = `I do not take ${request.headers.get("authorization")}`;
    return Response.json({ jsonrpc: "2.0", id: JSON.parse(text).id, error: { code: -32_000, message } });
  });
  const manifest = manifestWith({}, { auth: AS_USERS, mcp: { clients: forwarding(server.url) } });
  const forwards = await startService(t, manifest, OPTIONS);
  await ready(forwards);
  const { error } = await errorOf(execute(forwards, "docs_whoami", bearer(long)));
  assert.match(error, /I do not take Bearer \*\*\*/);
  isCut(error);
});

test("mcp.clients.X.auth: tokenExchange: a token that is issued in the middle of a call is hidden too", async (t) => {
  const { issuer, service } = await exchanging(t);
  const ada = token({ sub: "ada" });
  assert.equal(await resultOf(service, "docs_whoami", ada), "ada");
  issuer.revoked.add(issuer.issued[0]!);
  const repeated = await resultOf(service, "docs_headers", ada);
  assert.equal(issuer.issued.length, 2);
  assert.match(repeated, /"authorization":"Bearer \*\*\*"/);
});

test("mcp.clients.X.auth: tokenExchange: the issuer's word on a wrong audience, scope or client reaches the caller", async (t) => {
  const wrong = { audience: { audience: "other" }, scope: { scope: "all" }, client: { clientSecret: "guessed" } };
  const said: Record<string, string> = {};
  for (const [what, settings] of Object.entries(wrong)) {
    const { service } = await exchanging(t, settings);
    said[what] = (await errorOf(execute(service, "docs_whoami", bearer(token({ sub: "ada" }))))).error.replace(
      /.*refused: /,
      "",
    );
  }
  assert.deepEqual(said, {
    audience: "invalid_target (no such audience)",
    scope: "invalid_scope (docs.read alone)",
    client: "invalid_client (unknown client)",
  });
});
