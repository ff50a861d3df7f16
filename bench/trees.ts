/** Rows of the bench in several trees of the source, in alternating rounds of one run. */
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, symlinkSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { capture } from "./capture.ts";
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
 * The folder of a commit's sources, with their own packages: kept in the user's cache, outside the tree, and made when it is first asked
 * for. Where both have the same lock file, the packages are those of this tree.
 */
export function checkout(ref: string, say: (line: string) => void): string {
  const commit = git("rev-parse", "--verify", `${ref}^{commit}`).toString().trim();
  const folder = join(CACHE, commit);
  if (existsSync(folder)) return folder;
  const unfinished = `${folder}.${process.pid}`;
  rmSync(unfinished, { recursive: true, force: true });
  mkdirSync(unfinished, { recursive: true });
  execFileSync("tar", ["-x", "-C", unfinished], { input: git("archive", commit) });
  const lock = (root: string) => readFileSync(join(root, "package-lock.json"), "utf8");
  if (lock(unfinished) === lock(ROOT)) symlinkSync(join(ROOT, "node_modules"), join(unfinished, "node_modules"));
  else {
    say(`installing the packages of ${ref} in ${folder}`);
    execFileSync("npm", ["ci", "--no-audit", "--no-fund"], {
      cwd: unfinished,
      stdio: "ignore",
    });
  }
  renameSync(unfinished, folder);
  return folder;
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
      servers.push(await startPenstock({ root, entry, transport, service: scenario.service }));
      await scenario.prepare?.(servers.at(-1)!.port);
    }
    const contenders = trees.map(({ name }, index) => ({ name, server: servers[index]! }));
    const sample = await capture(servers.at(-1)!.port, scenario);
    return await measure(scenario, contenders, sample, { ...options, onRun: say });
  } finally {
    for (const server of servers) await server.stop();
  }
}
