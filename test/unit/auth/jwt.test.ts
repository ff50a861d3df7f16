/** The built-in provider `jwt`: which tokens are good, and which keys and algorithms are accepted at boot. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { openVerifier } from "../../../core/auth/provider.ts";
import type { Identity, Verifier } from "../../../core/auth/provider-port.ts";
import type { AuthPlugin } from "../../../core/plugin/plugin.ts";
import { createHost } from "../../../core/registry/host.ts";
import { Registry } from "../../../core/registry/registry.ts";
import { type Claims, ecPair, edPair, now, publisher, rsaPair, SECRET, token } from "../../support/tokens.ts";
import { silent } from "../../support/tools.ts";

const host = createHost({ logger: silent, env: {} });
const request = () => ({ method: "GET", path: "/", headers: {}, query: {} });

function open(provider: object, plugins: Record<string, Partial<AuthPlugin>> = {}) {
  const entries = Object.entries(plugins).map(([name, plugin]) => ({
    kind: "auth" as const,
    name,
    file: "",
    plugin: plugin as AuthPlugin,
  }));
  const auth = { mode: "authNext", isolation: "user", provider: { use: "jwt", ...provider } };
  return openVerifier({ auth } as never, { registry: new Registry(entries), host });
}

async function verifierOf(provider: object, plugins: Record<string, Partial<AuthPlugin>> = {}): Promise<Verifier> {
  const { verifier, problems } = await open(provider, plugins);
  assert.deepEqual(problems, []);
  assert.ok(verifier);
  return verifier;
}

async function problemsOf(provider: object, plugins: Record<string, Partial<AuthPlugin>> = {}): Promise<string[]> {
  const { problems } = await open(provider, plugins);
  return problems.map(({ path, message }) => `${path.join(".")}: ${message}`);
}

const check = async (verifier: Verifier, text: string): Promise<Identity | null> => verifier.verify(text, request);
const userOf = async (verifier: Verifier, text: string) => (await check(verifier, text))?.user ?? null;

/** The clock goes on by some milliseconds. */
function pass(t: TestContext, milliseconds: number): void {
  const now = Date.now() + milliseconds;
  t.mock.timers.reset();
  t.mock.timers.enable({ apis: ["Date"], now });
}

const rsa = rsaPair();
const ec = ecPair();
const ed = edPair();

