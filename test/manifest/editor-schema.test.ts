/** `generated/service.schema.json`, which editors check a manifest with while it is written. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Ajv2020 } from "ajv/dist/2020.js";
import formats from "ajv-formats";
import { parse } from "yaml";
import { readCases, runCase } from "./cases.ts";

const FOLDER = dirname(fileURLToPath(import.meta.url));
const ROOT = join(FOLDER, "../..");
const SCHEMA = JSON.parse(readFileSync(join(ROOT, "generated/service.schema.json"), "utf8"));
const ajv = new Ajv2020({ strict: false, allErrors: true });
formats.default(ajv);
const check = ajv.compile(SCHEMA);
const problems = (manifest: unknown) => (check(manifest) ? "" : ajv.errorsText(check.errors));

test("service.schema.json accepts the shipped service.yaml, with its references to the environment", () => {
  assert.equal(problems(parse(readFileSync(join(ROOT, "service.yaml"), "utf8"))), "");
});

test("service.schema.json accepts every golden manifest that is valid", () => {
  let count = 0;
  for (const example of readCases(join(FOLDER, "cases"))) {
    const { loaded } = runCase(example, join(FOLDER, "cases"));
    if (loaded.manifest === null) continue;
    count++;
    assert.equal(problems(parse(example.yaml, { merge: true }) ?? {}), "", example.name);
  }
  assert.ok(count > 15, String(count));
});

test("service.schema.json takes references to the environment for numbers, switches, choices and patterns, and refuses misspelt keys and other texts", () => {
  // biome-ignore lint/suspicious/noTemplateCurlyInString: it is what users write
  const reference = "${SOME_VALUE:-x}";
  const manifest = {
    onPluginCrash: reference,
    store: reference,
    server: {
      port: reference,
      transport: reference,
      cors: reference,
      trustedProxies: [reference],
      limits: { body: reference, request: reference },
    },
    agents: { a: { model: "demo/echo", maxSteps: reference, options: { temperature: reference } } },
    tools: { t: { http: { url: reference, method: reference, retries: reference } } },
    memory: { default: { contextLimit: reference, workingMemory: { scope: reference } } },
    logs: { level: reference },
    updates: { install: reference },
  };
  assert.equal(problems(manifest), "");
  const mistakes: [manifest: object, what: RegExp][] = [
    [{ server: { prot: 1 } }, /must NOT have additional properties/],
    [{ server: { port: "many" } }, /server\/port must be/],
    [{ server: { transport: "uwss" } }, /server\/transport must be equal to one of/],
    // biome-ignore lint/suspicious/noTemplateCurlyInString: it is what users write
    [{ server: "${SERVER}" }, /server must be object/],
    [{ agents: { a: { model: "demo/echo", maxSteps: "5 or so" } } }, /maxSteps must be/],
  ];
  for (const [wrong, what] of mistakes) assert.match(problems(wrong), what);
});
