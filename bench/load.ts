/** One run of load on one server: autocannon in a separate process, or wrk. Both on the core that the server does not use. */
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Reply } from "./capture.ts";
import { fill, ID, KEY, MARKER } from "./numbers.ts";
import { cpuSeconds, hasCommand, LOAD_CORE, spawnOn } from "./process.ts";
import type { HttpScenario } from "./scenarios.ts";
import type { Running } from "./targets.ts";

const HERE = dirname(fileURLToPath(import.meta.url));

export type Tool = "autocannon" | "wrk";

export interface Load {
  seconds: number;
  connections: number;
}

/** The results of a load tool. */
export interface Counts {
  requests: number;
  seconds: number;
  /** In milliseconds. */
  p50: number;
  p99: number;
  /** Connection errors, time-outs, statuses other than 2xx, bodies that fail the check. */
  failures: number;
}

export interface LoadResult extends Counts {
  /** Requests per second. */
  rate: number;
  /** CPU time of the server process per request. */
  cpuMicros: number;
}

export function availableTools(): Tool[] {
  return hasCommand("wrk") ? ["autocannon", "wrk"] : ["autocannon"];
}

const LUA = `
wrk.method = os.getenv("BENCH_METHOD")
local body = os.getenv("BENCH_BODY")
if body ~= "" then
  wrk.body = body
  wrk.headers["content-type"] = "application/json"
end
local below = tonumber(os.getenv("BENCH_BELOW"))
if below then
  local marker = "MARKER"
  local turn = os.getenv("BENCH_PICK") == "turn"
  local last = -1
  local pieces = {}
  local keyed = os.getenv("BENCH_KEYED")
  local run, sent = os.time(), 0
  function init()
    math.randomseed(os.time())
    if keyed then wrk.headers["idempotency-key"] = "KEY_MARKER" end
    local text = wrk.format(wrk.method, os.getenv("BENCH_PATH"))
    local from = 1
    while true do
      local at = text:find(marker, from, true)
      pieces[#pieces + 1] = text:sub(from, (at or 0) - 1)
      if not at then break end
      from = at + #marker
    end
  end
  function request()
    last = turn and (last + 1) % below or math.random(0, below - 1)
    local text = table.concat(pieces, string.format("%0WIDTHd", last))
    if not keyed then return text end
    sent = sent + 1
    return (text:gsub("KEY_MARKER", run .. "-" .. sent, 1))
  end
end
local following = os.getenv("BENCH_NEXT_PATH")
if following then
  local first, before, after
  local ids, count = {}, 0
  local pattern = os.getenv("BENCH_NEXT_ID")
  function init()
    first = wrk.format()
    local text = wrk.format(wrk.method, following, nil, os.getenv("BENCH_NEXT_BODY"))
    local from, to = text:find("ID_MARKER", 1, true)
    before, after = text:sub(1, from - 1), text:sub(to + 1)
  end
  function request()
    if count == 0 then return first end
    count = count - 1
    return before .. ids[count + 1] .. after
  end
  function response(status, headers, body)
    local id = body:match(pattern)
    if id then
      count = count + 1
      ids[count] = id
    end
  end
end
function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format('RESULT {"requests":%d,"micros":%d,"bytes":%d,"p50":%d,"p99":%d,"failures":%d}\\n',
    summary.requests, summary.duration, summary.bytes, latency:percentile(50), latency:percentile(99),
    e.connect + e.read + e.write + e.status + e.timeout))
end
`
  .replaceAll("KEY_MARKER", KEY)
  .replace("ID_MARKER", ID)
  .replace("MARKER", MARKER)
  .replace("WIDTH", String(MARKER.length));

async function outputOf(command: string, args: string[], env: Record<string, string>): Promise<string> {
  const child = spawnOn(LOAD_CORE, command, args, {
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  let errors = "";
  child.stdout?.setEncoding("utf8").on("data", (text: string) => {
    output += text;
  });
  child.stderr?.setEncoding("utf8").on("data", (text: string) => {
    errors += text;
  });
  const [code] = await once(child, "close");
  if (code !== 0) throw new Error(`${command} ended with ${code}: ${errors || output}`);
  return output;
}

/** The minimum number of bytes of a reply with these headers and chunks, or of the one after it. */
function leastBytes({ chunks, status, next }: Reply): number {
  const own = chunks.reduce((sum, chunk) => sum + Buffer.byteLength(chunk), status.length);
  return next === undefined ? own : Math.min(own, leastBytes(next));
}

/** wrk checks only statuses; the total length of replies is checked after the run, so that cut or empty ones are noticed. */
async function wrk(port: number, scenario: HttpScenario, load: Load, sample: Reply): Promise<Counts> {
  const folder = mkdtempSync(join(tmpdir(), "penstock-bench-"));
  const script = join(folder, "run.lua");
  writeFileSync(script, LUA);
  try {
    const args = [
      "-t1",
      `-c${load.connections}`,
      `-d${load.seconds}s`,
      "-s",
      script,
      ...Object.entries(scenario.headers?.() ?? {}).flatMap(([name, value]) => ["-H", `${name}: ${value}`]),
      `http://127.0.0.1:${port}${fill(scenario.path, 0)}`,
    ];
    const { numbers, keyed, next } = scenario;
    const output = await outputOf("wrk", args, {
      BENCH_METHOD: scenario.method,
      BENCH_BODY: scenario.body ?? "",
      BENCH_PATH: scenario.path,
      ...(numbers && { BENCH_BELOW: String(numbers.below), BENCH_PICK: numbers.pick }),
      ...(keyed && { BENCH_KEYED: "1" }),
      ...(next && { BENCH_NEXT_ID: next.id, BENCH_NEXT_PATH: next.path, BENCH_NEXT_BODY: next.body }),
    });
    const line = output.split("\n").find((text) => text.startsWith("RESULT "));
    if (line === undefined) throw new Error(`wrk printed no result: ${output}`);
    const { requests, micros, bytes, p50, p99, failures } = JSON.parse(line.slice(7)) as Record<string, number> &
      Counts;
    const short = bytes! / requests < leastBytes(sample) * 0.98 ? requests : 0;
    return { requests, seconds: micros! / 1e6, p50: p50 / 1e3, p99: p99 / 1e3, failures: failures + short };
  } finally {
    rmSync(folder, { recursive: true });
  }
}

async function autocannon(port: number, scenario: HttpScenario, load: Load, sample: Reply): Promise<Counts> {
  const lengths = [sample, ...(sample.next ? [sample.next] : [])].map(({ chunks }) => chunks.join("").length);
  const job = JSON.stringify({ port, name: scenario.name, lengths, ...load });
  const worker = join(HERE, "autocannon-worker.ts");
  return JSON.parse(await outputOf(process.execPath, ["--import", "tsx", worker, job], {})) as Counts;
}

const TOOLS = { autocannon, wrk } as const;

/** Loads a server and adds the CPU time that the run cost it. */
export async function runLoad(
  tool: Tool,
  server: Running,
  scenario: HttpScenario,
  load: Load,
  sample: Reply,
): Promise<LoadResult> {
  const before = cpuSeconds(server.pid);
  const counts = await TOOLS[tool](server.port, scenario, load, sample);
  const spent = cpuSeconds(server.pid) - before;
  return { ...counts, rate: counts.requests / counts.seconds, cpuMicros: (spent * 1e6) / counts.requests };
}