describe("with a shared secret", () => {
  test("a token signed with it is good until it ends, and its claims are the user", async () => {
    const verifier = await verifierOf({ secret: SECRET });
    const exp = now() + 60;
    const identity = await check(verifier, token({ sub: "ada", role: "editor", exp }));
    assert.deepEqual(identity, {
      user: { sub: "ada", role: "editor", exp },
      expires: exp * 1000,
      refusedFrom: (exp + 30) * 1000,
    });
  });

  const changed = (text: string, part: number, to: string) => text.split(".").with(part, to).join(".");
  const encode = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const good = token({ sub: "ada" });
  const bad: Record<string, string> = {
    "of another key": token({ sub: "ada" }, { alg: "HS256" }, `${SECRET}!`),
    "of another algorithm of the same kind": token({ sub: "ada" }, { alg: "HS512" }),
    "with other claims than were signed": changed(good, 1, encode({ sub: "bob", exp: now() + 60 })),
    "without a signature": changed(good, 2, ""),
    "with alg none": token({ sub: "ada" }, { alg: "none" }, ""),
    "with alg None": token({ sub: "ada" }, { alg: "None" }, ""),
    "with alg none and an old signature": changed(good, 0, encode({ alg: "none" })),
    "without alg": changed(good, 0, encode({ typ: "JWT" })),
    "that brings its own key": token(
      { sub: "ada" },
      { alg: "RS256", jwk: rsa.publicKey.export({ format: "jwk" }) },
      rsa.privateKey,
    ),
    "that asks for something nobody knows": token({ sub: "ada" }, { alg: "HS256", crit: ["x"], x: 1 }),
    "with a payload that is not encoded": token({ sub: "ada" }, { alg: "HS256", crit: ["b64"], b64: false }),
    "that has ended": token({ sub: "ada", exp: now() - 31 }),
    "that does not hold yet": token({ sub: "ada", nbf: now() + 60 }),
    "that never ends": token({ sub: "ada", exp: undefined }),
    "that ends at a time that is a text": token({ sub: "ada", exp: String(now() + 60) }),
    "of five parts": `${good}.e30.e30`,
    "with something behind it": `${good}x`,
    garbage: "garbage",
    "that is empty": "",
    "of dots": "..",
    "of claims that are a list": `${encode({ alg: "HS256" })}.${encode([])}.`,
  };
  for (const [what, text] of Object.entries(bad)) {
    test(`a token ${what} is not good`, async () => {
      assert.equal(await check(await verifierOf({ secret: SECRET }), text), null);
    });
  }

  test("clocks may differ by 30 s", async () => {
    const verifier = await verifierOf({ secret: SECRET });
    assert.ok(await check(verifier, token({ sub: "ada", exp: now() - 25 })));
    assert.ok(await check(verifier, token({ sub: "ada", nbf: now() + 25 })));
  });

  test("audience and issuer count where they are configured, one or several", async () => {
    const verifier = await verifierOf({ secret: SECRET, audience: ["api", "app"], issuer: "https://login.example" });
    const claims = { sub: "ada", aud: "api", iss: "https://login.example" };
    const rows: [Claims, boolean][] = [
      [{}, true],
      [{ aud: ["other", "app"] }, true],
      [{ aud: "other" }, false],
      [{ aud: undefined }, false],
      [{ iss: "https://evil.example" }, false],
      [{ iss: "https://login.example/" }, false],
      [{ iss: undefined }, false],
    ];
    for (const [change, good] of rows) {
      assert.equal((await check(verifier, token({ ...claims, ...change }))) !== null, good, JSON.stringify(change));
    }
  });

  test("requireExp: false lets tokens in that do not end; one that has ended stays out", async () => {
    const verifier = await verifierOf({ secret: SECRET, requireExp: false });
    assert.equal((await check(verifier, token({ sub: "ada", exp: undefined })))?.expires, null);
    assert.equal(await check(verifier, token({ sub: "ada", exp: now() - 31 })), null);
  });

  test("algorithms are those of the configuration alone", async () => {
    const verifier = await verifierOf({ secret: SECRET, algorithms: ["HS512"] });
    assert.ok(await check(verifier, token({ sub: "ada" }, { alg: "HS512" })));
    assert.equal(await check(verifier, token({ sub: "ada" })), null);
  });

  test("a known token is answered at once, until it ends, with a user that nobody can change", async (t) => {
    const verifier = await verifierOf({ secret: SECRET });
    const text = token({ sub: "ada", tenant: { id: 1 }, exp: now() + 60 });
    const [first, again] = [await verifier.verify(text, request), verifier.verify(text, request)];
    assert.ok(!(again instanceof Promise));
    assert.equal(again, first);
    assert.throws(() => Object.assign(again!.user, { sub: "bob" }), TypeError);
    assert.throws(() => Object.assign(again!.user.tenant as object, { id: 2 }), TypeError);
    pass(t, 91_000);
    assert.equal(await verifier.verify(text, request), null);
  });
});

describe("with a public key in PEM", () => {
  const kinds = { RS256: rsa, ES256: ec, EdDSA: ed } as const;
  for (const [alg, { pem, privateKey }] of Object.entries(kinds)) {
    test(`${alg} is what a key of its kind checks, and nothing else`, async () => {
      const verifier = await verifierOf({ secret: pem });
      assert.equal((await userOf(verifier, token({ sub: "ada" }, { alg }, privateKey)))?.sub, "ada");
      assert.equal(await userOf(verifier, token({ sub: "ada" }, { alg: "HS256" }, pem)), null, "the key as a secret");
      assert.equal(await userOf(verifier, token({ sub: "ada" }, { alg: "HS256" }, pem.trim())), null);
      assert.equal(await userOf(verifier, token({ sub: "ada" }, { alg: "none" }, "")), null);
      for (const other of Object.keys(kinds).filter((kind) => kind !== alg)) {
        assert.equal(await userOf(verifier, token({}, { alg: other }, kinds[other as "RS256"].privateKey)), null);
      }
    });
  }

  test("a key whose line ends are written out is the same key", async () => {
    const verifier = await verifierOf({ secret: rsa.pem.replaceAll("\n", "\\n") });
    assert.ok(await userOf(verifier, token({ sub: "ada" }, { alg: "RS256" }, rsa.privateKey)));
    assert.equal(await userOf(verifier, token({ sub: "ada" }, { alg: "PS256" }, rsa.privateKey)), null);
  });
});

