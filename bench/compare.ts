/** `node --import tsx bench/compare.ts REF [SCENARIO ...]`: the working tree beside a git ref, in alternating rounds. */
import type { Measured } from "./measure.ts";
import { type Options, readOptions, USAGE } from "./options.ts";
import { exitOnSignals } from "./process.ts";
import { table } from "./report.ts";
import { chosen, httpScenarios } from "./scenarios.ts";
import { ROOT } from "./targets.ts";
import { checkout, measureTrees } from "./trees.ts";

const say = (line: string) => process.stderr.write(`${line}\n`);

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
  const trees = [
    { name: ref, root: folder },
    { name: "working tree", root: ROOT },
  ];
  for (const scenario of httpScenarios(chosen(options.scenarios))) {
    const measured = await measureTrees(scenario, trees, options, say);
    for (const tool of options.tools) {
      const of = (name: string) => measured.find((row) => row.tool === tool && row.contender === name)!;
      rows.push(rowOf(of(ref), of("working tree")));
      failures += of(ref).median.failures + of("working tree").median.failures;
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
  exitOnSignals();
  return (await compare(ref, checkout(ref, say), { ...options, scenarios })) > 0 ? 1 : 0;
}

process.exitCode = await main(process.argv.slice(2)).catch((error: unknown) => {
  say(error instanceof Error ? error.message : String(error));
  return 1;
});
