import { startPenstock } from "/work/main/bench/targets.ts";
import { capture } from "/work/main/bench/capture.ts";
import { runLoad } from "/work/main/bench/load.ts";
import { SCENARIOS, httpScenarios } from "/work/main/bench/scenarios.ts";
// exp.ts scenario,scenario variant... ; variant = root|entry|flags
const [names, rounds, ...variants] = process.argv.slice(2) as [string, string, ...string[]];
for (const n of names.split(",")) {
  const sc = httpScenarios(SCENARIOS).find((s) => s.name === n)!;
  const servers = [];
  for (const v of variants) {
    const [root, entry, flags] = v.split("|") as [string, string, string?];
    servers.push({ v, s: await startPenstock({ root: root || "/work/main", entry, nodeOptions: flags ? flags.split(" ") : [] }), cpu: [] as number[], rate: [] as number[] });
  }
  for (let r = 0; r < +rounds + 1; r++)
    for (const x of r % 2 ? servers : [...servers].reverse()) {
      const sample = await capture(x.s.port, sc);
      const res = await runLoad("wrk", x.s, sc, { seconds: 2, connections: 64 }, sample);
      if (r) { x.cpu.push(res.cpuMicros); x.rate.push(res.rate); }
    }
  for (const x of servers) { console.log(n.padEnd(10), x.v.padEnd(60), "cpu", x.cpu.map((c) => c.toFixed(1)).join(" "), " rate", x.rate.map((c) => c.toFixed(0)).join(" ")); await x.s.stop(); }
}
