/** `npm run bench -- upstream`: the provider, the floor and Penstock over a provider, in alternating rounds of one run. */
import { once } from "node:events";
import { median } from "../measure.ts";
import type { Options } from "../options.ts";
import { cpuSeconds, LOAD_CORE, SERVER_CORE, spawnOn } from "../process.ts";
import { originOf, ROOT, type Running, startHelper, startPenstock, startProvider } from "../targets.ts";
import type { LoadCounts, LoadJob } from "./load.ts";
import { ROWS, type Row, type Server } from "./rows.ts";
import { type Cell, type Counts, type Manner, mannerText } from "./table.ts";

/** Seconds of load before the first round: the JIT needs some tens of thousands of calls. */
const WARM_UP = 2;
const CONNECTIONS = [1, 16, 64];
/** In an open loop a request never waits for a connection, unless the server is this far behind. */
const OPEN_CONNECTIONS = 512;

export type UpstreamOptions = Pick<Options, "seconds" | "rounds" | "rate" | "only" | "entry" | "transport">;

export const startFloor = (provider: Running): Promise<Running> =>
  startHelper(SERVER_CORE, "upstream/floor.ts", { args: [originOf(provider)] });

export function startOver(
  provider: Running,
  options: Pick<Options, "entry" | "transport">,
  service: "upstream" | "everything",
  env: Readonly<Record<string, string>> = {},
): Promise<Running> {
  const { entry, transport } = options;
  return startPenstock({ entry, transport, service, env: { BENCH_PROVIDER: originOf(provider), ...env } });
}

/** Runs the load once, and measures the CPU time that it cost the server. */
async function load(server: Running, row: Row, manner: Manner, seconds: number): Promise<Counts> {
  const before = cpuSeconds(server.pid);
  const { asked } = row;
  const job: LoadJob = { port: server.port, asked, headers: row.headers?.() ?? {}, seconds, ...manner };
  const child = spawnOn(
    LOAD_CORE,
    process.execPath,
    ["--import", "tsx", "bench/upstream/load.ts", JSON.stringify(job)],
    {
      cwd: ROOT,
      stdio: ["ignore", "pipe", "inherit"],
    },
  );
  let output = "";
  child.stdout!.setEncoding("utf8").on("data", (text: string) => {
    output += text;
  });
  const [code] = await once(child, "close");
  if (code !== 0) throw new Error(`the load of ${row.name} ended with ${code}`);
  const counts = JSON.parse(output) as LoadCounts;
  if (counts.failures > 0) process.stderr.write(`${row.name}: ${counts.failures} failures: ${counts.problem}\n`);
  return { ...counts, cpuMicros: ((cpuSeconds(server.pid) - before) * 1e6) / counts.replies };
}

/** Rows whose name contains one of the words, and those with which they are compared; all rows without words. */
function rowsOf(only: readonly string[]): Row[] {
  const wanted = ROWS.filter(({ name }) => only.length === 0 || only.some((word) => name.includes(word)));
  if (wanted.length === 0) throw new Error(`--only: the rows are ${ROWS.map(({ name }) => name).join(", ")}`);
  const beside = new Set([ROWS[0]!.name, ...wanted.map(({ floor }) => floor)]);
  return ROWS.filter((row) => wanted.includes(row) || beside.has(row.name));
}

function medianOf(rounds: readonly Counts[]): Counts {
  const of = (key: "rate" | "p50" | "p99" | "cpuMicros") => median(rounds.map((round) => round[key]));
  const sum = (key: "replies" | "failures") => rounds.reduce((total, round) => total + round[key], 0);
  return {
    replies: sum("replies"),
    rate: of("rate"),
    p50: of("p50"),
    p99: of("p99"),
    cpuMicros: of("cpuMicros"),
    failures: sum("failures"),
  };
}

export async function measureUpstream(options: UpstreamOptions, tell: (line: string) => void): Promise<Cell[]> {
  const rows = rowsOf(options.only);
  const servers = new Map<Server, Running>();
  const provider = await startProvider();
  servers.set("provider", provider);
  try {
    for (const { server } of rows) {
      if (servers.has(server)) continue;
      if (server === "floor") servers.set(server, await startFloor(provider));
      else servers.set(server, await startOver(provider, options, server === "everything" ? server : "upstream"));
    }
    const serverOf = (row: Row) => servers.get(row.server)!;
    for (const row of rows) {
      tell(`upstream: warming ${row.name}`);
      await load(serverOf(row), row, { connections: 16, rate: null }, WARM_UP);
    }
    const manners: Manner[] = CONNECTIONS.map((connections) => ({ connections, rate: null }));
    manners.push({ connections: OPEN_CONNECTIONS, rate: options.rate });
    const cells: Cell[] = [];
    for (const manner of manners) cells.push(...(await measureManner(rows, serverOf, manner, options, tell)));
    return cells;
  } finally {
    for (const server of [...servers.values()].reverse()) await server.stop();
  }
}

/** Each round goes through the rows in the reverse order of the previous one: a machine that slows down favours none. */
async function measureManner(
  rows: readonly Row[],
  serverOf: (row: Row) => Running,
  manner: Manner,
  { rounds, seconds }: UpstreamOptions,
  tell: (line: string) => void,
): Promise<Cell[]> {
  const results = new Map<Row, Counts[]>(rows.map((row) => [row, []]));
  for (let round = 0; round < rounds; round += 1) {
    tell(`upstream: ${mannerText(manner)}, round ${round + 1} of ${rounds}`);
    const order = round % 2 === 0 ? rows : [...rows].reverse();
    for (const row of order) results.get(row)!.push(await load(serverOf(row), row, manner, seconds));
  }
  return rows.map((row) => ({ row, manner, counts: medianOf(results.get(row)!) }));
}
