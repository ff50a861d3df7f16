/** Rows of the bench in several trees of the source, in alternating rounds of one run. */
import { execFileSync, spawnSync } from "node:child_process";
import { cpSync, existsSync, lstatSync, mkdirSync, readFileSync, renameSync, rmSync, symlinkSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { type Measured, measure } from "./measure.ts";
import type { Options } from "./options.ts";
import type { HttpScenario } from "./scenarios.ts";
import { ROOT, type Running, startPenstock } from "./targets.ts";

interface Tree {
  name: string;
  root: string;
}

const CACHE = join(process.env.XDG_CACHE_HOME || join(homedir(), ".cache"), "penstock-bench");

function git(...args: string[]): Buffer {
  const { status, stdout, stderr } = spawnSync("git", ["-C", ROOT, ...args], { maxBuffer: 1 << 30 });
  if (status !== 0) throw new Error(`git ${args.join(" ")}: ${stderr.toString().trim()}`);
  return stdout;
}

/**
 * The folder of a commit's sources, kept in the user's cache, outside the tree, and made when it is first asked for. Its packages are its
 * own, or those of this tree where both have the same lock file. Its manifests and their plugins are this tree's: a row is the same in
 * every tree.
 */
export function checkout(ref: string, say: (line: string) => void): string {
  const commit = git("rev-parse", "--verify", `${ref}^{commit}`).toString().trim();
  const folder = join(CACHE, commit);
  if (!existsSync(folder)) {
    const unfinished = `${folder}.${process.pid}`;
    mkdirSync(unfinished, { recursive: true });
    execFileSync("tar", ["-x", "-C", unfinished], { input: git("archive", commit) });
    renameSync(unfinished, folder);
  }
  installPackages(folder, () => say(`installing the packages of ${ref} in ${folder}`));
  rmSync(join(folder, "bench"), { recursive: true, force: true });
  cpSync(join(ROOT, "bench"), join(folder, "bench"), { recursive: true });
  return folder;
}

function installPackages(folder: string, onInstall: () => void): void {
  const packages = join(folder, "node_modules");
  const lock = (root: string) => readFileSync(join(root, "package-lock.json"), "utf8");
  // A link may point to a tree that is gone, or that has other packages by now.
  if (lstatSync(packages, { throwIfNoEntry: false })?.isSymbolicLink()) rmSync(packages);
  if (existsSync(packages)) return;
  if (lock(folder) === lock(ROOT)) {
    symlinkSync(join(ROOT, "node_modules"), packages);
    return;
  }
  onInstall();
  try {
    execFileSync("npm", ["ci", "--no-audit", "--no-fund"], { cwd: folder, stdio: ["ignore", "ignore", "inherit"] });
  } catch (error) {
    rmSync(packages, { recursive: true, force: true });
    throw error;
  }
}

/** Runs a row on a server of each tree: all of them run at the same time, and are idle unless it is their turn. */
export async function measureTrees(
  scenario: HttpScenario,
  trees: readonly Tree[],
  options: Options,
  say: (line: string) => void,
): Promise<Measured[]> {
  const { entry, transport } = options;
  const servers: Running[] = [];
  try {
    for (const { root } of trees) {
      servers.push(
        await startPenstock({ root, manifests: join(root, "bench"), entry, transport, service: scenario.service }),
      );
      await scenario.prepare?.(servers.at(-1)!.port);
    }
    const contenders = trees.map(({ name }, index) => ({ name, server: servers[index]! }));
    return await measure(scenario, contenders, { ...options, onRun: say });
  } finally {
    for (const server of servers) await server.stop();
  }
}
