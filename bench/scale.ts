/**
 * `node --import tsx bench/scale.ts`: what a request costs with 1,000,000 conversations and 5,000,000 messages in the file,
 * or with 1,000,000 executions of workflows, compared with 1,000. The large file is built once and kept in `--folder`.
 */
import { copyFileSync, existsSync, mkdtempSync, rmSync, statSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { capture, type Reply } from "./capture.ts";
import { runLoad } from "./load.ts";
import { median } from "./measure.ts";
import { exitOnSignals, hasCommand, pins, residentMiB } from "./process.ts";
import { table } from "./report.ts";
import { build } from "./scale-build.ts";
import { conversationScenarios } from "./scale-conversations.ts";
import { buildExecutions, executionScenarios } from "./scale-executions.ts";
import type { HttpScenario, Service } from "./scenarios.ts";
import { type Running, startPenstock } from "./targets.ts";

const AIM_RATIO = 1.5;
const AIM_BOOT = 1_000;
const AIM_RESIDENT = 300;
const SETTLE = 2_000;
const SAMPLES = 10;

const say = (line: string) => process.stderr.write(`${line}\n`);

const USAGE = `node --import tsx bench/scale.ts [options]

  --of KIND           conversations or executions (conversations)
  --count N           in the large file (1000000)
  --beside N          in the small one (1000)
  --folder DIR        where the large file is built and kept (${join(tmpdir(), "penstock-scale")})
  --seconds N         length of one run of load (5)
  --rounds N          runs per file and request; the median is printed (3)
  --connections N     requests at once (8)
  --build             only build`;

/** What a file contains. */
interface Kind {
  /** Name of the objects, for messages. */
  readonly things: string;
  readonly service: Service;
  /** The requests for a file with that many objects. */
  scenarios(count: number): HttpScenario[];
  /** Fills the file until it has that many objects. Resolves when it is closed. */
  build(file: string, count: number, say: (line: string) => void): Promise<void>;
}

const KINDS: Readonly<Record<string, Kind>> = {
  conversations: { things: "conversations", service: "memory", scenarios: conversationScenarios, build },
  executions: {
    things: "executions",
    service: "workflow",
    scenarios: executionScenarios,
    build: buildExecutions,
  },
};

interface Sample {
  p50: number;
  p99: number;
  rate: number;
  /** CPU time of the server process per request, on which other load of the machine has little effect. */
  cpuMicros: number;
}

/** Figures by row: the name of a request, `boot`, `idle`, `loaded`. */
type Figures = Map<string, Sample[]>;

interface Plan {
  kind: Kind;
  seconds: number;
  connections: number;
}

/** The shortest of some replies: earlier measurements have lengthened some conversations. */
async function shortest(server: Running, scenario: HttpScenario): Promise<Reply> {
  const samples: Reply[] = [];
  while (samples.length < SAMPLES) samples.push(await capture(server.port, scenario));
  const length = ({ chunks }: Reply) => chunks.join("").length;
  return samples.reduce((least, sample) => (length(sample) < length(least) ? sample : least));
}

async function loadAll(server: Running, count: number, plan: Plan, figures: Figures): Promise<number> {
  let failures = 0;
  for (const scenario of plan.kind.scenarios(count)) {
    const sample = await shortest(server, scenario);
    await runLoad("wrk", server, scenario, { ...plan, seconds: 1 }, sample);
    const result = await runLoad("wrk", server, scenario, plan, sample);
    failures += result.failures;
    figures.set(scenario.name, [...(figures.get(scenario.name) ?? []), result]);
  }
  return failures;
}

/** Starts a server on a file, and sends all requests. */
async function round(file: string, count: number, plan: Plan, figures: Figures): Promise<number> {
  const push = (name: string, value: number) => {
    figures.set(name, [
      ...(figures.get(name) ?? []),
      { p50: value, p99: value, rate: Number.NaN, cpuMicros: Number.NaN },
    ]);
  };
  const server = await startPenstock({ service: plan.kind.service, file });
  try {
    push("boot", server.bootMillis);
    await new Promise((resolve) => setTimeout(resolve, SETTLE));
    push("idle", residentMiB(server.pid));
    const failures = await loadAll(server, count, plan, figures);
    push("loaded", residentMiB(server.pid));
    return failures;
  } finally {
    await server.stop();
  }
}

function report({ scenarios }: Kind, large: Figures, small: Figures, names: readonly [string, string]): void {
  const of = (figures: Figures, name: string, key: keyof Sample) => median(figures.get(name)!.map((item) => item[key]));
  const fixed = (value: number, digits: number) => value.toFixed(digits);
  const rows = scenarios(1_000).flatMap(({ name, title }) =>
    (["p50", "p99", "cpuMicros"] as const).map((key) => {
      const [many, few] = [of(large, name, key), of(small, name, key)];
      const rate = (figures: Figures) => Math.round(of(figures, name, "rate")).toLocaleString("en-US");
      const reached = many / few < AIM_RATIO ? "reached" : "missed";
      return [
        `${title}, ${key === "cpuMicros" ? "CPU us" : `${key} ms`}`,
        fixed(few, 2),
        fixed(many, 2),
        fixed(many / few, 2),
        `< ${AIM_RATIO}`,
        reached,
        rate(small),
        rate(large),
      ];
    }),
  );
  const single = (name: string, title: string, aim: number) => {
    const [many, few] = [of(large, name, "p50"), of(small, name, "p50")];
    return [
      title,
      fixed(few, 0),
      fixed(many, 0),
      fixed(many / few, 2),
      `< ${aim}`,
      many < aim ? "reached" : "missed",
      "",
      "",
    ];
  };
  rows.push(single("boot", "start to start line, ms", AIM_BOOT));
  rows.push(single("idle", "resident when idle, MiB", AIM_RESIDENT));
  rows.push(single("loaded", "resident after load, MiB", AIM_RESIDENT));
  const head = ["measure", ...names, "ratio", "aim", "", `req/s, ${names[0]}`, `req/s, ${names[1]}`];
  console.log(`${table([head, ...rows])}\n`);
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      of: { type: "string", default: "conversations" },
      count: { type: "string", default: "1000000" },
      beside: { type: "string", default: "1000" },
      folder: { type: "string", default: join(tmpdir(), "penstock-scale") },
      seconds: { type: "string", default: "5" },
      rounds: { type: "string", default: "3" },
      connections: { type: "string", default: "8" },
      build: { type: "boolean", default: false },
      help: { type: "boolean", default: false },
    },
  });
  exitOnSignals();
  if (values.help) {
    console.log(USAGE);
    return 0;
  }
  if (!hasCommand("wrk")) throw new Error("this needs wrk");
  const kind = KINDS[values.of];
  if (kind === undefined) throw new Error(`--of must be one of ${Object.keys(KINDS).join(", ")}`);
  const [many, few] = [Number(values.count), Number(values.beside)];
  const file = join(values.folder, `${kind.things}-${many}.db`);
  await kind.build(file, many, say);
  const size = Math.round(statSync(file).size / 1024 / 1024).toLocaleString("en-US");
  say(`${file}: ${many.toLocaleString("en-US")} ${kind.things}, ${size} MiB`);
  if (values.build) return 0;
  const folder = mkdtempSync(join(tmpdir(), "penstock-scale-"));
  const template = join(folder, "template.db");
  await kind.build(template, few, say);
  const plan = { kind, seconds: Math.ceil(Number(values.seconds)), connections: Number(values.connections) };
  const [large, small]: [Figures, Figures] = [new Map(), new Map()];
  let failures = 0;
  try {
    for (let turn = 0; turn < Number(values.rounds); turn += 1) {
      // A copy, so that a round does not read what the previous one has written, which would matter only in the small file.
      const copy = join(folder, `${turn}.db`);
      copyFileSync(template, copy);
      for (const suffix of ["-wal", "-shm"])
        if (existsSync(template + suffix)) copyFileSync(template + suffix, copy + suffix);
      const both = [() => round(copy, few, plan, small), () => round(file, many, plan, large)];
      for (const run of turn % 2 === 0 ? both : both.reverse()) {
        say(`round ${turn + 1} of ${values.rounds}, load average ${loadavg()[0]!.toFixed(1)}`);
        failures += await run();
      }
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
  console.log(
    `\nnode ${process.version}, ${plan.connections} connections, median of ${values.rounds} rounds of ${plan.seconds} s, file of ${size} MiB${pins() ? "" : "; NOT PINNED"}\n`,
  );
  report(kind, large, small, [few.toLocaleString("en-US"), many.toLocaleString("en-US")]);
  if (failures > 0) say(`${failures} requests failed: the figures above do not count`);
  return failures > 0 ? 1 : 0;
}

process.exitCode = await main().catch((error: unknown) => {
  say(error instanceof Error ? error.message : String(error));
  return 1;
});
