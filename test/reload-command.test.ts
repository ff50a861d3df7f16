/** A reload of the process that serves: by SIGHUP, and by `penstock dev` when the manifest is edited. */
import assert from "node:assert/strict";
import { rename, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { PENSTOCK, type Served, serve } from "./support/command-line.ts";
import { EventReader, eventually } from "./support/event-reader.ts";
import { parseExposition } from "./support/exposition.ts";
import { pluginFolder } from "./support/plugin-folder.ts";
import { onPort } from "./support/ports.ts";

const manifest = (name: string, rest: object = {}) =>
  JSON.stringify({
    name,
    providers: { demo: { use: "scripted", chunks: 10, delay: "200ms" } },
    agents: { assistant: { model: "demo/echo" } },
    tools: { mine: { use: "mine" } },
    ...rest,
  });
const TOOL = (text: string) => `export default { kind: "tool", execute: () => "${text}" };\n`;
const files = (name: string) => ({ "service.yaml": manifest(name), "plugins/tools/mine.ts": TOOL("one") });

/** Tells whether it is still the same process. */
async function startOf({ url }: Served): Promise<number> {
  const families = parseExposition(await (await fetch(`${url}/metrics`)).text());
  return families.get("process_start_time_seconds")!.samples.values().next().value!;
}

test("SIGHUP: penstock serve says what it serves now, or why that has not changed, and goes on", {
  skip: process.platform === "win32",
}, async (t) => {
  const cwd = pluginFolder(t, files("First"));
  const service = await serve(t, [process.execPath, PENSTOCK, "--port", "0"], { cwd });
  const started = await startOf(service);
  const save = (text: string) => writeFile(join(cwd, "service.yaml"), text);
  const hangUp = () => process.kill(service.child.pid!, "SIGHUP");

  await save(manifest("Second"));
  let from = service.stdout().length;
  hangUp();
  await service.says(/Second listens on/, from);
  assert.match(service.stdout().slice(from), /"changes":\[\{"path":"name","change":"changed"\}\]/);

  await save("nmae: x\n");
  hangUp();
  await service.says(/"msg":"service\.yaml:1:1 {2}nmae: unknown key, did you mean \\"name\\"\?"/);
  assert.equal((await fetch(`${service.url}/readyz`)).status, 200);

  await save(manifest("Third", { store: "sqlite:./other.db" }));
  hangUp();
  await service.says(/store: cannot be changed by a reload: restart to apply it/);

  await save(manifest("Fourth"));
  from = service.stdout().length;
  hangUp();
  await service.says(/Fourth listens on/, from);
  assert.equal(await startOf(service), started);
  assert.equal(await service.interrupt("SIGTERM"), 0);
});

test("penstock dev: the process goes on over edits of the manifest, and ends for code and for what cannot be reloaded", async (t) => {
  const cwd = pluginFolder(t, files("First"));
  const service = await onPort((port) =>
    serve(t, [process.execPath, PENSTOCK, "dev", "--port", String(port)], { cwd }),
  );
  const save = async (text: string) => {
    await writeFile(join(cwd, ".draft"), text);
    await rename(join(cwd, ".draft"), join(cwd, "service.yaml"));
  };
  const served = (name: string) => service.says(new RegExp(`${name} listens on`), service.stdout().length);
  const started = await startOf(service);

  const reader = new EventReader(`${service.url}/agents/assistant/stream`, { input: "one two three four five" });
  await reader.until(() => reader.text.includes("text-delta"));
  let said = served("Second");
  await save(manifest("Second"));
  await said;
  await reader.end();
  assert.equal(reader.events.at(-1)!.type, "finish", "a stream that was open has come to its end");
  await save("nmae: x\n");
  await service.says(/nmae: unknown key/);
  assert.equal((await fetch(`${service.url}/agents`)).status, 200);
  said = served("Third");
  await save(manifest("Third"));
  await said;
  assert.equal(await startOf(service), started, "the same process");

  said = served("Fourth");
  await save(manifest("Fourth", { store: "sqlite:./other.db" }));
  await said;
  const second = await startOf(service);
  assert.notEqual(second, started, "another store needs another process");

  said = served("Fourth");
  await writeFile(join(cwd, "plugins/tools/mine.ts"), TOOL("two"));
  await said;
  await eventually(async () => (await startOf(service)) !== second, "another process");
  const run = await fetch(`${service.url}/tools/mine/execute`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: '{"input":{}}',
  });
  assert.equal(((await run.json()) as { data: { result: string } }).data.result, "two");

  const third = await startOf(service);
  const broken = service.says(/mine\.ts:1:7 {2}import: syntax error/, service.stdout().length);
  await writeFile(join(cwd, "plugins/tools/mine.ts"), "const = 1;");
  await broken;
  await service.says(/goes on as it was/);
  assert.equal(await startOf(service), third, "code that does not load ends no process");
  said = served("Fourth");
  await writeFile(join(cwd, "plugins/tools/mine.ts"), TOOL("three"));
  await said;
  await eventually(async () => (await startOf(service)) !== third, "a process with the mended code");
  assert.equal(await service.interrupt("SIGINT"), 0);
});
