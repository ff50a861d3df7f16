/** `POST /reload` of what cannot be served: all of it is named, and everything stays as it was. Who may reload, and how often. */
import assert from "node:assert/strict";
import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { EventReader, eventually } from "../support/event-reader.ts";
import { heldModel } from "../support/held-model.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { changesOf, reload, rewrite, says, textOf } from "../support/reload.ts";
import { manifestWith, startService } from "../support/service.ts";

describe("POST /reload", () => {
  const FAILING: Record<string, [manifest: object | string, error: RegExp]> = {
    syntax: ["name: [", /^not reloaded: .*service\.yaml:1:/],
    grammar: [manifestWith({}, { nmae: "x", tolls: {} }), /nmae: unknown key.*; .*tolls: unknown key/],
    "reference to nothing": [
      manifestWith({ model: "none/x", tools: ["gone"] }),
      /model: .*none.*; .*tools\[0\]: .*gone/,
    ],
    "provider that cannot be made": [
      manifestWith({ model: "p/x" }, { providers: { p: { use: "no-such-package-here" } } }),
      /providers\.p/,
    ],
    workflow: [
      manifestWith({}, { workflows: { w: { input: { type: "nothing" }, steps: [{ id: "a", andThen: { set: 1 } }] } } }),
      /workflows\.w\.input/,
    ],
  };
  for (const [what, [manifest, error]] of Object.entries(FAILING))
    test(`a manifest with a wrong ${what} is 400 with every problem, and changes nothing`, async (t) => {
      const service = await startService(t, manifestWith({}, says("old")));
      const pages = () =>
        Promise.all(["/agents", "/tools", "/workflows", "/doc"].map(async (path) => (await service.get(path)).text()));
      const before = await pages();
      const failed = await reload(service, manifest);
      assert.equal(failed.status, 400);
      assert.match(failed.error!, error);
      assert.ok(service.log.some(({ level, msg }) => level === "error" && String(msg).startsWith("not reloaded: ")));
      assert.deepEqual(await pages(), before);
      assert.equal(await textOf(service), "old");
      assert.equal((await service.get("/readyz")).status, 200);
      // And it can be put right.
      await changesOf(service, manifestWith({}, says("new")));
      assert.equal(await textOf(service), "new");
    });

  test("settings that a running process cannot change are named together, and nothing of the manifest is applied", async (t) => {
    const service = await startService(t, manifestWith({}, says("old")));
    const { status, error } = await reload(
      service,
      manifestWith(
        {},
        {
          ...says("new"),
          store: "sqlite:./other.db",
          memory: { chat: { semantic: { embedding: "local/hash" } } },
          server: { host: "localhost", port: 9, transport: "node" },
        },
      ),
    );
    assert.equal(status, 400);
    for (const path of ["store", "memory.chat.semantic", "server.host", "server.port", "server.transport"])
      assert.match(error!, new RegExp(`${path}: cannot be changed by a reload: restart to apply it`));
    assert.equal(await textOf(service), "old");
  });

  test("who stored objects belong to cannot change while they are served", async (t) => {
    const env = { ...process.env, SERVICE_CONSOLE_ACCESS_KEY: "console-key" };
    const service = await startService(t, manifestWith(), { env });
    const auth = { mode: "authNext", provider: { use: "jwt", secret: "x".repeat(40) } };
    assert.match(
      (await reload(service, manifestWith({}, { auth }))).error!,
      /auth\.mode: cannot be changed by a reload/,
    );
  });

  test("a plugin file that was changed is named: code needs a restart", async (t) => {
    const tool = (text: string) =>
      `import { defineTool } from "#plugin";\nexport default defineTool({ description: "x", execute: () => "${text}" });\n`;
    const folder = pluginFolder(t, { "tools/own.ts": tool("one"), "tools/lib/helper.ts": "export const one = 1;\n" });
    const service = await startService(t, manifestWith({}, { tools: { own: { use: "own" } } }), { plugins: [folder] });
    writeFileSync(join(folder, "tools/lib/helper.ts"), "export const one = 2;\n");
    const { error } = await reload(service, manifestWith());
    assert.match(error!, /tools\/lib\/helper\.ts has changed, and code cannot be loaded again: restart/);
    rmSync(join(folder, "tools/lib/helper.ts"));
    assert.match((await reload(service, manifestWith())).error!, /helper\.ts has changed/);
    assert.equal((await service.post("/tools/own/execute", { input: {} })).status, 200);
  });

  test("neither the log nor the reply shows the value of a secret that has changed", async (t) => {
    const env: Record<string, string | undefined> = { ...process.env, SAID: "first-secret-value" };
    // biome-ignore lint/suspicious/noTemplateCurlyInString: the manifest's own syntax
    const manifest = manifestWith({}, says("${SAID}"));
    const service = await startService(t, manifest, { env });
    env.SAID = "second-secret-value";
    assert.deepEqual(await changesOf(service, manifest), ["changed providers.demo.replies"]);
    assert.equal(await textOf(service), "second-secret-value");
    const failed = await reload(service, { ...manifest, agents: { assistant: { model: "demo/second-secret-value" } } });
    assert.equal(failed.status, 400);
    assert.doesNotMatch(failed.error!, /second-secret-value/);
    assert.doesNotMatch(JSON.stringify(service.log), /(first|second)-secret-value/);
  });

  test("an unchanged manifest changes nothing and is told so", async (t) => {
    const service = await startService(t, manifestWith());
    assert.deepEqual(await changesOf(service, manifestWith()), []);
    assert.equal(service.booted.generations!.size, 1);
  });

  test("reloads run one after the other, and those that wait share one", async (t) => {
    const service = await startService(t, manifestWith({}, says("0")));
    for (const text of ["1", "2"]) {
      rewrite(service, manifestWith({}, says(text)));
      const replies = await Promise.all(Array.from({ length: 20 }, () => service.post("/reload", {})));
      assert.deepEqual(new Set(replies.map(({ status }) => status)), new Set([200]));
      assert.equal(await textOf(service), text);
    }
    assert.equal(service.log.filter(({ msg, changes }) => msg === "reloaded" && (changes as []).length > 0).length, 2);
  });

  test("what a reload replaced is ended once its last work is over", async (t) => {
    const held = heldModel(t);
    held.hold("hello");
    const manifest = manifestWith({ model: "held/one" }, { providers: { held: held.settings } });
    const service = await startService(t, manifest, { plugins: [held.plugins] });
    const generations = service.booted.generations!;
    const reader = new EventReader(`${service.url}/agents/assistant/stream`, { input: "hello" });
    await reader.until(() => reader.text.includes("text-delta"));
    await changesOf(service, manifestWith({}, says("1")));
    await changesOf(service, manifestWith({}, says("2")));
    await eventually(() => generations.size === 2, "the end of the one without work");
    assert.ok(!service.booted.host.signal.aborted);
    held.release("hello");
    await reader.end();
    await eventually(() => generations.size === 1, "the end of the one that had worked");
    assert.ok(service.booted.host.signal.aborted);
  });

  test("needs the console's key under authNext, and a failed reload says nothing to others", async (t) => {
    const auth = { mode: "authNext", provider: { use: "jwt", secret: "x".repeat(40) } };
    const env = { ...process.env, NODE_ENV: "production", SERVICE_CONSOLE_ACCESS_KEY: "console-key" };
    const service = await startService(t, manifestWith({}, { ...says("old"), auth }), { env });
    rewrite(service, manifestWith({}, { ...says("new"), auth }));
    assert.equal((await service.post("/reload", {})).status, 401);
    assert.equal((await service.post("/reload", {}, { authorization: "Bearer nothing" })).status, 401);
    assert.equal((await service.post("/reload", {}, { "x-console-access-key": "console-key" })).status, 200);
  });
});
