/** Whose code threw, by the stack of an error. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { pluginFileOf } from "../../core/registry/blame.ts";
import { ROOT } from "../support/command-line.ts";

const FOLDERS = ["/srv/plugins", "/srv/app"];
const OURS = join(ROOT, "core/http/in-flight.ts");

const thrownAt = (...frames: string[]): Error =>
  Object.assign(new Error("x"), { stack: ["Error: x", ...frames.map((frame) => `    at ${frame}`)].join("\n") });

test("an error is a plugin's when the outermost call of its stack lies in a folder of plugins, packages and Node left aside", () => {
  const plugin = "/srv/plugins/routes/a.ts";
  const cases: [Error, string | null][] = [
    [thrownAt(`Timeout._onTimeout (${plugin}:3:5)`, "listOnTimeout (node:internal/timers:581:17)"), plugin],
    [thrownAt(`${plugin}:3:5`), plugin],
    [thrownAt(`async file://${plugin}?v=2:3:5`), plugin],
    [thrownAt("f (file:///srv/plugins/my%20tools/a.mjs:1:2)"), "/srv/plugins/my tools/a.mjs"],
    [thrownAt(`child (${OURS}:1:1)`, `Timeout.<anonymous> (${plugin}:3:5)`), plugin],
    [thrownAt("f (/srv/app/node_modules/pg/client.js:1:1)", `on (${plugin}:3:5)`), plugin],
    [thrownAt(`handle (${plugin}:3:5)`, `tick (${OURS}:1:1)`), null],
    [thrownAt(`tick (${OURS}:1:1)`, "listOnTimeout (node:internal/timers:581:17)"), null],
    [thrownAt("f (/srv/app/node_modules/pg/client.js:1:1)"), null],
    [thrownAt("f (/srv/plugins-of-others/a.ts:1:1)"), null],
    [new Error(`x\n    at ${plugin}`), null],
  ];
  for (const [error, file] of cases) assert.equal(pluginFileOf(error, FOLDERS), file, error.stack);
});

test("what has no stack, or cannot be looked at, is nobody's", () => {
  const hostile = new Proxy(new Error("x"), {
    get() {
      throw new Error("looked at");
    },
  });
  for (const thrown of ["text", null, undefined, Symbol("x"), hostile, { stack: 5 }])
    assert.equal(pluginFileOf(thrown, FOLDERS), null);
});
