/** docs/client.md: the program that it shows compiles against the client of service.yaml, and prints what is below it. */
import assert from "node:assert/strict";
import { symlinkSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { client } from "../core/command/client.ts";
import { ROOT, run } from "./support/command-line.ts";
import { block, FLAGSHIP, folder } from "./support/documents.ts";
import { startService } from "./support/service.ts";
import { typeErrors } from "./support/type-errors.ts";

const SERVICE = join(ROOT, "service.yaml");

test("docs/client.md: the program compiles against the client of service.yaml, prints what is shown, and the call after an approval compiles too", async (t) => {
  const program = block("ts", "createClient({ baseUrl:");
  const approved = `import { createClient, PenstockError } from "./penstock-client.ts";
const desk = createClient({ baseUrl: "http://127.0.0.1:3141" });
const input = { orderId: "A-1002", amount: 250 };
${block("ts", "error.approvalId !== null")}`;
  const service = await startService(t, FLAGSHIP, { env: {} });
  const project = await folder(t, {
    "package.json": '{ "type": "module" }',
    "desk.ts": program.replaceAll("http://127.0.0.1:3141", service.url),
    "approved.ts": approved,
  });
  symlinkSync(join(ROOT, "node_modules"), join(project, "node_modules"));
  const out = join(project, "penstock-client.ts");
  assert.equal(await client({ config: SERVICE, plugins: [], rest: [], checkOnly: false, out }), 0);
  const node = { types: ["node"], lib: ["lib.es2022.d.ts"], allowImportingTsExtensions: true };
  assert.deepEqual(typeErrors([join(project, "desk.ts"), join(project, "approved.ts")], node), []);
  const { code, stdout, stderr } = await run(process.execPath, ["--import", "tsx", "desk.ts"], { cwd: project });
  assert.deepEqual([code, stderr], [0, ""]);
  assert.equal(stdout, block("text", "Order A-1002, a Standing desk"));
});
