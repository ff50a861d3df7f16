/** The command `build`: a folder with Penstock, the manifest and the files beside it, which can be copied anywhere on this platform. */
import { cpSync, existsSync, mkdirSync, readdirSync, realpathSync } from "node:fs";
import { basename, dirname, join, resolve, sep } from "node:path";
import { carryPackages } from "../codegen/carried.ts";
import { PROJECT } from "../lib/version.ts";
import { check } from "./inspect.ts";
import type { Invocation } from "./invocation.ts";

/** Left out of the service's folder: installed packages, stored data, earlier builds, and hidden files, which contain keys and history. */
const LEFT_OUT = /^(\.|node_modules$|data$|dist$)/;
/** Left out at any depth: hidden files, and databases, because the manifest may put the store anywhere. */
const KEPT_BACK = /^\.|\.(db|sqlite3?)(-wal|-shm|-journal)?$/;
/** Left out of the package: files that only a type check or another build needs, and V8's code for the files at this place. */
const NOT_RUN = ["node_modules", "types", "sources.sha256", "compile-cache"];

export async function buildFolder(invocation: Invocation): Promise<number> {
  const name = invocation.rest[0]!;
  if (existsSync(name) && readdirSync(name).length > 0) throw new Error(`${name} is not empty: name a new folder`);
  const code = await check(invocation);
  if (code !== 0) return code;
  const config = resolve(invocation.config);
  mkdirSync(name, { recursive: true });
  const out = realpathSync(name);
  copyService(realpathSync(dirname(config)), out);
  await copyPenstock(join(out, "dist"));
  const { platform, arch, version } = process;
  const file = basename(config) === "service.yaml" ? "" : ` --config ${basename(config)}`;
  const where = `on ${platform} ${arch} with Node ${version.split(".", 1)[0]}`;
  process.stdout.write(`${name} is whole, ${where}. In it: node dist/penstock.js serve${file}\n`);
  return 0;
}

function copyService(from: string, out: string): void {
  const filter = (path: string) => !KEPT_BACK.test(basename(path));
  for (const entry of readdirSync(from)) {
    const path = join(from, entry);
    const holdsBuild = `${out}${sep}`.startsWith(`${path}${sep}`);
    if (!LEFT_OUT.test(entry) && !holdsBuild) cpSync(path, join(out, entry), { recursive: true, filter });
  }
}

/** Copies a bundle together with its installed packages; from a checkout, makes a bundle first. */
async function copyPenstock(out: string): Promise<void> {
  if (import.meta.url.endsWith(".ts")) {
    const { build } = await import("../codegen/build.ts");
    await build({ out });
    return;
  }
  for (const entry of readdirSync(PROJECT))
    if (!NOT_RUN.includes(entry)) cpSync(join(PROJECT, entry), join(out, entry), { recursive: true });
  carryPackages(PROJECT, out);
}
