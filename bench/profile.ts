/** A CPU profile of the server under one scenario, summed by function: microseconds of self time per request. */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync } from "node:fs";
import { join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { capture } from "./capture.ts";
import { type Load, runLoad, type Tool } from "./load.ts";
import { table } from "./report.ts";
import type { HttpScenario } from "./scenarios.ts";
import { ROOT, type Running } from "./targets.ts";

interface ProfilePlan extends Load {
  folder: string;
  tools: readonly Tool[];
  start(nodeOptions: readonly string[]): Promise<Running>;
}

interface CpuProfile {
  nodes: {
    id: number;
    callFrame: { functionName: string; url: string; lineNumber: number };
  }[];
  /** In microseconds, on the clock of `process.hrtime`. */
  startTime: number;
  samples: number[];
  timeDeltas: number[];
}

const SHOWN = 30;
const INTERVAL_MICROS = 200;
/** Seconds of load before the measured window, which excludes boot and compilation. */
const WARM_UP = 2;

/** `core/http/encode.ts`; Node's own modules keep their names. TypeScript is loaded without line breaks, so lines mean nothing. */
function place(url: string, line: number): string {
  if (url === "") return "";
  const path = url.startsWith("file:") ? relative(ROOT, fileURLToPath(url)) : url;
  return path.endsWith(".ts") ? path : `${path}:${line + 1}`;
}

interface Window {
  /** In microseconds, like `startTime`. */
  from: number;
  to: number;
}

const now = () => Number(process.hrtime.bigint() / 1_000n);

/** Self time in microseconds by function and place within a window, largest first, including `(idle)` and `(program)`. */
function selfTimes(profile: CpuProfile, window: Window): { name: string; place: string; micros: number }[] {
  const nodes = new Map(profile.nodes.map((node) => [node.id, node]));
  const sums = new Map<string, { name: string; place: string; micros: number }>();
  let time = profile.startTime;
  for (const [index, id] of profile.samples.entries()) {
    const spent = profile.timeDeltas[index] ?? 0;
    time += spent;
    if (time < window.from || time > window.to) continue;
    const frame = nodes.get(id)!.callFrame;
    const name = frame.functionName || "(anonymous)";
    const where = place(frame.url, frame.lineNumber);
    const key = `${name} ${where}`;
    const entry = sums.get(key) ?? { name, place: where, micros: 0 };
    entry.micros += spent;
    sums.set(key, entry);
  }
  return [...sums.values()].sort((left, right) => right.micros - left.micros);
}

/** Loads a profiled server and returns a table of its self time. */
export async function profileScenario(scenario: HttpScenario, plan: ProfilePlan): Promise<string> {
  const folder = resolve(plan.folder);
  mkdirSync(folder, { recursive: true });
  const fresh = mkdtempSync(join(folder, "run-"));
  const options = ["--cpu-prof", `--cpu-prof-interval=${INTERVAL_MICROS}`, `--cpu-prof-dir=${fresh}`];
  const server = await plan.start(options);
  await scenario.prepare?.(server.port);
  const sample = await capture(server.port, scenario);
  const load = (seconds: number) => runLoad(plan.tools.at(-1)!, server, scenario, { ...plan, seconds }, sample);
  await load(WARM_UP);
  const from = now();
  const result = await load(plan.seconds);
  const to = now();
  await server.stop();
  const file = join(folder, `${scenario.name}.cpuprofile`);
  const written = readdirSync(fresh).map((name) => ({ name, size: readFileSync(join(fresh, name)).length }));
  // A loader thread writes a profile too; the server's is the larger one.
  const largest = written.sort((left, right) => right.size - left.size)[0];
  if (largest === undefined) throw new Error("the server wrote no profile: it must end by itself on SIGTERM");
  renameSync(join(fresh, largest.name), file);
  rmSync(fresh, { recursive: true });
  const times = selfTimes(JSON.parse(readFileSync(file, "utf8")) as CpuProfile, { from, to });
  const rows = times
    .filter(({ name }) => name !== "(idle)")
    .slice(0, SHOWN)
    .map(({ name, place: where, micros }) => [name, (micros / result.requests).toFixed(2), where]);
  const head = `${scenario.title}: ${Math.round(result.rate)} req/s, ${result.cpuMicros.toFixed(1)} us CPU per request (profiled)`;
  return `${head}\n${table([["function", "us/req", "where"], ...rows])}\n${file}\n`;
}
