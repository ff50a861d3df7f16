/** What executions are pinned to: all that is executed, nothing of what the environment keeps secret. */
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { parseManifest } from "../../../core/manifest/load.ts";
import { compileDefinition } from "../../../core/workflows/compile/definition.ts";
import { hashDefinition, parsePinned, pin } from "../../../core/workflows/definition/pinned.ts";
import { callOf, linked, run, scopeOf, stepsByPath } from "../../support/definitions.ts";
import { pluginFolder } from "../../support/plugin-folder.ts";

function pinOf(workflows: object, env: Record<string, string> = {}, id = "w") {
  const text = JSON.stringify({ name: "Test", version: "1.0", workflows });
  const loaded = parseManifest(text, { file: "service.yaml", env });
  assert.deepEqual(loaded.issues, []);
  return pin(id, loaded.manifest!, loaded);
}

const set = (value: unknown) => ({ andThen: { set: value } });

test("a pinned definition holds the workflow and all that it calls, and none besides", () => {
  const workflows = {
    w: { steps: [{ id: "a", andAll: [[{ id: "b", andWorkflow: { workflow: "x" } }], { id: "c", ...set(1) }] }] },
    x: {
      steps: [
        {
          id: "a",
          andWhen: { if: "true", then: { id: "b", ...set(1) }, else: { id: "c", andWorkflow: { workflow: "y" } } },
        },
      ],
    },
    y: { steps: [{ id: "a", ...set(1) }] },
    z: { steps: [{ id: "a", ...set(1) }] },
  };
  const { pinned, text, hash } = pinOf(workflows);
  assert.deepEqual(Object.keys(pinned.workflows), ["w", "x", "y"]);
  assert.deepEqual(parsePinned(text), pinned);
  assert.equal(hash, hashDefinition(text));
  assert.match(hash, /^[A-Za-z0-9_-]{22}$/);
});

test("the hash is that of what is executed: notes, retention and the values of the environment change nothing", () => {
  const step = { id: "a", andThen: { use: "slow", with: { "x-own": 1, key: `\${KEY}` } } };
  const hash = (workflow: object, env = { KEY: "one" }) => pinOf({ w: workflow }, env).hash;
  const plain = hash({ steps: [step] });
  assert.equal(hash({ steps: [{ ...step, "x-note": "mine" }], retention: "9d", "x-owner": "me" }), plain);
  assert.equal(hash({ steps: [step] }, { KEY: "two" }), plain);
  assert.notEqual(hash({ steps: [{ ...step, retry: { attempts: 1 } }] }), plain);
  assert.notEqual(
    hash({ steps: [{ ...step, andThen: { use: "slow", with: { "x-own": 2, key: `\${KEY}` } } }] }),
    plain,
  );
  assert.notEqual(hash({ steps: [step], timeout: "5s" }), plain);
});

test("a pinned definition holds what an onError calls; notes in onError and bail are none of its hash", () => {
  const call = (workflow: string) => ({ id: workflow, andWorkflow: { workflow } });
  const broken = { id: "b", ...set(1), onError: [call("x")] };
  const end = [{ id: "a", ...set(1) }];
  const workflows = {
    w: { steps: [{ id: "a", andAll: [broken] }], onError: [call("y")] },
    x: { steps: end },
    y: { steps: end },
    z: { steps: end },
  };
  assert.deepEqual(Object.keys(pinOf(workflows).pinned.workflows), ["w", "x", "y"]);
  const hash = (note: object, result: object) =>
    pinOf({
      w: {
        steps: [{ id: "a", bail: { if: "true", result, ...note } }],
        onError: [{ id: "b", ...note, ...set(1), onError: [{ id: "c", ...note, ...set(1) }] }],
      },
    }).hash;
  assert.equal(hash({ "x-note": 1 }, {}), hash({}, {}));
  assert.notEqual(hash({}, { "x-own": 1 }), hash({}, {}));
});

