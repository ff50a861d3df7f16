/** What a new user gets wrong: each is one message of the whole boot, with its file, line and key. README.md lists them. */
import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { describe, it } from "node:test";
import { fileURLToPath } from "node:url";
import { boot } from "../../core/app/boot.ts";
import { formatIssue } from "../../core/manifest/manifest.ts";
import { createLogger } from "../../core/observability/logger.ts";
import { EXAMPLES } from "../support/plugin-folder.ts";
import { readCases } from "./cases.ts";

const HERE = dirname(fileURLToPath(import.meta.url));
const MISTAKES = readCases(join(HERE, "mistakes"));

/** The report of `penstock check`, without the notices that any manifest with authentication gets. */
async function report(yaml: string, env: Record<string, string>): Promise<string[]> {
  const folder = await mkdtemp(join(tmpdir(), "penstock-mistake-"));
  try {
    const config = join(folder, "service.yaml");
    await writeFile(config, yaml);
    const { issues, close } = await boot({ config, plugins: [EXAMPLES], env, logger: createLogger("silent") });
    await close();
    const lines = issues.map((issue) => `${issue.severity === "warning" ? "warning " : ""}${formatIssue(issue)}`);
    return lines
      .map((line) => line.replaceAll(`${folder}/`, "").replaceAll(folder, "FOLDER"))
      .filter((line) => !/^warning .*auth\.mode: (SERVICE_CONSOLE_ACCESS_KEY|NODE_ENV) is not/.test(line));
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

describe("a mistake in a manifest is one message that names file, line and key, and what to write", () => {
  for (const { name, yaml, env, issues } of MISTAKES) {
    it(name, async () => {
      const lines = await report(yaml, env);
      assert.equal(lines.join("\n"), issues);
      assert.equal(lines.length, 1);
      assert.match(lines[0]!, /^(warning )?service\.yaml:\d+:\d+ {2}/);
    });
  }

  it("README.md lists every mistake, and there are at least 46", async () => {
    const readme = await readFile(join(HERE, "README.md"), "utf8");
    const listed = [...readme.matchAll(/^\| \d+ +\| ([^|]+?) +\|/gm)].map(([, name]) => name);
    for (const { name } of MISTAKES) assert.ok(listed.includes(name), name);
    assert.ok(MISTAKES.length >= 46);
  });
});
