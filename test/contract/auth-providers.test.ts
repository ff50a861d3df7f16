// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the manifest writes references to the environment so.
/** Contract, "Providers", in a running service: where a user comes from, and where it is seen. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { BootError } from "../../core/app/start.ts";
import { formatIssue } from "../../core/manifest/manifest.ts";
import { inject } from "../support/inject.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import type { Loose } from "../support/served-upstream.ts";
import { manifestWith, startService, type TestOptions } from "../support/service.ts";
import { now, publisher, rsaPair, SECRET, token } from "../support/tokens.ts";

const PRODUCTION = { NODE_ENV: "production" };
const JWT = { use: "jwt", secret: SECRET };
const bearer = (text: string) => ({ authorization: `Bearer ${text}` });

const WORKFLOWS = {
  who: {
    steps: [
      { id: "set", andThen: { set: { name: "{{ user.name }}" } } },
      { id: "tool", andThen: { tool: "whoami", input: {} } },
    ],
  },
};

test("authNext.provider: the user of a token is in routes, tools, steps and templates, with the fields that mapUser names", async (t) => {
  const mapUser = { id: "sub", name: "profile.name" };
  const plugins = pluginFolder(t, {
    "tools/whoami.mjs":
      'export default { kind: "tool", execute: (_input, { user }) => ({ id: user?.id ?? null, name: user?.name ?? null }) };\n',
    "routes/me.mjs": 'export default { kind: "route", method: "GET", path: "/me", handle: ({ user }) => user };\n',
  });
  const manifest = manifestWith(
    { instructions: "You serve {{ user.name }}.", tools: ["whoami"] },
    {
      auth: { mode: "authNext", provider: { ...JWT, mapUser } },
      routes: [{ use: "me" }],
      tools: { whoami: { use: "whoami" } },
      providers: { demo: { use: "scripted", replies: [{ when: "who", call: { tool: "whoami", input: {} } }] } },
      workflows: WORKFLOWS,
    },
  );
  const service = await startService(t, manifest, { plugins: [plugins], env: PRODUCTION });
  const headers = bearer(token({ sub: "u-1", profile: { name: "Ada" }, role: "admin" }));
  const ask = async (path: string, body?: object): Promise<Loose> => {
    const reply = await inject(service.dispatch, { path, headers, body });
    assert.equal(reply.status, 200, reply.text());
    return (reply.json() as Loose).data;
  };
  const user = { id: "u-1", name: "Ada" };
  assert.deepEqual(await ask("/me"), user);
  assert.deepEqual((await ask("/tools/whoami/execute", { input: {} })).result, user);
  assert.deepEqual((await ask("/workflows/who/execute", { input: 1 })).result, user);
  const { toolResults } = await ask("/agents/assistant/text", { input: "who am I" });
  assert.deepEqual(toolResults[0].output, user);
  const nameless = bearer(token({ sub: "u-2" }));
  const reply = await inject(service.dispatch, {
    path: "/agents/assistant/text",
    headers: nameless,
    body: { input: "x" },
  });
  assert.equal(reply.status, 400, "a template that needs what this user has not");
});

test("authNext.provider: while the keys of the provider cannot be read the answer is 503, not that a token is bad; then it is good", async (t) => {
  const rsa = rsaPair();
  const keys = await publisher(t, { a: rsa });
  keys.failing = { status: 500 };
  const provider = { use: "jwt", jwks: keys.url, audience: "api" };
  const { dispatch, log } = await startService(t, manifestWith({}, { auth: { mode: "authNext", provider } }), {
    env: PRODUCTION,
  });
  const headers = bearer(token({ sub: "ada", aud: "api" }, { alg: "RS256", kid: "a" }, rsa.privateKey));
  const request = { path: "/agents/assistant/text", headers, body: { input: "x" } };
  const refused = await inject(dispatch, request);
  assert.equal(refused.status, 503, refused.text());
  assert.ok(refused.headers["retry-after"]);
  assert.ok(log.some(({ msg }) => /keys of the identity provider/.test(String(msg))));
  keys.failing = null;
  t.mock.timers.enable({ apis: ["Date"], now: Date.now() + 5_100 });
  assert.equal((await inject(dispatch, request)).status, 200);
});

test("authNext.provider: neither tokens nor secrets reach the log, whatever a provider throws", async (t) => {
  const plugins = pluginFolder(t, {
    "auth/loud.mjs":
      'export default { kind: "auth", create: () => ({ type: "loud", verifyToken: async (token) => { throw new Error(`bad token ${token}`); } }) };\n',
  });
  const secret = "a-secret-that-nobody-may-ever-see";
  const text = token({ sub: "a-name-in-a-token" }, { alg: "HS256" }, secret);
  const bad = [
    text.slice(0, -2),
    token({ sub: "x", exp: now() - 100 }, { alg: "HS256" }, secret),
    "garbage-that-is-sent",
  ];
  const rows: [object, string[], TestOptions][] = [
    [{ ...JWT, secret }, bad, {}],
    [{ use: "loud" }, [text], { plugins: [plugins] }],
  ];
  for (const [provider, tokens, options] of rows) {
    const manifest = manifestWith({}, { auth: { mode: "authNext", provider }, logs: { level: "trace" } });
    const service = await startService(t, manifest, { ...options, env: PRODUCTION });
    for (const sent of tokens) {
      const reply = await inject(service.dispatch, { path: "/nowhere", headers: bearer(sent) });
      assert.equal(reply.status, 401);
      assert.doesNotMatch(reply.text(), new RegExp(sent.slice(0, 12)));
    }
    const log = JSON.stringify(service.log);
    assert.match(log, /token refused/);
    for (const hidden of [secret, ...tokens]) assert.ok(!log.includes(hidden), hidden);
  }
});

test("authNext.provider: a token that takes time to check is judged before the type of the body", async (t) => {
  const plugins = pluginFolder(t, {
    "auth/slow.mjs": `export default { kind: "auth", create: () => ({ type: "slow", verifyToken: async (token) => {
      await new Promise((resolve) => setTimeout(resolve, 10));
      if (token !== "good") throw new Error("no");
      return { id: "ada" };
    } }) };\n`,
  });
  const auth = { mode: "authNext", provider: { use: "slow" } };
  const service = await startService(t, manifestWith({}, { auth }), { plugins: [plugins], env: PRODUCTION });
  for (const [text, status] of [
    ["bad", 401],
    ["good", 415],
  ] as const) {
    const headers = { ...bearer(text), "content-type": "text/plain" };
    const request = { method: "POST", headers, body: "x" };
    // A rejection that nobody handles would fail the test too.
    assert.equal((await fetch(`${service.url}/agents/assistant/text`, request)).status, status);
  }
});

test("authNext.provider: legacy takes the same providers, and isolates nobody unless it is told to", async (t) => {
  const memory = { default: {} };
  const start = (auth: object) =>
    startService(t, manifestWith({ memory: "default" }, { memory, auth: { mode: "legacy", provider: JWT, ...auth } }), {
      env: PRODUCTION,
    });
  const path = "/api/memory/conversations";
  const body = { conversationId: "c", userId: "bob" };
  const headers = bearer(token({ sub: "ada" }));
  const open = await start({});
  assert.equal((await inject(open.dispatch, { path, headers, body })).status, 201);
  assert.equal((await inject(open.dispatch, { path, body })).status, 401);
  const isolated = await start({ isolation: "user" });
  assert.equal((await inject(isolated.dispatch, { path, headers, body })).status, 400);
  assert.equal((await inject(isolated.dispatch, { path, headers, body: { conversationId: "c" } })).status, 201);
  const state = await inject(isolated.dispatch, { path: "/workflows/executions" });
  assert.deepEqual((state.json() as Loose).data, [], "public there: what belongs to nobody");
});

const problemsOf = async (auth: string, env: Record<string, string> = {}): Promise<string[]> => {
  const manifest = `name: Test\nstore: "memory:"\nauth:\n  mode: authNext\n${auth}`;
  const error = await startService({ after: () => {} }, manifest, {
    env: { ...PRODUCTION, ...env },
  }).then(
    () => null,
    (thrown) => thrown,
  );
  assert.ok(error instanceof BootError, "it starts");
  return error.booted.issues
    .filter(({ severity }) => severity === "error")
    .map((issue) => formatIssue(issue).replace(/^.*service\.yaml:/, ""));
};

test("authNext.provider: what is wrong with a provider is told at boot, at its line and column, without a secret", async () => {
  assert.deepEqual(await problemsOf("  provider: { use: jwt, secret: short }\n"), [
    "5:25  auth.provider.secret: must have at least 32 bytes, not 5: shorter ones can be guessed",
  ]);
  const short = { JWT_SECRET: "not-long-enough" };
  assert.deepEqual(await problemsOf('  provider:\n    use: jwt\n    secret: "${JWT_SECRET}"\n', short), [
    "7:5  auth.provider.secret: must have at least 32 bytes, not 15: shorter ones can be guessed (from JWT_SECRET)",
  ]);
  assert.deepEqual(await problemsOf('  provider: { use: jwt, secret: "${JWT_SECRET:-}" }\n'), [
    "5:25  auth.provider.secret: is needed, or jwks: without a key no token can be checked (from JWT_SECRET)",
  ]);
  assert.deepEqual(await problemsOf("  provider: { use: jwt }\n"), [
    "5:3  auth.provider.secret: is needed, or jwks: without a key no token can be checked",
  ]);
  const long = `secret: ${"s".repeat(32)}`;
  assert.deepEqual(await problemsOf(`  provider: { use: jwt, ${long}, algorithms: [HS256, none] }\n`), [
    '5:87  auth.provider.algorithms[1]: "none" is not an algorithm for this kind of key; possible: HS256, HS384, HS512',
  ]);
  assert.deepEqual(await problemsOf(`  provider: { use: jwt, ${long}, audence: x }\n`), [
    '5:67  auth.provider.audence: unknown key, did you mean "audience"?',
  ]);
  assert.deepEqual(await problemsOf("  provider: { use: stattic, tokens: {} }\n"), [
    '5:15  auth.provider.use: no auth plugin "stattic", did you mean "static"?',
  ]);
  assert.deepEqual(await problemsOf(`  provider: { use: jwt, ${long}, mapUser: { use: jwt } }\n`), [
    '5:78  auth.provider.mapUser.use: no auth plugin "jwt"; known: static',
  ]);
});

test("authNext.provider: under none a provider is checked for shape only, and nothing is made of it", async (t) => {
  const auth = { mode: "none", provider: { use: "jwt", secret: "x" } };
  const { get } = await startService(t, manifestWith({}, { auth }));
  assert.equal((await get("/agents", bearer("x"))).status, 200);
});

test("authNext.provider: a token whose sub is longer than 256 characters is 401, and where it has an id too its sub is the user", async (t) => {
  const provider = { use: "jwt", secret: SECRET };
  const manifest = manifestWith({ memory: "chats" }, { auth: { mode: "authNext", provider }, memory: { chats: {} } });
  const service = await startService(t, manifest);
  const as = (claims: Record<string, unknown>) => ({ authorization: `Bearer ${token(claims)}` });
  const say = async (claims: Record<string, unknown>, conversationId: string) =>
    (await service.post("/agents/assistant/text", { input: "x", options: { memory: { conversationId } } }, as(claims)))
      .status;
  assert.deepEqual([await say({ sub: "u".repeat(257) }, "a"), await say({ sub: "u".repeat(256) }, "b")], [401, 200]);
  assert.equal(await say({ id: "u".repeat(257) }, "c"), 401);
  assert.equal(await say({ sub: "ada" }, "of-ada"), 200);
  const messages = async (claims: Record<string, unknown>) =>
    (await service.get("/api/memory/conversations/of-ada/messages", as(claims))).status;
  assert.deepEqual(
    [await messages({ sub: "mallory", id: "ada" }), await messages({ sub: "ada", id: "mallory" })],
    [404, 200],
  );
});
