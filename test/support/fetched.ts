/** Packages of the npm registry for suites that are run by hand, each list of them in a folder of its own, and a Node.js that they run on. */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";

const NODE = "24.9.0";

/** The packages (`NAME@VERSION`), installed in a folder below node_modules/.cache. Returns its node_modules. */
export function fetchPackages(folder: string, ...packages: string[]): string {
  const home = resolve("node_modules/.cache", folder);
  const modules = join(home, "node_modules");
  if (packages.some((each) => !existsSync(join(modules, each.replace(/@[^@]+$/, ""), "package.json")))) {
    mkdirSync(home, { recursive: true });
    writeFileSync(
      join(home, "package.json"),
      JSON.stringify({ private: true, type: "module", allowScripts: { node: true } }),
    );
    execFileSync("npm", ["install", "--no-save", ...packages], { cwd: home, stdio: "inherit" });
  }
  return modules;
}

/** Node.js 22 or later: this one if it is. */
export const newNode = (): string =>
  Number(process.versions.node.split(".")[0]) >= 22
    ? process.execPath
    : join(fetchPackages(`node-${NODE}`, `node@${NODE}`), "node/bin/node");
