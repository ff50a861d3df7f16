// npm runs this at the end of `npm ci` and `npm install` in a checkout, and where somebody installs Penstock from git.
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { freshBundle } from "./fresh.mjs";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));
/** The binary interface of Node 20, the oldest one that is supported. */
const OLDEST = 115;

/** Binaries for all systems are 257 MB. Those for other versions of Node on this system stay, since a machine may have several. */
function removeForeignBinaries() {
  const folder = join(ROOT, "node_modules/uWebSockets.js");
  if (!existsSync(folder)) return;
  const foreign = readdirSync(folder)
    .filter((name) => {
      const [, system, version] = /^uws_(.+)_(\d+)\.node$/.exec(name) ?? [];
      return system !== undefined && (system !== `${process.platform}_${process.arch}` || Number(version) < OLDEST);
    })
    .map((name) => join(folder, name));
  if (foreign.length === 0) return;
  const bytes = foreign.reduce((sum, path) => sum + statSync(path).size, 0);
  for (const path of foreign) rmSync(path);
  console.log(
    `removed ${foreign.length} binaries of uWebSockets.js for other systems: ${Math.round(bytes / 2 ** 20)} MiB`,
  );
}

const run = (...args) =>
  spawnSync(process.execPath, ["--import", "tsx", ...args], { cwd: ROOT, stdio: "inherit" }).status;

// npm sets this in the clone of somebody who installs from git: it packs the clone after that, without `prepack`.
if (process.env._PACOTE_NO_PREPARE_ !== undefined) process.exitCode = run("core/codegen/package.ts", "clone");
else {
  removeForeignBinaries();
  if (freshBundle(ROOT) === null && run("core/codegen/build.ts") !== 0)
    console.log("no bundle was made: npm start runs the sources");
}
