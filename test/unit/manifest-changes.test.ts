/** `manifestChanges` and `changedAmong`: paths at which two manifests differ. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { changedAmong, manifestChanges } from "../../core/manifest/changes.ts";
import { parseManifest } from "../../core/manifest/load.ts";
import type { Manifest } from "../../core/manifest/manifest.ts";

const parsed = (manifest: object): Manifest => {
  const { manifest: resolved, issues } = parseManifest(JSON.stringify({ name: "x", ...manifest }), {
    file: "service.yaml",
    env: {},
  });
  assert.ok(resolved !== null, JSON.stringify(issues));
  return resolved;
};
const text = (before: object, after: object) =>
  manifestChanges(parsed(before), parsed(after)).map(({ path, change }) => `${change} ${path}`);

test("manifestChanges names what was added as a whole, and what has changed at its leaf; a list is one change", () => {
  const agent = { model: "demo/echo", instructions: "a" };
  const before = { agents: { a: agent, "b.c": agent }, server: { limits: { request: "5s" } }, plugins: ["./a", "./b"] };
  const after = { agents: { a: { ...agent, instructions: "b" }, d: agent }, plugins: ["./a", "./c"] };
  assert.deepEqual(text(before, after).sort(), [
    "added agents.d",
    "changed agents.a.instructions",
    "changed plugins",
    "changed server.limits.request",
    'removed agents["b.c"]',
  ]);
});

test("manifestChanges is empty for manifests that are written differently and mean the same", () => {
  assert.deepEqual(text({ server: { limits: { request: "120s" } } }, { server: { limits: { request: "2m" } } }), []);
  assert.deepEqual(text({}, { server: { port: 3141 } }), []);
});

test("changedAmong looks at the given places alone; a * is every key of either manifest", () => {
  const semantic = { embedding: "local/hash" };
  const before = parsed({ memory: { a: { semantic }, b: {}, c: {} } });
  const after = parsed({ memory: { a: {}, b: {}, d: { semantic }, e: {} }, server: { port: 1 } });
  assert.deepEqual(changedAmong(["memory.*.semantic", "store", "server.port"], before, after), [
    "memory.a.semantic",
    "memory.d.semantic",
    "server.port",
  ]);
  assert.deepEqual(changedAmong(["memory.*.semantic"], before, before), []);
});
