/** Runs all scenarios mixed for some minutes, and watches the resident memory, which must level off. */
import { capture, type Reply } from "./capture.ts";
import { runLoad, type Tool } from "./load.ts";
import { childrenOf, cpuSeconds, residentMiB } from "./process.ts";
import { type HttpScenario, plainScenarios } from "./scenarios.ts";
import type { Running } from "./targets.ts";

interface SoakPlan {
  minutes: number;
  connections: number;
  tool: Tool;
  print(line: string): void;
}

/** Seconds of one slice, in which all scenarios run in parallel, each with its share of the connections. */
const SLICE = 10;

/** Runs the mix; resolves with the number of failed requests. */
export async function soak(server: Running, plan: SoakPlan): Promise<number> {
  const scenarios = plainScenarios();
  const samples = new Map<HttpScenario, Reply>();
  for (const scenario of scenarios) samples.set(scenario, await capture(server.port, scenario));
  const connections = Math.max(1, Math.floor(plan.connections / scenarios.length));
  const began = performance.now();
  let requests = 0;
  let failures = 0;
  plan.print(`idle: ${residentMiB(server.pid).toFixed(1)} MiB`);
  while (performance.now() - began < plan.minutes * 60_000) {
    const slice = scenarios.map((scenario) =>
      runLoad(plan.tool, server, scenario, { seconds: SLICE, connections }, samples.get(scenario)!),
    );
    for (const result of await Promise.all(slice)) {
      requests += result.requests;
      failures += result.failures;
    }
    const minutes = ((performance.now() - began) / 60_000).toFixed(1);
    const resident = residentMiB(server.pid).toFixed(1);
    const cpu = cpuSeconds(server.pid).toFixed(0);
    const children = childrenOf(server.pid).length;
    plan.print(
      `${minutes} min: ${resident} MiB, ${requests.toLocaleString("en-US")} requests, ${failures} failures, ${cpu} s CPU, ${children} children`,
    );
  }
  return failures;
}
