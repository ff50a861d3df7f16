/** The packages of production: what must not be among them, which may run scripts, and under which licences they are. */
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { manifestWith, startService } from "./support/service.ts";

const ROOT = fileURLToPath(new URL("..", import.meta.url));
const json = (file: string) => JSON.parse(readFileSync(join(ROOT, file), "utf8"));

interface Locked {
  name?: string;
  version: string;
  integrity?: string;
  license?: string;
  dev?: boolean;
  hasInstallScript?: boolean;
}

/** By where they are installed. */
const LOCKED = Object.entries(json("package-lock.json").packages as Record<string, Locked>).filter(
  ([path, { dev }]) => path !== "" && dev !== true,
);
const nameOf = ([path, { name }]: [string, Locked]) => name ?? path.slice(path.lastIndexOf("node_modules/") + 13);

test("@scarf/scarf, which reports installations, is no package of production, nor is it installed in one's place", () => {
  assert.ok(LOCKED.length > 100, "the lockfile was read");
  const held = LOCKED.filter(([path]) => path.endsWith("node_modules/@scarf/scarf"));
  assert.deepEqual(held.map(nameOf), ["empty-npm-package"]);
  assert.ok(!LOCKED.map(nameOf).includes("@scarf/scarf"));
  // Whatever version of swagger-ui-dist an update brings, its dependency is replaced.
  assert.equal(json("package.json").overrides["@scarf/scarf"], "npm:empty-npm-package@1.0.0");
  for (const [path] of held) {
    assert.deepEqual(readdirSync(join(ROOT, path)).sort(), ["index.js", "package.json"]);
    assert.equal(json(join(path, "package.json")).scripts.postinstall, undefined);
  }
});

test("every package of production is pinned by a hash, and those with install scripts are told whether they may run", () => {
  for (const [path, { integrity }] of LOCKED) assert.match(integrity ?? "", /^sha512-/, path);
  const scripts = LOCKED.filter(([, { hasInstallScript }]) => hasInstallScript).map(nameOf);
  assert.deepEqual(scripts.sort(), ["@appthreat/sqlite3", "esbuild"]);
  const { allowScripts } = json("package.json");
  for (const name of scripts) assert.equal(typeof allowScripts[name], "boolean", name);
});

test("SECURITY.md names the licences of all packages of production, and no other", () => {
  const text = readFileSync(join(ROOT, "SECURITY.md"), "utf8").replace(/\s+/g, " ");
  const [, listed = ""] = /are under one of these licences: (.*?)\. Penstock/.exec(text) ?? [];
  const [single = "", choices = ""] = listed.replace(")", "").split(", or let you choose one of them (");
  const stated = new Set(LOCKED.map(([path, { license }]) => license?.replace(/[()]/g, "") ?? `none: ${path}`));
  assert.deepEqual([...single.split(", "), ...choices.split(", ")].sort(), [...stated].sort());
});

test("SECURITY.md names tests that there are, and the version of uwebsockets that is installed", () => {
  const text = readFileSync(join(ROOT, "SECURITY.md"), "utf8");
  const files = readdirSync(join(ROOT, "test"), { recursive: true, encoding: "utf8" }).map((file) => `test/${file}`);
  const named = [...text.matchAll(/\| (`[^|]*`)\s*\|$/gm)].flatMap(([, cell]) => [...cell!.matchAll(/`([^`]+)`/g)]);
  const paths = named.map(([, path]) => path!).filter((path) => path.includes("/") && !path.includes(":"));
  assert.ok(paths.length > 10);
  for (const path of paths) {
    const wanted = path.replace(/\*$/, "");
    assert.ok(
      files.some((file) => file.startsWith(wanted) || file.startsWith(`test/${wanted}`)),
      path,
    );
  }
  const { version } = json("node_modules/uWebSockets.js/package.json");
  for (const [, named] of text.matchAll(/uwebsockets[@-](\d+\.\d+\.\d+)/g)) assert.equal(named, version);
});

test("with server.transport node nothing of uWebSockets.js is loaded", async (t) => {
  const service = await startService(t, manifestWith({}, { server: { transport: "node" } }));
  assert.equal((await service.get("/healthz")).status, 200);
  const { sharedObjects } = process.report.getReport() as { sharedObjects?: string[] };
  assert.ok(sharedObjects !== undefined && sharedObjects.length > 0);
  assert.deepEqual(
    sharedObjects.filter((file) => file.includes("uws_")),
    [],
  );
});
