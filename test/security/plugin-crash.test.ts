/** What a plugin throws where nobody waits for it: a timer, an event, a promise that nobody holds. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { PENSTOCK, serve } from "../support/command-line.ts";
import { pluginFolder } from "../support/plugin-folder.ts";

/** `GET /crash/:how` answers, and something goes wrong a little later. The helper beside the plugin is the plugin's too. */
const CRASH = `
import { EventEmitter } from "node:events";
import { fail } from "./helpers/fail.mjs";
const WAYS = {
  timeout: () => setTimeout(() => fail("timeout"), 5),
  interval: () => { const timer = setInterval(() => { clearInterval(timer); fail("interval"); }, 5); },
  immediate: () => setImmediate(() => fail("immediate")),
  event: () => setTimeout(() => { const emitter = new EventEmitter(); emitter.on("x", () => fail("event")); emitter.emit("x"); }, 5),
  error: () => setTimeout(() => new EventEmitter().emit("error", new Error("error")), 5),
  within: (logger) => setTimeout(() => logger.child(null), 5),
  rejection: () => void (async () => { await null; fail("rejection"); })(),
  text: () => setTimeout(() => { throw "text"; }, 5),
  proxy: () => setTimeout(() => { throw new Proxy(new Error("x"), { getPrototypeOf() { throw new Error("looked at"); } }); }, 5),
};
export default { kind: "route", name: "crash", method: "GET", path: "/crash/:how", handle: ({ params }, { logger }) => {
  WAYS[params.how](logger);
  return params.how; } };
`;
const FAIL = "export const fail = (what) => { throw new Error(what); };\n";

async function start(t: TestContext, onPluginCrash?: "exit" | "log") {
  const cwd = pluginFolder(t, {
    "service.yaml": JSON.stringify({
      server: { port: 0 },
      plugins: ["./plugins"],
      routes: [{ use: "crash" }],
      onPluginCrash,
    }),
    "plugins/routes/crash.mjs": CRASH,
    "plugins/routes/helpers/fail.mjs": FAIL,
  });
  return serve(t, [process.execPath, PENSTOCK, "serve"], { cwd });
}

const lineWith = (stdout: string, what: string): { level: string; msg: string; plugin?: string } =>
  JSON.parse(stdout.split("\n").find((line) => line.startsWith("{") && line.includes(what)) ?? "{}");

const FILE = "plugins/routes/crash.mjs";

test("onPluginCrash: log keeps the service up when a plugin throws in a timer or an event, and the log names the plugin's file", async (t) => {
  const service = await start(t, "log");
  for (const how of ["timeout", "interval", "immediate", "event", "error", "within", "rejection"]) {
    const from = service.stdout().length;
    assert.equal((await fetch(`${service.url}/crash/${how}`)).status, 200);
    await service.says(/uncaught exception.*\n|nobody handled.*\n/, from);
    const { level, plugin, msg } = lineWith(service.stdout().slice(from), '"err":');
    const file = ["error", "within"].includes(how) ? FILE : plugin;
    assert.deepEqual([level, plugin], ["error", file], how);
    assert.match(plugin ?? "", /^plugins\/routes\/(?:crash|helpers\/fail)\.mjs$/, how);
    const said =
      how === "rejection"
        ? `a promise of the plugin ${plugin} was rejected and nobody handled it`
        : `uncaught exception in a timer or an event of the plugin ${plugin}, going on`;
    assert.equal(msg, said);
    assert.equal((await fetch(`${service.url}/healthz`)).status, 200);
  }
  assert.equal(await service.interrupt("SIGTERM"), 0);
});

for (const setting of ["exit", undefined] as const) {
  test(`onPluginCrash: ${setting ?? "nothing"} ends the service in order when a plugin throws in a timer, and the log names the plugin's file`, async (t) => {
    const service = await start(t, setting);
    assert.equal((await fetch(`${service.url}/crash/timeout`)).status, 200);
    await service.says(/uncaught exception.*\n/);
    const { level, msg } = lineWith(service.stdout(), "uncaught exception");
    assert.deepEqual(
      [level, msg],
      ["fatal", `uncaught exception in a timer or an event of the plugin ${FILE}, stopping`],
    );
    await assert.rejects(service.says(/never said/), /ended with 1/);
  });
}

for (const how of ["text", "proxy"]) {
  test(`onPluginCrash: log ends the service in order for what is thrown without a stack (${how}), since nobody can tell whose it is`, async (t) => {
    const service = await start(t, "log");
    assert.equal((await fetch(`${service.url}/crash/${how}`)).status, 200);
    await service.says(/uncaught exception, stopping.*\n/);
    await assert.rejects(service.says(/never said/), /ended with 1/);
  });
}
