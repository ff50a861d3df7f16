/** Checks a build where it was made, as if it were elsewhere. */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, resolve } from "node:path";

/** What `check` of the build says, with nothing of this environment but the values that the manifest names; null when it is valid. */
export function checkAlone(cwd: string, config: string, manifest: string): string | null {
  const referred = Array.from(manifest.matchAll(/\$\{(file:)?([^}:]+)/g), ([, file, name]) => [file, name!] as const);
  const env = Object.fromEntries(referred.map(([, name]) => [name, process.env[name]]));
  // Secrets in files are left out: they are put there where it runs.
  const files = referred.flatMap(([file, name]) => (file === undefined ? [] : [resolve(cwd, name)]));
  const absent = files.filter((file) => !existsSync(file));
  for (const file of absent) {
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, "placeholder");
  }
  const words = ["dist/penstock.js", "check", "--config", config];
  const { status, stderr } = spawnSync(process.execPath, words, { cwd, env, encoding: "utf8" });
  for (const file of absent) rmSync(file);
  return status === 0 ? null : stderr;
}
