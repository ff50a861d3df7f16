/** `npm run bench`: see README.md beside this file. */
import { loadavg } from "node:os";
import { capture } from "./capture.ts";
import { type Contender, measure } from "./measure.ts";
import { type Options, readOptions, USAGE } from "./options.ts";
import { exitOnSignals, pins } from "./process.ts";
import { profileScenario } from "./profile.ts";
import { runRatchet } from "./ratchet.ts";
import { failuresOf, type HttpResult, httpLine, httpTable, specialLine, specialTable, twinTable } from "./report.ts";
import { chosen, type HttpScenario, httpScenarios, type Service, type SpecialScenario } from "./scenarios.ts";
import { soak } from "./soak.ts";
import { type Figure, runSpecial } from "./special.ts";
import { startCeiling, startPenstock } from "./targets.ts";
import { measureUpstream } from "./upstream/run.ts";
import { type Cell, upstreamLines, upstreamTable } from "./upstream/table.ts";

/** Load average above which something else uses the two cores. */
const BUSY = 0.7;

const say = (line: string) => process.stderr.write(`${line}\n`);

function startServer(options: Options, service: Service = "plain", nodeOptions: readonly string[] = []) {
  return startPenstock({ entry: options.entry, transport: options.transport, service, nodeOptions });
}

/**
 * Runs one scenario on a fresh server, a fresh bare one and, if there is a twin, a fresh one for that, so that no row inherits the
 * heap of the previous row.
 */
async function runHttp(scenario: HttpScenario, options: Options): Promise<HttpResult[]> {
  const { twin } = scenario;
  const contenders: Contender[] = [];
  try {
    const server = await startServer(options, scenario.service);
    contenders.push({ name: "server", server });
    await scenario.prepare?.(server.port);
    const sample = await capture(server.port, scenario);
    contenders.push({ name: "bare", server: await startCeiling([sample]) });
    if (twin) contenders.push({ name: "twin", server: await startServer(options, twin.service), scenario: twin });
    const measured = await measure(scenario, contenders, { ...options, onRun: say });
    return options.tools.map((tool) => {
      const row = (contender: string) =>
        measured.find((result) => result.tool === tool && result.contender === contender)!;
      return { scenario, server: row("server"), bare: row("bare"), ...(twin && { twin: row("twin") }) };
    });
  } finally {
    for (const { server } of contenders) await server.stop();
  }
}

/** Runs the chosen scenarios; resolves with the number of failed requests. */
async function bench(options: Options): Promise<number> {
  const [others = 0] = loadavg();
  const upstream: Cell[] = [];
  const http: HttpResult[] = [];
  const special: { scenario: SpecialScenario; figure: Figure }[] = [];
  for (const scenario of chosen(options.scenarios)) {
    if (scenario.kind === "upstream") {
      upstream.push(...(await measureUpstream(options, say)));
      if (options.json) for (const line of upstreamLines(upstream)) console.log(line);
      continue;
    }
    if (scenario.kind === "http") {
      const results = await runHttp(scenario, options);
      http.push(...results);
      if (options.json) for (const result of results) console.log(httpLine(result));
      continue;
    }
    say(scenario.title);
    const figures = await runSpecial(scenario, { ...options, start: (service) => startServer(options, service) });
    special.push(...figures.map((figure) => ({ scenario, figure })));
    if (options.json) for (const figure of figures) console.log(specialLine(scenario, figure));
  }
  const print = options.json ? say : console.log;
  print(
    `\nnode ${process.version}, transport ${options.transport}, ${options.entry}, ${options.connections} connections`,
  );
  print(
    `median of ${options.rounds} rounds of ${options.seconds} s${pins() ? "" : "; NOT PINNED: server and load share cores"}\n`,
  );
  if (others > BUSY)
    print(`OTHERS WERE BUSY: load average ${others.toFixed(1)} at the start; rates mean little, CPU shares more\n`);
  if (upstream.length > 0) print(`${upstreamTable(upstream)}\n`);
  if (http.length > 0)
    print(`Penstock without a model: replies of \`scripted\`, or of no model at all\n\n${httpTable(http)}\n`);
  if (http.some(({ twin }) => twin)) print(`${twinTable(http)}\n`);
  if (special.length > 0) print(`${specialTable(special)}\n`);
  const failures = upstream.reduce((sum, { counts }) => sum + counts.failures, 0);
  return failures + http.reduce((sum, result) => sum + failuresOf(result), 0);
}

async function runSoak(options: Options, minutes: number): Promise<number> {
  const server = await startServer(options);
  try {
    const { connections, tools } = options;
    return await soak(server, { minutes, connections, tool: tools.at(-1)!, print: (line) => console.log(line) });
  } finally {
    await server.stop();
  }
}

async function runProfiles(options: Options, folder: string): Promise<number> {
  for (const scenario of httpScenarios(chosen(options.scenarios))) {
    const start = (nodeOptions: readonly string[]) => startServer(options, scenario.service, nodeOptions);
    console.log(await profileScenario(scenario, { ...options, folder, start }));
  }
  return 0;
}

async function main(args: readonly string[]): Promise<number> {
  const options = readOptions(args);
  exitOnSignals();
  if (options.help) {
    console.log(USAGE);
    return 0;
  }
  const [command, ...scenarios] = options.scenarios;
  if (command === "ratchet") return runRatchet({ ...options, scenarios }, say);
  const failures = await (options.soak !== null
    ? runSoak(options, options.soak)
    : options.profile !== null
      ? runProfiles(options, options.profile)
      : bench(options));
  if (failures > 0) say(`${failures} requests failed: the figures above do not count`);
  return failures > 0 ? 1 : 0;
}

process.exitCode = await main(process.argv.slice(2)).catch((error: unknown) => {
  say(error instanceof Error ? error.message : String(error));
  return 1;
});
