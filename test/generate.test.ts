import assert from "node:assert/strict";
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { runCodegen } from "../core/codegen/main.ts";
import { validators } from "../generated/all-validators.js";
import type { HistoryQuery } from "../generated/types.ts";

const ROOT = dirname(dirname(fileURLToPath(import.meta.url)));
const copies = mkdtempSync(join(tmpdir(), "penstock-generate-"));
after(() => rmSync(copies, { recursive: true }));

/** A folder with these of the schemas. */
function copyOf(...parts: string[]): string {
  const copy = mkdtempSync(join(copies, "of-"));
  for (const part of parts) cpSync(join(ROOT, part), join(copy, part), { recursive: true });
  symlinkSync(join(ROOT, "node_modules"), join(copy, "node_modules"));
  return copy;
}

/** What refers to no other schema: all of them take two seconds each time. */
const few = copyOf("schemas/api/common.json", "schemas/api/options.json");

async function generate(root: string, check: boolean) {
  const lines: string[] = [];
  const code = await runCodegen(root, check, (line) => lines.push(line));
  return { code, lines };
}

describe("npm run generate", () => {
  it("npm run generate would write exactly what is committed, also in another folder", async () => {
    assert.deepEqual(await generate(copyOf("schemas", "generated"), true), { code: 0, lines: [] });
  });

  it("fails with --check on a changed, a missing and a surplus file, and names them", async () => {
    assert.equal((await generate(few, false)).code, 0);
    assert.deepEqual(await generate(few, true), { code: 0, lines: [] });
    writeFileSync(join(few, "generated", "types.ts"), "changed by hand");
    rmSync(join(few, "generated", "defaults.ts"));
    writeFileSync(join(few, "generated", "old.ts"), "");
    const { code, lines } = await generate(few, true);
    assert.equal(code, 1);
    assert.deepEqual(lines.map((line) => line.split(" ")[0]).sort(), [
      "generated/defaults.ts",
      "generated/old.ts",
      "generated/types.ts",
    ]);
    rmSync(join(few, "generated", "old.ts"));
  });

  it("npm run generate names every broken schema file and still generates the others", async () => {
    const folder = join(few, "schemas", "api");
    const file = (name: string, $defs: object) =>
      writeFileSync(
        join(folder, `${name}.json`),
        JSON.stringify({ $id: `https://penstock.dev/schemas/api/${name}.json`, $defs }),
      );
    writeFileSync(join(folder, "zz-text.json"), "{");
    file("zz-reference", { ZzReference: { $ref: "#/$defs/Nowhere" } });
    file("zz-keyword", { ZzKeyword: { type: "object", propertis: {} } });
    file("zz-tuple", { ZzTuple: { type: "array", prefixItems: [{ type: "string" }], items: false, minItems: 1 } });
    file("zz-twin", { Usage: { type: "object" } });
    const { code, lines } = await generate(few, false);
    assert.equal(code, 1);
    const problems = lines.filter((line) => line.startsWith("schemas/"));
    for (const name of ["zz-text", "zz-reference", "zz-keyword", "zz-tuple", "zz-twin"]) {
      assert.ok(
        problems.some((line) => line.startsWith(`schemas/api/${name}.json: `)),
        `${name} in ${problems.join("\n")}`,
      );
      rmSync(join(folder, `${name}.json`));
    }
    const types = readFileSync(join(few, "generated", "types.ts"), "utf8");
    assert.match(types, /export interface Usage /);
    assert.doesNotMatch(types, /Zz/);
  });
});

describe("generated validators", () => {
  it("generated validators read numbers of a query from text", () => {
    const query: unknown = { page: "2", limit: "5" };
    assert.ok(validators.HistoryQuery(query));
    assert.deepEqual(query satisfies HistoryQuery, { page: 2, limit: 5 });
    assert.equal(validators.HistoryQuery({ limit: "abc" }), false);
  });

  it("take bodies as they are: no number is read from text, and no default is put in", () => {
    assert.equal(validators.GenerateRequest({ input: "hi", options: { temperature: "0.5" } }), false);
    const body: unknown = { input: "hi", options: {} };
    assert.ok(validators.GenerateRequest(body));
    assert.deepEqual(body, { input: "hi", options: {} });
  });

  it("generated validators report every problem of a body at once", () => {
    assert.equal(validators.GenerateOptions({ temperature: 2, topP: -1, maxSteps: 0 }), false);
    assert.equal(validators.GenerateOptions.errors?.length, 3);
  });
});