describe("with published keys", () => {
  const started = async (t: TestContext, provider: object = {}) => {
    const keys = await publisher(t, { a: rsa, b: ec });
    return { keys, verifier: await verifierOf({ jwks: keys.url, ...provider }) };
  };
  const by = (kid: string | undefined, alg = "RS256", { privateKey } = rsa, claims: Claims = {}) =>
    token({ sub: "ada", ...claims }, { alg, kid }, privateKey);

  test("each token is checked with the key that it names; they are read once, with the first token", async (t) => {
    const { keys, verifier } = await started(t);
    assert.equal(keys.reads, 0);
    assert.ok(await check(verifier, by("a")));
    assert.ok(await check(verifier, by("b", "ES256", ec)));
    assert.equal(keys.reads, 1);
  });

  test("a token of an unknown key, of the wrong kind of key, or by a secret is not good", async (t) => {
    const { keys, verifier } = await started(t);
    const strangers = rsaPair();
    assert.equal(await check(verifier, by("a", "RS256", strangers)), null);
    assert.equal(await check(verifier, by("c", "RS256", strangers)), null);
    assert.equal(await check(verifier, by("b")), null);
    assert.equal(await check(verifier, token({ sub: "ada" }, { alg: "HS256", kid: "a" }, rsa.pem)), null);
    assert.equal(await check(verifier, token({ sub: "ada" }, { alg: "none", kid: "a" }, "")), null);
    assert.equal(keys.reads, 1);
  });

  test("a token that names no key is checked with each that it may mean", async (t) => {
    const other = rsaPair();
    const keys = await publisher(t, { "unnamed 1": other, "unnamed 2": rsa });
    const verifier = await verifierOf({ jwks: keys.url });
    assert.ok(await check(verifier, by(undefined)));
    assert.equal(await check(verifier, by(undefined, "RS256", rsaPair())), null);
  });

  test("strangers' keys are looked for once in 30 s, however many tokens name them; a new key is found then", async (t) => {
    const { keys, verifier } = await started(t);
    const fresh = rsaPair();
    await check(verifier, by("a"));
    keys.keys = { a: rsa, c: fresh };
    for (let index = 0; index < 10; index++) assert.equal(await check(verifier, by(`x${index}`)), null);
    assert.equal(keys.reads, 1);
    pass(t, 31_000);
    assert.ok(await check(verifier, by("c", "RS256", fresh)));
    await Promise.all([1, 2, 3, 4].map((index) => check(verifier, by(`y${index}`))));
    assert.equal(keys.reads, 2);
  });

  test("a token of a key that is no longer published is refused once the keys are read again", async (t) => {
    const { keys, verifier } = await started(t);
    const text = by("a", "RS256", rsa, { exp: now() + 86_400 });
    assert.ok(await check(verifier, text));
    keys.keys = { b: ec };
    pass(t, 601_000);
    assert.equal(await check(verifier, text), null);
  });

  test("while they cannot be read tokens get unavailable, and the keys are not fetched for every token", async (t) => {
    const { keys, verifier } = await started(t);
    for (const failing of [{ status: 500 }, { status: 200, body: "<html>" }, { status: 200, body: "{}" }]) {
      keys.failing = failing;
      pass(t, 6_000);
      for (let index = 0; index < 3; index++) {
        await assert.rejects(check(verifier, by("a")), { name: "ServiceError", kind: "unavailable" });
      }
    }
    assert.equal(keys.reads, 3);
    pass(t, 6_000);
    keys.failing = null;
    assert.ok(await check(verifier, by("a", "RS256", rsa, { exp: now() + 60 })));
  });

  test("known keys stay in use while they cannot be read again, for an hour", async (t) => {
    const { keys, verifier } = await started(t);
    assert.ok(await check(verifier, by("a")));
    keys.failing = { status: 503 };
    pass(t, 1_200_000);
    assert.ok(await check(verifier, by("a", "RS256", rsa, { exp: now() + 86_400 })));
    pass(t, 3_600_000);
    await assert.rejects(check(verifier, by("a")), { kind: "unavailable" });
  });
});

