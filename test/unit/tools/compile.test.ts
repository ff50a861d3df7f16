import assert from "node:assert/strict";
import { test } from "node:test";
import { defineTool, type ToolPlugin } from "../../../core/plugin/plugin.ts";
import { createHost } from "../../../core/registry/host.ts";
import { Registry } from "../../../core/registry/registry.ts";
import { compileTools } from "../../../core/tools/compile.ts";
import { executeTool } from "../../../core/tools/execute.ts";
import add from "../../../plugins/tools/add.ts";
import refund from "../../../plugins/tools/refund.ts";
import { origin, silent } from "../../support/tools.ts";

const PLUGINS: Record<string, ToolPlugin> = {
  add: add as ToolPlugin,
  refund,
  bare: { kind: "tool", execute: (input) => input },
  quick: defineTool({ description: "Own", tags: ["own"], timeout: "1.5s", approval: true, execute: () => 1 }),
  broken: defineTool({ parameters: { $ref: "#/$defs/nothing" }, execute: () => 1 }),
};

function compile(tools: Record<string, object>) {
  const entries = Object.entries(PLUGINS).map(([name, plugin]) => ({
    kind: "tool" as const,
    name,
    file: `/${name}.ts`,
    plugin,
  }));
  return compileTools({ tools } as never, new Registry(entries), createHost({ logger: silent, env: {} }));
}

test("a tool has the name of its key, and what the manifest says goes before what the plugin says", () => {
  const { tools, problems } = compile({
    sum: { use: "add" },
    plain: { use: "bare" },
    quick: { use: "quick" },
    other: { use: "quick", description: "Ours", tags: [], timeout: 250, approval: false },
  });
  assert.deepEqual(problems, []);
  assert.deepEqual([...tools.keys()], ["sum", "plain", "quick", "other"]);
  const seen = [...tools.values()].map(({ description, tags, timeout, approval }) => ({
    description,
    tags,
    timeout,
    approval: approval !== false,
  }));
  assert.deepEqual(seen, [
    { description: "Adds two numbers", tags: ["math"], timeout: 60_000, approval: false },
    { description: "", tags: [], timeout: 60_000, approval: false },
    { description: "Own", tags: ["own"], timeout: 1500, approval: true },
    { description: "Ours", tags: [], timeout: 250, approval: false },
  ]);
});

test("a tool checks its input with every problem named, and runs", () => {
  const sum = compile({ sum: { use: "add" } }).tools.get("sum")!;
  assert.deepEqual(executeTool(sum, { a: 2, b: 3 }, origin()), { sum: 5 });
  assert.equal(
    sum.validate({ a: "2", c: 1 }),
    "input.b is required; input.c is not a known key; input.a must be number",
  );
  assert.equal(sum.validate(null), "input must be object");
});

test("a tool without parameters takes any object", () => {
  const plain = compile({ plain: { use: "bare" } }).tools.get("plain")!;
  assert.deepEqual(executeTool(plain, { a: [1] }, origin()), { a: [1] });
  assert.equal(plain.validate("x"), "input must be object");
});

test("parameters may refer to themselves, and two tools may have the same $id", () => {
  const children = { type: "array", items: { $ref: "#" } };
  const tree = { $id: "https://example.com/tree.json", type: "object", properties: { children }, required: ["name"] };
  const http = {
    method: "GET",
    url: "http://127.0.0.1/",
    headers: {},
    query: {},
    body: null,
    timeout: 1000,
    retries: 0,
  };
  const { tools, problems } = compile({
    a: { http, parameters: tree },
    b: { http, parameters: { ...tree, required: [] } },
  });
  assert.deepEqual(problems, []);
  assert.equal(tools.get("a")!.validate({ name: "x", children: [{}] }), "input.children[0].name is required");
  assert.equal(tools.get("b")!.validate({ children: [{}] }), null);
});

test("`with` reaches the tool as call.config with the plugin's defaults", () => {
  const { tools, problems } = compile({ refund: { use: "refund", with: { limit: 10 } } });
  assert.deepEqual(problems, []);
  const tool = tools.get("refund")!;
  assert.deepEqual(executeTool(tool, { orderId: "A-1001", amount: 5 }, origin({}, { idempotencyKey: "k" })), {
    refundId: "R-k",
    orderId: "A-1001",
    amount: 5,
    currency: "EUR",
    reason: null,
  });
  assert.throws(() => executeTool(tool, { orderId: "A-1001", amount: 11 }, origin()), /a refund is at most 10 EUR/);
});

test("what does not compile is a problem with its place in the manifest, and all of them are told", () => {
  const { tools, problems } = compile({
    refund: { use: "refund", with: { limit: "x", lmit: 1 } },
    broken: { use: "broken" },
    gone: { use: "gone" },
    sum: { use: "add" },
  });
  assert.deepEqual(problems, [
    { path: ["tools", "refund", "with"], message: "lmit is not a known key; limit must be number" },
    {
      path: ["tools", "broken", "use"],
      message: "parameters of the plugin: not a JSON Schema: can't resolve reference #/$defs/nothing from id #",
    },
  ]);
  assert.deepEqual([...tools.keys()], ["sum"], "an unknown plugin is the reference check's to report");
});
