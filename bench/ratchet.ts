/** `npm run bench -- ratchet`: each row beside the commit in which it was fastest. What has become slower than that fails. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { type Measured, median } from "./measure.ts";
import type { Options } from "./options.ts";
import { table } from "./report.ts";
import { type HttpScenario, httpScenarios, SCENARIOS } from "./scenarios.ts";
import { ROOT } from "./targets.ts";
import { checkout, measureTrees } from "./trees.ts";
import { checkOf, ROWS } from "./upstream/rows.ts";

/** By how much a row may be slower, beyond the difference of the reference to itself. */
const TOLERANCE = 0.05;
const REFERENCE = "reference";
const AGAIN = "reference again";
const NOW = "working tree";

/** The rows of the real path that are Penstock's, as rows of the other table. */
const REAL_PATH = ROWS.filter(({ server }) => server !== "provider" && server !== "floor").map((row): HttpScenario => {
  const { server, asked, headers, name, title } = row;
  return {
    kind: "http",
    service: server === "everything" ? "everything" : "upstream",
    name: `upstream-${name}`,
    title,
    method: "POST",
    path: asked.path,
    body: asked.body,
    numbers: { below: 64, pick: "turn" },
    aim: { measure: "requests/s" },
    check: checkOf(asked),
    ...(headers && { headers }),
  };
});

export const RATCHET_ROWS: readonly HttpScenario[] = [...httpScenarios(SCENARIOS), ...REAL_PATH];

interface Reference {
  commit: string;
  reason: string;
}

/** By row, a line each in reference.json: the commit, and why it is that one. */
export function readReferences(): Map<string, Reference> {
  const lines = JSON.parse(readFileSync(join(ROOT, "bench/reference.json"), "utf8")) as Record<string, string>;
  return new Map(
    Object.entries(lines).map(([row, line]) => {
      const [commit = "", ...reason] = line.split(" ");
      return [row, { commit, reason: reason.join(" ") }];
    }),
  );
}

interface Verdict {
  /** CPU time per request, in microseconds. */
  before: number;
  now: number;
  /** How much more than before, and how much the reference differs from itself; shares. */
  more: number;
  spread: number;
  failed: boolean;
}

/** @param cpu CPU time per request in each round: of two servers of the reference, and of the working tree */
export function judge(cpu: {
  reference: readonly number[];
  again: readonly number[];
  now: readonly number[];
}): Verdict {
  const [one, other, now] = [median(cpu.reference), median(cpu.again), median(cpu.now)];
  const before = median([...cpu.reference, ...cpu.again]);
  const spread = Math.abs(one - other) / before;
  const more = now / before - 1;
  return { before, now, more, spread, failed: more > TOLERANCE + spread };
}

const percent = (share: number) => `${(share * 100).toFixed(1)} %`;

/** Resolves with what failed, a sentence each. */
async function ratchet(options: Options, say: (line: string) => void): Promise<string[]> {
  const references = readReferences();
  const wanted = options.scenarios;
  const unknown = wanted.find((name) => !RATCHET_ROWS.some((row) => row.name === name));
  if (unknown !== undefined)
    throw new Error(`no row "${unknown}"; there are: ${RATCHET_ROWS.map(({ name }) => name).join(", ")}`);
  const lines: string[][] = [];
  const failed: string[] = [];
  for (const scenario of RATCHET_ROWS.filter(({ name }) => wanted.length === 0 || wanted.includes(name))) {
    const { name } = scenario;
    const reference = references.get(name);
    if (reference === undefined) throw new Error(`${name} has no line in bench/reference.json`);
    const { commit, reason } = reference;
    const root = checkout(commit, say);
    const trees = [
      { name: REFERENCE, root },
      { name: NOW, root: ROOT },
      { name: AGAIN, root },
    ];
    const measured = await measureTrees(scenario, trees, { ...options, tools: options.tools.slice(0, 1) }, say);
    const of = (contender: string): Measured => measured.find((each) => each.contender === contender)!;
    const cpuOf = (contender: string) => of(contender).rounds.map(({ cpuMicros }) => cpuMicros);
    const verdict = judge({ reference: cpuOf(REFERENCE), again: cpuOf(AGAIN), now: cpuOf(NOW) });
    const { before, now, more, spread } = verdict;
    const failures = measured.reduce((sum, { median: { failures } }) => sum + failures, 0);
    if (failures > 0) failed.push(`${name}: ${failures} requests failed, so that its figures do not count`);
    if (verdict.failed)
      failed.push(
        `${name}: ${now.toFixed(1)} us of CPU a request, ${percent(more)} more than ${before.toFixed(1)} at ${commit} (which differs from itself by ${percent(spread)}): ${reason}`,
      );
    const rate = (contender: string) => of(contender).median.rate.toFixed(0);
    const cells = [
      commit,
      before.toFixed(1),
      now.toFixed(1),
      percent(more),
      percent(spread),
      rate(REFERENCE),
      rate(NOW),
    ];
    lines.push([name, ...cells, verdict.failed ? "SLOWER" : ""]);
    say(lines.at(-1)!.join("  "));
  }
  const head = ["row", "reference", "CPU us/req", "now", "change", "spread", "req/s", "now", ""];
  console.log(table([head, ...lines]));
  return failed;
}

/** Resolves with the exit code. */
export async function runRatchet(options: Options, say: (line: string) => void): Promise<number> {
  const failed = await ratchet(options, say);
  for (const line of failed) console.log(line);
  return failed.length > 0 ? 1 : 0;
}