describe("at boot", () => {
  test("a secret under 32 bytes is refused, and so are no key and both kinds of key", async () => {
    assert.deepEqual(await problemsOf({ secret: "ü".repeat(15) }), [
      "auth.provider.secret: must have at least 32 bytes, not 30: shorter ones can be guessed",
    ]);
    const missing = "auth.provider.secret: is needed, or jwks: without a key no token can be checked";
    assert.deepEqual(await problemsOf({}), [missing]);
    assert.deepEqual(await problemsOf({ secret: "" }), [missing]);
    assert.deepEqual(await problemsOf({ secret: SECRET, jwks: "https://login.example" }), [
      "auth.provider.jwks: cannot be combined with secret: set only one of them",
    ]);
    assert.deepEqual(await problemsOf({ jwks: "login.example/keys" }), [
      "auth.provider.jwks: must be an address such as https://login.example/.well-known/jwks.json",
    ]);
  });

  test("an algorithm that does not fit the key is refused", async () => {
    const [none, rs] = await problemsOf({ secret: SECRET, algorithms: ["none", "RS256"] });
    assert.match(
      none!,
      /^auth\.provider\.algorithms\.0: "none" is not an algorithm for this kind of key; possible: HS256/,
    );
    assert.match(rs!, /^auth\.provider\.algorithms\.1: "RS256"/);
    for (const provider of [{ jwks: "https://login.example/keys" }, { secret: rsa.pem }, { secret: ec.pem }]) {
      const problems = await problemsOf({ ...provider, algorithms: ["HS256"] });
      assert.match(problems.join(), /algorithms\.0: "HS256" is not an algorithm/);
    }
    assert.match((await problemsOf({ secret: ec.pem, algorithms: ["ES384"] })).join(), /possible: ES256$/);
  });

  test("a private key, a weak one and one that cannot be read are refused", async () => {
    const pem = rsa.privateKey.export({ type: "pkcs8", format: "pem" });
    assert.match((await problemsOf({ secret: pem })).join(), /secret: is a private key/);
    assert.match((await problemsOf({ secret: rsaPair(1024).pem })).join(), /at least 2048 bits, not 1024/);
    const broken = "-----BEGIN PUBLIC KEY-----\nno\n-----END PUBLIC KEY-----";
    assert.match((await problemsOf({ secret: broken })).join(), /secret: is not a readable public key in PEM/);
  });

  test("keys that it does not know and values of another type are told at their place", async () => {
    assert.deepEqual(await problemsOf({ secret: SECRET, audiences: "x", requireExp: "no", "x-note": 1 }), [
      'auth.provider.audiences: unknown key, did you mean "audience"?',
      "auth.provider.requireExp: must be boolean",
    ]);
  });

  test("keys that come over http from another machine are warned about", async () => {
    const warned = async (jwks: string) => (await open({ jwks })).problems.map(({ severity }) => severity);
    assert.deepEqual(await warned("http://login.example/keys"), ["warning"]);
    assert.deepEqual(await warned("https://login.example/keys"), []);
    assert.deepEqual(await warned("http://localhost:8080/keys"), []);
  });

  test("a provider that does not exist is refused with a suggestion", async () => {
    const problems = await problemsOf({ use: "jtw" });
    assert.deepEqual(problems, ['auth.provider.use: no auth plugin "jtw", did you mean "jwt"?']);
  });
});

