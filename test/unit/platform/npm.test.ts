/** npm as a child: its time, its end, and what it gets to know. */
import assert from "node:assert/strict";
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { type TestContext, test } from "node:test";
import { useProxy } from "../../../core/outbound/proxy.ts";
import { runNpm, Updates } from "../../../core/platform/updates.ts";
import { silent } from "../../support/tools.ts";

/** A program called npm, before the real one on the PATH. */
function fakeNpm(t: TestContext, script: string) {
  const folder = mkdtempSync(join(tmpdir(), "penstock-npm-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  writeFileSync(join(folder, "npm"), `#!/bin/sh\n${script}\n`);
  chmodSync(join(folder, "npm"), 0o755);
  writeFileSync(join(folder, "package.json"), JSON.stringify({ dependencies: { tiny: "1.0.0" } }));
  const env = {
    PATH: `${folder}${delimiter}${process.env.PATH}`,
    API_KEY: "hidden",
    NPM_CONFIG_X: "1",
    HTTPS_PROXY: "p",
  };
  return { folder, env };
}

const alive = (pid: number): boolean => {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
};

/** It ignores the polite signal, and so does what it has started. */
const DEAF = `trap '' TERM; echo $$ > "$PWD/pid"; (trap '' TERM; sleep 60) & echo $! > "$PWD/child"; sleep 60`;

test("npm that hangs is ended with all that it has started, at its time limit and when the service stops", async (t) => {
  const { folder, env } = fakeNpm(t, DEAF);
  const files = ["pid", "child"].map((name) => join(folder, name));
  const hasBegun = () => files.every((file) => existsSync(file) && readFileSync(file, "utf8") !== "");
  const gone = async () => {
    // On a busy machine it may have been ended before it had begun.
    const pids = files.filter((file) => existsSync(file)).map((file) => Number(readFileSync(file, "utf8")));
    for (let tries = 0; pids.some(alive) && tries < 6_000; tries++) await new Promise((done) => setTimeout(done, 25));
    assert.deepEqual(pids.filter(alive), []);
  };
  const { signal } = new AbortController();
  await assert.rejects(runNpm(["outdated"], { folder, env, limit: 300, signal }), {
    kind: "unavailable",
    message: "npm outdated took longer than 0.3 s",
  });
  await gone();
  for (const file of files) rmSync(file, { force: true });
  const updates = new Updates({ folder, env, install: true, logger: silent });
  const listing = assert.rejects(updates.list(), /the service is stopping: npm outdated was ended/);
  while (!hasBegun()) await new Promise((done) => setTimeout(done, 25));
  await updates.close();
  await listing;
  await gone();
  await assert.rejects(updates.install("tiny"), { kind: "unavailable" });
});

test("of the environment it gets what npm needs, and no secret of the service", async (t) => {
  const { folder, env } = fakeNpm(t, "env");
  useProxy("env", env);
  t.after(() => useProxy("off", {}));
  const { stdout } = await runNpm(["x"], { folder, env, limit: 5_000, signal: new AbortController().signal });
  assert.match(stdout, /NPM_CONFIG_X=1/);
  assert.match(stdout, /HTTPS_PROXY=http:\/\/p/);
  assert.ok(!stdout.includes("hidden"));
});

test("without npm, with nonsense and with a registry that cannot be reached, the error says so", async (t) => {
  const { folder } = fakeNpm(t, "");
  const without = new Updates({ folder, env: { PATH: "/nowhere" }, install: true, logger: silent });
  await assert.rejects(without.list(), { kind: "internal", message: /^npm was not found/ });
  const SAID: [script: string, message: RegExp][] = [
    ["echo nonsense", /npm says exit code 0/],
    ["exit 7", /npm says exit code 7/],
    [`echo '{"error":{"code":"ENOTFOUND","summary":"x"}}'; exit 1`, /npm says ENOTFOUND/],
  ];
  for (const [script, message] of SAID) {
    const npm = fakeNpm(t, script);
    const updates = new Updates({ folder: npm.folder, env: npm.env, install: true, logger: silent });
    await assert.rejects(updates.list(), { kind: "unavailable", message });
  }
});