test("secrets are not stored, wherever they stand, with a default too; durations and numbers are what they came to", async (t) => {
  const folder = pluginFolder(t, { "secret.txt": "from-a-file-secret\n" });
  const file = join(folder, "secret.txt");
  const workflows = {
    w: {
      timeout: `\${TIMEOUT}`,
      steps: [
        {
          id: "a",
          retry: { attempts: `\${TRIES}` },
          andThen: { use: "slow", with: { id: `\${TOKEN}`, name: [`Bearer \${TOKEN}`, `\${file:${file}}`] } },
        },
        { id: "b", ...set({ deep: { use: `\${TOKEN:-none}`, plain: `$\${TOKEN}` } }) },
        { id: "c", andThen: { suspend: { reason: `\${TOKEN}`, data: `\${UNSET:-nothing}` } } },
        { id: "d", andWhen: { if: `input.key == '\${TOKEN}'`, then: { id: "e", ...set(1) } } },
      ],
    },
  };
  const { text, pinned } = pinOf(workflows, { TOKEN: "very-secret", TIMEOUT: "5s", TRIES: "3" });
  assert.doesNotMatch(text, /secret(?!\.txt)/);
  const { timeout, steps } = pinned.workflows.w as unknown as { timeout: unknown; steps: Record<string, unknown>[] };
  assert.deepEqual([timeout, steps[0]!.retry], [5000, { attempts: 3, delay: 100, backoff: "exponential" }]);
  assert.deepEqual(steps[0]!.andThen, {
    use: "slow",
    with: { id: { $env: `\${TOKEN}` }, name: [{ $env: `Bearer \${TOKEN}` }, { $env: `\${file:${file}}` }] },
  });
  assert.deepEqual(steps[1]!.andThen, { set: { deep: { use: { $env: `\${TOKEN:-none}` }, plain: `\${TOKEN}` } } });
});

test("a definition is filled in with what the environment has when it is compiled", async (t) => {
  const folder = pluginFolder(t, { "key.txt": "old" });
  const file = join(folder, "key.txt");
  const workflows = {
    w: {
      steps: [
        { id: "a", ...set({ token: `\${TOKEN}`, key: `\${file:${file}}`, text: `{{ data }} of \${TOKEN}` }) },
        { id: "b", andThen: { use: "mine", with: { token: `\${TOKEN:-none}` } } },
      ],
    },
  };
  const plugins = { "steps/mine.mjs": `export default { kind: "step", execute: ({ config }) => config };` };
  const { workflows: compiled, parts } = await linked(t, { workflows }, { env: { TOKEN: "one" }, plugins });
  const { pinned, definition, hash } = compiled.get("w")!;
  const values = (from: typeof definition) => {
    const steps = stepsByPath(from.steps);
    const first = steps.get("a")!;
    return [first.kind === "set" ? first.evaluate(scopeOf({ data: 1 })) : null, run(steps.get("b")!, callOf())];
  };
  assert.deepEqual(values(definition), [{ token: "one", key: "old", text: "1 of one" }, { token: "one" }]);
  writeFileSync(file, "new\n");
  const again = compileDefinition(pinned, { ...parts, env: { TOKEN: "two" } });
  assert.ok("definition" in again);
  assert.deepEqual(values(again.definition), [{ token: "two", key: "new", text: "1 of two" }, { token: "two" }]);
  assert.equal(again.definition.hash, hash);
  const gone = compileDefinition(pinned, { ...parts, env: {}, folder: "/nowhere" });
  assert.deepEqual(gone, { problems: [], missing: ['environment variable "TOKEN"'] });
});

test("a file that is gone is named", async (t) => {
  const folder = pluginFolder(t, { "key.txt": "old" });
  const workflows = { w: { steps: [{ id: "a", ...set(`\${file:${join(folder, "key.txt")}}`) }] } };
  const { pinned } = pinOf(workflows);
  const { parts } = await linked(t, { workflows: {} });
  const text = JSON.stringify(pinned).replace("key.txt", "gone.txt");
  assert.deepEqual(compileDefinition(parsePinned(text), parts), {
    problems: [],
    missing: [`file ${JSON.stringify(join(folder, "gone.txt"))}`],
  });
});

test("objects of the manifest that look like references are what they are", async (t) => {
  const value = { $env: `$\${TOKEN}`, in: [{ $as: { $env: 1 } }, { $as: 2 }] };
  const { workflows } = await linked(t, { workflows: { w: { steps: [{ id: "a", ...set(value) }] } } });
  const step = workflows.get("w")!.definition.steps[0]!;
  assert.ok(step.kind === "set");
  assert.deepEqual(step.evaluate(scopeOf()), { $env: `\${TOKEN}`, in: [{ $as: { $env: 1 } }, { $as: 2 }] });
});