describe("mapUser", () => {
  test("mapUser names the claims that become fields; those that are not there are left out", async () => {
    const mapUser = {
      id: "sub",
      roles: "realm_access.roles",
      tenant: "https://example.com/tenant",
      email: "email",
      odd: "__proto__.x",
    };
    const verifier = await verifierOf({ secret: SECRET, mapUser });
    const claims = { sub: "ada", realm_access: { roles: ["a"] }, "https://example.com/tenant": 7, other: true };
    assert.deepEqual(await userOf(verifier, token(claims)), { id: "ada", roles: ["a"], tenant: 7 });
  });

  test("{use: NAME} is the mapUser of an auth plugin; one that throws or returns no object refuses the token", async () => {
    const mapUser = (claims: Claims) => {
      if (claims.sub === "eve") throw new Error("not eve");
      return claims.sub === "mallory" ? null : { id: `user-${claims.sub}` };
    };
    const verifier = await verifierOf(
      { secret: SECRET, mapUser: { use: "ours" } },
      { ours: { mapUser: mapUser as never } },
    );
    assert.deepEqual(await userOf(verifier, token({ sub: "ada" })), { id: "user-ada" });
    assert.equal(await userOf(verifier, token({ sub: "eve" })), null);
    assert.equal(await userOf(verifier, token({ sub: "mallory" })), null);
  });

  test("a plugin that does not exist or has no mapUser is refused at boot; users without an id are warned about", async () => {
    const provider = { secret: SECRET, mapUser: { use: "ours" } };
    assert.deepEqual(await problemsOf(provider), ['auth.provider.mapUser.use: no auth plugin "ours"']);
    assert.deepEqual(await problemsOf(provider, { ours: {} }), [
      'auth.provider.mapUser.use: auth plugin "ours" has no mapUser',
    ]);
    const { verifier, problems } = await open({ secret: SECRET, mapUser: { email: "email" } });
    assert.ok(verifier);
    assert.deepEqual(
      problems.map(({ path, severity }) => [path.join("."), severity]),
      [["auth.provider.mapUser", "warning"]],
    );
  });
});

describe("a provider of a plugin", () => {
  const SAMPLES: [string, () => unknown, object | null][] = [
    ["a user", async () => ({ id: "ada" }), { id: "ada" }],
    ["null", async () => null, null],
    ["undefined", async () => undefined, null],
    ["true", async () => true, null],
    ["a text", async () => "ada", null],
    ["a list", async () => [{ id: "ada" }], null],
    ["a user at once", () => ({ id: "ada" }), { id: "ada" }],
    [
      "a throw",
      () => {
        throw new Error("no");
      },
      null,
    ],
    ["a rejection", () => Promise.reject(new Error("no")), null],
    ["a rejection with nothing", () => Promise.reject(undefined), null],
  ];
  for (const [what, verifyToken, user] of SAMPLES) {
    test(`verifyToken that gives ${what} ${user === null ? "refuses" : "accepts"} the token`, async () => {
      const plugin = { kind: "auth" as const, create: () => ({ type: "ours", verifyToken: verifyToken as never }) };
      assert.deepEqual(await userOf(await verifierOf({ use: "ours" }, { ours: plugin }), "token"), user);
    });
  }

  test("an auth provider of a plugin is asked every time, with what the request was, and its publicRoutes count", async () => {
    const seen: unknown[] = [];
    const verifyToken = async (...given: unknown[]) => {
      seen.push(given);
      return { id: "ada" };
    };
    const create = (config: object) => ({ type: "ours", publicRoutes: ["GET /open"], verifyToken, ...config });
    const verifier = await verifierOf({ use: "ours" }, { ours: { kind: "auth", create } });
    assert.deepEqual(verifier.publicRoutes, ["GET /open"]);
    await check(verifier, "token");
    await check(verifier, "token");
    assert.deepEqual(seen, [
      ["token", request()],
      ["token", request()],
    ]);
  });

  test("its own mapUser is not asked unless the manifest names it", async () => {
    const mapUser = () => ({ id: "mapped" });
    const plugin = {
      kind: "auth" as const,
      create: () => ({ type: "ours", verifyToken: async () => ({ id: "ada" }) }),
      mapUser,
    };
    assert.deepEqual(await userOf(await verifierOf({ use: "ours" }, { ours: plugin }), "t"), { id: "ada" });
    const named = await verifierOf({ use: "ours", mapUser: { use: "ours" } }, { ours: plugin });
    assert.deepEqual(await userOf(named, "t"), { id: "mapped" });
  });

  test("an auth provider of a plugin that is wrongly configured, or cannot be made, is refused at its place", async () => {
    const plugin = {
      kind: "auth" as const,
      config: {
        type: "object",
        properties: { url: { type: "string" } },
        required: ["url"],
        additionalProperties: false,
      },
      create: () => {
        throw new Error("no network");
      },
    };
    assert.deepEqual(await problemsOf({ use: "ours", url: 1 }, { ours: plugin }), [
      "auth.provider.url: must be string",
    ]);
    assert.deepEqual(await problemsOf({ use: "ours" }, { ours: plugin }), ["auth.provider.url: is required"]);
    assert.match(
      (await problemsOf({ use: "ours", url: "x" }, { ours: plugin })).join(),
      /^auth\.provider: create failed: no network/,
    );
  });
});
