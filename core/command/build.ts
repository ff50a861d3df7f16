/** The command `build`: a folder with Penstock, the manifest, the files beside it and the packages that they import, which runs elsewhere. */
import { cpSync, lstatSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, realpathSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { carryPackages } from "../codegen/carried.ts";
import { PROJECT } from "../lib/version.ts";
import { checkAlone } from "../packing/check-alone.ts";
import { carryInstalled, packagesOf } from "../packing/packages.ts";
import { copyService } from "../packing/service-files.ts";
import { check } from "./inspect.ts";
import type { Invocation } from "./invocation.ts";

/** Left out of the package: files that only a type check or another build needs, and V8's code for the files at this place. */
const NOT_RUN = ["node_modules", "types", "sources.sha256", "compile-cache"];

export async function buildFolder(invocation: Invocation): Promise<number> {
  const name = invocation.rest[0]!;
  if (lstatSync(name, { throwIfNoEntry: false }) && readdirSync(name).length > 0)
    throw new Error(`${name} is not empty: name a new folder`);
  const code = await check(invocation);
  if (code !== 0) return code;
  const config = realpathSync(invocation.config);
  const folder = dirname(config);
  const manifest = readFileSync(config, "utf8");
  // Elsewhere, so that the check finds nothing that stands beside or above it.
  const out = realpathSync(mkdtempSync(join(tmpdir(), "penstock-build-")));
  try {
    const files = copyService(folder, out, resolve(name));
    const packages = carryInstalled(folder, await packagesOf(manifest, out, files), out);
    await copyPenstock(join(out, "dist"));
    for (const each of [...files, ...packages]) process.stdout.write(`  ${each}\n`);
    const wrong = checkAlone(out, basename(config), manifest);
    if (wrong !== null) throw new Error(`${name} is not made, because it would not run elsewhere:\n${wrong}`);
    mkdirSync(name, { recursive: true });
    cpSync(out, name, { recursive: true });
  } finally {
    rmSync(out, { recursive: true, force: true });
  }
  const { platform, arch, version } = process;
  const file = basename(config) === "service.yaml" ? "" : ` --config ${basename(config)}`;
  const where = `on ${platform} ${arch} with Node ${version.split(".", 1)[0]}`;
  process.stdout.write(`${name} is whole, ${where}. In it: node dist/penstock.js serve${file}\n`);
  return 0;
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
