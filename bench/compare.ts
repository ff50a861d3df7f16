/** `node --import tsx bench/compare.ts REF [SCENARIO ...]`: the working tree beside a git ref, in alternating rounds. */
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { capture } from "./capture.ts";
import { type Measured, measure } from "./measure.ts";
import { type Options, readOptions, USAGE } from "./options.ts";
import { exitOnSignals } from "./process.ts";
import { table } from "./report.ts";
import { chosen, httpScenarios } from "./scenarios.ts";
import { ROOT, startPenstock } from "./targets.ts";

const say = (line: string) => process.stderr.write(`${line}\n`);

function git(...args: string[]): void {
  const { status, stderr } = spawnSync("git", ["-C", ROOT, ...args], { encoding: "utf8" });
  if (status !== 0) throw new Error(`git ${args.join(" ")}: ${stderr.trim()}`);
}

/** Checks a ref out into a temporary folder, with this tree's packages; `remove` deletes it. */
function worktree(ref: string): { folder: string; remove(): void } {
  const parent = mkdtempSync(join(tmpdir(), "penstock-compare-"));
  const folder = join(parent, "tree");
  const remove = () => {
    spawnSync("git", ["-C", ROOT, "worktree", "remove", "--force", folder]);
    rmSync(parent, { recursive: true, force: true });
  };
  try {
    git("worktree", "add", "--detach", folder, ref);
    symlinkSync(join(ROOT, "node_modules"), join(folder, "node_modules"));
  } catch (error) {
    remove();
    throw error;
  }
  return { folder, remove };
}

function rowOf(before: Measured, after: Measured): string[] {
  const change = (old: number, now: number) => `${(((now - old) / old) * 100).toFixed(1)} %`;
  return [
    before.scenario,
    before.tool,
    before.median.rate.toFixed(0),
    after.median.rate.toFixed(0),
    change(before.median.rate, after.median.rate),
    before.median.cpuMicros.toFixed(1),
    after.median.cpuMicros.toFixed(1),
    change(before.median.cpuMicros, after.median.cpuMicros),
    String(before.median.failures + after.median.failures),
  ];
}

async function compare(ref: string, folder: string, options: Options): Promise<number> {
  const rows: string[][] = [];
  let failures = 0;
  for (const scenario of httpScenarios(chosen(options.scenarios))) {
    const started = [];
    try {
      for (const root of [folder, ROOT]) {
        started.push(
          await startPenstock({ root, entry: options.entry, transport: options.transport, service: scenario.service }),
        );
      }
      const [before, after] = started as [(typeof started)[0], (typeof started)[0]];
      const contenders = [
        { name: ref, server: before },
        { name: "working tree", server: after },
      ];
      for (const { port } of [before, after]) await scenario.prepare?.(port);
      const sample = await capture(after.port, scenario);
      const measured = await measure(scenario, contenders, sample, { ...options, onRun: say });
      for (const tool of options.tools) {
        const of = (name: string) => measured.find((row) => row.tool === tool && row.contender === name)!;
        rows.push(rowOf(of(ref), of("working tree")));
        failures += of(ref).median.failures + of("working tree").median.failures;
      }
    } finally {
      for (const server of started) await server.stop();
    }
  }
  const head = ["scenario", "load", `${ref} req/s`, "now req/s", "change", "CPU us/req", "now", "change", "failures"];
  console.log(table([head, ...rows]));
  return failures;
}

async function main(args: readonly string[]): Promise<number> {
  const options = readOptions(args);
  const [ref, ...scenarios] = options.scenarios;
  if (options.help || ref === undefined) {
    say(`node --import tsx bench/compare.ts GIT_REF [SCENARIO ...]; options as in:\n${USAGE}`);
    return options.help ? 0 : 1;
  }
  const tree = worktree(ref);
  process.once("exit", tree.remove);
  exitOnSignals();
  try {
    return (await compare(ref, tree.folder, { ...options, scenarios })) > 0 ? 1 : 0;
  } finally {
    process.removeListener("exit", tree.remove);
    tree.remove();
  }
}

process.exitCode = await main(process.argv.slice(2)).catch((error: unknown) => {
  say(error instanceof Error ? error.message : String(error));
  return 1;
});
