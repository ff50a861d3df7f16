import assert from "node:assert/strict";
import { test } from "node:test";
import type { AuthPlugin, ProviderPlugin } from "../../core/plugin/plugin.ts";
import { CreateError, configure, createInstance } from "../../core/registry/create.ts";
import { createHost } from "../../core/registry/host.ts";
import staticTokens from "../../plugins/auth/static.ts";
import { silent } from "../support/tools.ts";

const RATE = {
  config: {
    type: "object",
    properties: {
      rate: { type: "number", default: 0.2 },
      round: { type: "object", default: {}, properties: { to: { type: "integer", default: 2 } } },
    },
    additionalProperties: false,
  },
};
const host = createHost({ logger: silent, env: {} });

test("a configuration gets the schema's defaults, and the manifest's own value is not touched", () => {
  const given = Object.freeze({});
  assert.deepEqual(configure(RATE, given), { config: { rate: 0.2, round: { to: 2 } }, problem: null });
  assert.deepEqual(given, {});
  assert.deepEqual(configure(RATE, undefined).config, { rate: 0.2, round: { to: 2 } });
});

test("a configuration that does not fit says all that is wrong with it", () => {
  assert.deepEqual(configure(RATE, { rate: "x", rat: 1 }), {
    config: null,
    problem: "rat is not a known key; rate must be number",
  });
});

test("a plugin without a config schema takes any keys", () => {
  assert.deepEqual(configure({}, { a: [1] }), { config: { a: [1] }, problem: null });
});

test("a schema that lists its keys and says nothing of others takes no others but notes (x-), and one that says what others are takes them", () => {
  const properties = { rate: { type: "number" } };
  const open = { type: "object", properties, additionalProperties: { type: "string" } };
  const composed = {
    type: "object",
    properties,
    allOf: [{ properties: { to: {} } }],
    patternProperties: { "^to-": {} },
  };
  assert.equal(configure({ config: { type: "object", properties } }, { rat: 1 }).problem, "rat is not a known key");
  assert.equal(configure({ config: { type: "object", properties } }, { rate: 1, "x-why": "slow" }).problem, null);
  assert.equal(configure({ config: open }, { rat: "1" }).problem, null);
  assert.equal(configure({ config: { type: "object" } }, { rat: 1 }).problem, null);
  assert.equal(configure({ config: composed }, { rate: 1, to: 2, "to-a": 3, "x-a": 4 }).problem, null);
  assert.equal(configure({ config: composed }, { tu: 2 }).problem, "tu is not a known key");
});

test("a config schema that does not compile is a problem, not a crash", () => {
  const { problem } = configure({ config: { $ref: "#/$defs/nothing" } }, {});
  assert.match(problem ?? "", /^the plugin's config is not a JSON Schema: .*nothing/);
});

test("an instance is made from the checked configuration", async () => {
  const provider = await createInstance(staticTokens, { tokens: { "a-token-of-some-length": { id: "ada" } } }, host);
  assert.equal(provider.type, "static");
  const request = { method: "GET", path: "/", headers: {}, query: {} };
  assert.deepEqual(await provider.verifyToken("a-token-of-some-length", request), { id: "ada" });
  assert.equal(await provider.verifyToken("__proto__", request), null);
});

test("an instance that cannot be made says the phase and the cause", async () => {
  const failing = (plugin: Partial<ProviderPlugin>) =>
    createInstance({ kind: "provider", ...plugin } as ProviderPlugin, {}, host);
  const create = (value: unknown) => failing({ create: () => value as never });
  const rejects = (made: Promise<unknown>, phase: string, message: string) =>
    assert.rejects(
      made,
      (error) =>
        error instanceof CreateError && assert.deepEqual([error.phase, error.message], [phase, message]) === undefined,
    );
  await rejects(createInstance(staticTokens as AuthPlugin, {}, host), "config", "tokens is required");
  await rejects(failing({ create: () => Promise.reject(new Error("no key")) }), "create", "create failed: no key");
  await rejects(
    failing({
      create: () => {
        throw new Error("no key");
      },
    }),
    "create",
    "create failed: no key",
  );
  await rejects(create(null), "create", "what create returns is not of kind provider: is not an object");
  await rejects(
    create({ languageModel: 1, retries: -1 }),
    "create",
    "what create returns is not of kind provider: languageModel must be a function; retries must be a whole number, 0 or more",
  );
});

test("an instance may be a function with methods, as the providers of the AI SDK are", async () => {
  const callable = Object.assign(() => 1, { languageModel: () => null });
  const plugin: ProviderPlugin = { kind: "provider", create: () => callable as never };
  assert.equal(await createInstance(plugin, {}, host), callable as never);
});

test("a host that closes aborts its signal and runs the callbacks once, last first, also after one that fails", async () => {
  const owned = createHost({ logger: silent, env: { A: "1" } });
  const order: string[] = [];
  owned.onClose(() => void order.push("first"));
  owned.onClose(() => {
    throw new Error("broken");
  });
  owned.onClose(async () => void order.push(`last, aborted: ${owned.signal.aborted}`));
  await Promise.all([owned.close(), owned.close()]);
  assert.deepEqual(order, ["last, aborted: true", "first"]);
});
