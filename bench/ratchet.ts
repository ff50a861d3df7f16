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

/** By how much a row may be slower than its reference, as a share. */
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

type Verdict = "passed" | "slower" | "undecided";

interface Judged {
  verdict: Verdict;
  /** CPU time per request, in microseconds; medians. */
  before: number;
  now: number;
  /** How much more than before, and how sure that is; shares. */
  more: number;
  spread: number;
}

/**
 * What the two servers of the reference differ in is what chance does to a figure: a row has passed, or is slower, when it is so whatever
 * chance has done. Where chance alone does more than is looked for, nothing is decided.
 *
 * @param cpu CPU time per request in each round: of two servers of the reference, and of the working tree
 */
export function judge(cpu: { reference: readonly number[]; again: readonly number[]; now: readonly number[] }): Judged {
  const { reference, again, now } = cpu;
  const means = reference.map((one, round) => (one + again[round]!) / 2);
  const apart = reference.map((one, round) => (one - again[round]!) / means[round]!);
  // What is the same in all rounds is how the two servers are; the rest is less in the median of more rounds.
  const spread = Math.max(Math.abs(median(apart)), median(apart.map(Math.abs)) / Math.sqrt(apart.length));
  const more = median(now.map((each, round) => each / means[round]! - 1));
  const decided = spread <= TOLERANCE && Math.abs(more - TOLERANCE) >= spread;
  const verdict = !decided ? "undecided" : more > TOLERANCE ? "slower" : "passed";
  return { verdict, before: median(means), now: median(now), more, spread };
}

const percent = (share: number) => `${(share * 100).toFixed(1)} %`;

/** The sentence about a row that has not passed. */
export function told(name: string, { verdict, before, now, more, spread }: Judged, { commit, reason }: Reference) {
  const figures = `${now.toFixed(1)} us of CPU a request, ${before.toFixed(1)} at ${commit}: ${percent(more)} more, and ${commit} differs from itself by ${percent(spread)}`;
  if (verdict === "slower") return `${name}: slower: ${figures}. Its reference: ${reason}`;
  const cause = spread > TOLERANCE ? "too noisy" : `too near to ${percent(TOLERANCE)}`;
  return `${name}: undecided: ${cause}; use more or longer rounds, or a quieter machine: ${figures}`;
}

/** Resolves with a line of the table, and with what is wrong, if anything is. */
async function ratchetRow(
  scenario: HttpScenario,
  reference: Reference,
  options: Options,
  say: (line: string) => void,
): Promise<{ verdict: Verdict | "failed"; cells: string[]; sentence: string }> {
  const { name } = scenario;
  const { commit } = reference;
  const root = checkout(commit, say);
  const trees = [
    { name: REFERENCE, root },
    { name: NOW, root: ROOT },
    { name: AGAIN, root },
  ];
  const measured = await measureTrees(scenario, trees, { ...options, tools: options.tools.slice(0, 1) }, say);
  const of = (contender: string): Measured => measured.find((each) => each.contender === contender)!;
  const cpuOf = (contender: string) => of(contender).rounds.map(({ cpuMicros }) => cpuMicros);
  const judged = judge({ reference: cpuOf(REFERENCE), again: cpuOf(AGAIN), now: cpuOf(NOW) });
  const failures = measured.reduce((sum, { median: { failures } }) => sum + failures, 0);
  if (failures > 0) throw new Error(`${failures} requests failed`);
  const { verdict, before, now, more, spread } = judged;
  const rate = (contender: string) => of(contender).median.rate.toFixed(0);
  const figures = [before.toFixed(1), now.toFixed(1), percent(more), percent(spread), rate(REFERENCE), rate(NOW)];
  return { verdict, cells: [name, commit, ...figures, verdict], sentence: told(name, judged, reference) };
}

/** Resolves with the exit code: 1 when a row is slower or could not be measured, 2 when one is undecided. */
export async function runRatchet(options: Options, say: (line: string) => void): Promise<number> {
  const wanted = options.scenarios;
  const unknown = wanted.find((name) => !RATCHET_ROWS.some((row) => row.name === name));
  if (unknown !== undefined)
    throw new Error(`no row "${unknown}"; there are: ${RATCHET_ROWS.map(({ name }) => name).join(", ")}`);
  const references = readReferences();
  const lines: string[][] = [];
  const sentences: string[] = [];
  const verdicts = new Set<Verdict | "failed">();
  for (const scenario of RATCHET_ROWS.filter(({ name }) => wanted.length === 0 || wanted.includes(name))) {
    const { name } = scenario;
    const reference =
      options.reference === null
        ? references.get(name)
        : { commit: options.reference, reason: "given with --reference" };
    if (reference === undefined) throw new Error(`${name} has no line in bench/reference.json`);
    const { verdict, cells, sentence } = await ratchetRow(scenario, reference, options, say).catch((error: Error) => ({
      verdict: "failed" as const,
      cells: [name, reference.commit, "", "", "", "", "", "", "failed"],
      sentence: `${name}: could not be measured beside ${reference.commit}: ${error.message}`,
    }));
    verdicts.add(verdict);
    lines.push(cells);
    if (verdict !== "passed") sentences.push(sentence);
    say(cells.join("  "));
  }
  const head = ["row", "reference", "CPU us/req", "now", "change", "spread", "req/s", "now", ""];
  console.log(table([head, ...lines]));
  for (const sentence of sentences) console.log(sentence);
  if (verdicts.has("slower") || verdicts.has("failed")) return 1;
  return verdicts.has("undecided") ? 2 : 0;
}
