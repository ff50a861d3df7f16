/** A stop ends the process, whatever plugins do. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { PENSTOCK, serve } from "../support/command-line.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { manifestWith } from "../support/service.ts";

const PROVIDER = `import { setInterval } from "node:timers";
export default { kind: "provider", name: "clingy", config: { properties: { holds: {} } }, create({ holds }, host) {
  setInterval(() => undefined, 60_000);
  if (holds) host.onClose(() => new Promise(() => undefined));
  return { languageModel: (modelId) => ({ specificationVersion: "v3", provider: "clingy", modelId, supportedUrls: {} }) };
} };`;

function start(t: TestContext, holds: boolean) {
  const plugins = pluginFolder(t, { "providers/clingy.mjs": PROVIDER });
  const manifest = manifestWith({ model: "clingy/any" }, { providers: { clingy: { use: "clingy", holds } } });
  const config = join(plugins, "service.yaml");
  writeFileSync(config, JSON.stringify(manifest));
  return serve(t, [process.execPath, PENSTOCK, "--config", config, "--plugins", plugins, "--port", "0"]);
}

test("SIGTERM exits with 0 though a plugin has left a timer behind", async (t) => {
  const service = await start(t, false);
  assert.equal(await service.interrupt("SIGTERM"), 0);
});

test("a second SIGTERM exits at once though a plugin never closes", async (t) => {
  const service = await start(t, true);
  const closed = once(service.child, "close");
  service.child.kill("SIGTERM");
  await service.says(/stopping/);
  await sleep(1_200);
  service.child.kill("SIGTERM");
  assert.deepEqual(await closed, [1, null]);
});

test("SIGTERM exits with 0 though a plugin never closes: it is waited for, for some seconds", async (t) => {
  const service = await start(t, true);
  assert.equal(await service.interrupt("SIGTERM"), 0);
  assert.match(service.stdout(), /onClose of a plugin failed: it took longer than 5 s/);
});
