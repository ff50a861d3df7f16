/** Alternating rounds over several servers, and the medians. */
import { capture } from "./capture.ts";
import { type Load, type LoadResult, runLoad, type Tool } from "./load.ts";
import type { HttpScenario } from "./scenarios.ts";
import type { Running } from "./targets.ts";

/** A running server with its name in the report. */
export interface Contender {
  name: string;
  server: Running;
  /** Its scenario, if it differs from that of the others. */
  scenario?: HttpScenario;
}

interface Plan extends Load {
  rounds: number;
  tools: readonly Tool[];
  /** Called before each run, for a progress line. */
  onRun?(text: string): void;
}

export interface Measured {
  scenario: string;
  tool: Tool;
  contender: string;
  rounds: LoadResult[];
  median: LoadResult;
}

/** Seconds of load before the first round: the JIT needs some tens of thousands of calls. */
const WARM_UP = 2;

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((left, right) => left - right);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

function medianOf(rounds: readonly LoadResult[]): LoadResult {
  const of = (key: keyof LoadResult) => median(rounds.map((round) => round[key]));
  return {
    requests: of("requests"),
    seconds: of("seconds"),
    rate: of("rate"),
    cpuMicros: of("cpuMicros"),
    p50: of("p50"),
    p99: of("p99"),
    // Failures of all rounds are added up.
    failures: rounds.reduce((sum, round) => sum + round.failures, 0),
  };
}

/**
 * Runs a scenario on all contenders, each round in the reverse order of the previous one, so that a machine that speeds up
 * or slows down favours none.
 */
export async function measure(
  scenario: HttpScenario,
  contenders: readonly Contender[],
  plan: Plan,
): Promise<Measured[]> {
  for (const { name, server, scenario: asked = scenario } of contenders) {
    plan.onRun?.(`${scenario.name}: warming ${name}`);
    const sample = await capture(server.port, asked);
    await runLoad(plan.tools[0]!, server, asked, { ...plan, seconds: WARM_UP }, sample);
  }
  const results = new Map<string, Measured>();
  for (let round = 0; round < plan.rounds; round += 1) {
    const order = round % 2 === 0 ? contenders : [...contenders].reverse();
    for (const { name, server, scenario: asked = scenario } of order) {
      // A server that broke during the last run must not be measured as a fast one. Replies of another tree may have another length.
      const sample = await capture(server.port, asked);
      for (const tool of plan.tools) {
        plan.onRun?.(`${scenario.name}: round ${round + 1} of ${plan.rounds}, ${name}, ${tool}`);
        const result = await runLoad(tool, server, asked, plan, sample);
        const key = `${tool} ${name}`;
        const row = results.get(key) ?? { scenario: scenario.name, tool, contender: name, rounds: [], median: result };
        row.rounds.push(result);
        row.median = medianOf(row.rounds);
        results.set(key, row);
      }
    }
  }
  return [...results.values()];
}
