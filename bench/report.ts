/** Results as a table for people and as lines of JSON for machines. */
import type { Measured } from "./measure.ts";
import { aimText, type HttpScenario, reaches, type SpecialScenario } from "./scenarios.ts";
import type { Figure } from "./special.ts";

/** Columns padded to their widest cell; all but the first are aligned to the right. */
export function table(rows: readonly (readonly string[])[]): string {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]!.length)));
  const line = (row: readonly string[]) =>
    row
      .map((cell, column) => (column === 0 ? cell.padEnd(widths[column]!) : cell.padStart(widths[column]!)))
      .join("  ");
  return [line(rows[0]!), widths.map((width) => "-".repeat(width)).join("  "), ...rows.slice(1).map(line)].join("\n");
}

const whole = (value: number) => (Number.isFinite(value) ? Math.round(value).toLocaleString("en-US") : "?");
const decimal = (value: number, digits: number) => (Number.isFinite(value) ? value.toFixed(digits) : "?");
const percent = (value: number) => (Number.isFinite(value) ? `${(value * 100).toFixed(0)} %` : "?");
const verdict = (reached: boolean) => (reached ? "reached" : "missed");

/** One line of the HTTP table: a scenario with one load tool, beside the bare server with the same tool. */
export interface HttpResult {
  scenario: HttpScenario;
  server: Measured;
  bare: Measured;
  /** The result of the scenario's twin with the same tool. */
  twin?: Measured;
}

export function failuresOf({ server, bare, twin }: HttpResult): number {
  return server.median.failures + bare.median.failures + (twin?.median.failures ?? 0);
}

/** The fraction by which a row is slower than its twin. */
function slower({ server, twin }: HttpResult): { cpu: number; rate: number } {
  const beside = twin?.median;
  return beside
    ? { cpu: server.median.cpuMicros / beside.cpuMicros - 1, rate: 1 - server.median.rate / beside.rate }
    : { cpu: Number.NaN, rate: Number.NaN };
}

/** The figure to which the scenario's aim refers. */
function aimedFigure(result: HttpResult): number {
  const { scenario, server, bare } = result;
  const { measure } = scenario.aim;
  if (measure === "% CPU above twin") return slower(result).cpu * 100;
  return measure === "CPU share of bare" ? bare.median.cpuMicros / server.median.cpuMicros : server.median.rate;
}

export function httpTable(results: readonly HttpResult[]): string {
  const head = [
    "scenario",
    "load",
    "req/s",
    "CPU us/req",
    "p50 ms",
    "p99 ms",
    "bare req/s",
    "bare CPU us/req",
    "rate share",
  ];
  const rows = results.map((result) => {
    const { server, bare, scenario } = result;
    return [
      scenario.title,
      server.tool,
      whole(server.median.rate),
      decimal(server.median.cpuMicros, 1),
      decimal(server.median.p50, 2),
      decimal(server.median.p99, 2),
      whole(bare.median.rate),
      decimal(bare.median.cpuMicros, 1),
      percent(server.median.rate / bare.median.rate),
      percent(bare.median.cpuMicros / server.median.cpuMicros),
      aimText(scenario.aim),
      verdict(reaches(scenario.aim, aimedFigure(result))),
      String(failuresOf(result)),
    ];
  });
  return table([[...head, "CPU share", "aim", "", "failures"], ...rows]);
}

/** The rows that have a twin, beside that twin. */
export function twinTable(results: readonly HttpResult[]): string {
  const rows = results.flatMap((result) => {
    const { scenario, server, twin } = result;
    if (!twin) return [];
    const { cpu, rate } = slower(result);
    return [
      [
        scenario.title,
        server.tool,
        decimal(server.median.cpuMicros, 1),
        decimal(twin.median.cpuMicros, 1),
        percent(cpu),
        whole(server.median.rate),
        whole(twin.median.rate),
        percent(rate),
        aimText(scenario.aim),
        verdict(reaches(scenario.aim, aimedFigure(result))),
      ],
    ];
  });
  const head = ["beside its twin", "load", "CPU us/req", "twin's", "more", "req/s", "twin's", "fewer", "aim", ""];
  return table([head, ...rows]);
}

export function specialTable(rows: readonly { scenario: SpecialScenario; figure: Figure }[]): string {
  const cells = rows.map(({ scenario, figure }) => {
    const aim = figure.aim === null ? undefined : scenario.aims[figure.aim];
    return [
      `${scenario.title}: ${figure.label}`,
      decimal(figure.value, figure.value < 10 ? 3 : 1),
      aim ? aimText(aim) : "",
      aim ? verdict(reaches(aim, figure.value)) : "",
      figure.note ?? "",
    ];
  });
  return table([["measure", "value", "aim", "", "note"], ...cells]);
}

export function httpLine(result: HttpResult): string {
  const { scenario, server, bare } = result;
  const value = aimedFigure(result);
  return JSON.stringify({
    scenario: scenario.name,
    tool: server.tool,
    server: server.median,
    bare: bare.median,
    ...(result.twin && { twin: result.twin.median }),
    aim: scenario.aim,
    value,
    reached: reaches(scenario.aim, value),
  });
}

export function specialLine(scenario: SpecialScenario, figure: Figure): string {
  const aim = figure.aim === null ? undefined : scenario.aims[figure.aim];
  return JSON.stringify({ ...figure, aim, ...(aim ? { reached: reaches(aim, figure.value) } : {}) });
}
