/** The command `build`: a folder with Penstock, the manifest and what is beside it, which runs wherever it is copied to on this platform. */
import { cpSync, existsSync, mkdirSync, readdirSync, realpathSync } from "node:fs";
import { basename, dirname, join, resolve, sep } from "node:path";
import { carryPackages } from "../codegen/carried.ts";
import { PROJECT } from "../lib/version.ts";
import { check } from "./inspect.ts";
import type { Invocation } from "./invocation.ts";

/** Not of the service: what is installed, what it has stored, and an earlier build. Hidden files hold keys and history. */
const LEFT_OUT = /^(\.|node_modules$|data$|dist$)/;
/** The same in folders below, and databases wherever they are: the manifest names the place of its store. */
const KEPT_BACK = /^\.|\.(db|sqlite3?)(-wal|-shm|-journal)?$/;
/** Of the package, what only a type check or another build needs. */
const NOT_RUN = ["node_modules", "types", "sources.sha256"];

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

/** A bundle is copied, and gets the packages that it was installed with; of a checkout one is made. */
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
