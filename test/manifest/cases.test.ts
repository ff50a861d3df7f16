import assert from "node:assert/strict";
import { dirname, join } from "node:path";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { pick, readCases, runCase } from "./cases.ts";

const FOLDER = join(dirname(fileURLToPath(import.meta.url)), "cases");

describe("manifest cases", () => {
  for (const example of readCases(FOLDER)) {
    it(example.name, () => {
      const { loaded, report } = runCase(example, FOLDER);
      assert.equal(report, example.issues);
      const valid = !loaded.issues.some(({ severity }) => severity === "error");
      assert.equal(loaded.manifest !== null, valid, "there is a manifest exactly when its file has no errors");
      if (example.json === undefined) return;
      const manifest = JSON.parse(JSON.stringify(loaded.manifest));
      assert.deepEqual(example.exact ? manifest : pick(manifest, example.json), example.json);
    });
  }
});
