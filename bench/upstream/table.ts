/** The table of the real path: the provider, the floor and Penstock side by side. */
import { table } from "../report.ts";
import type { LoadCounts } from "./load.ts";
import { ROWS, type Row } from "./rows.ts";

/** How a row was loaded: connections of a closed loop, or requests per second of an open one. */
export interface Manner {
  connections: number;
  rate: number | null;
}

export interface Counts extends LoadCounts {
  /** CPU time of the server's process per request. */
  cpuMicros: number;
}

export interface Cell {
  row: Row;
  manner: Manner;
  /** Medians over the rounds. */
  counts: Counts;
}

const number = (value: number, digits: number) =>
  Number.isFinite(value)
    ? value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits })
    : "";
const percent = (share: number | null) => (share === null ? "" : `${(share * 100).toFixed(0)} %`);
const millis = (value: number) => number(value, 2);

export const mannerText = ({ connections, rate }: Manner) =>
  rate === null ? `${connections} ${connections === 1 ? "connection" : "connections"}` : `${rate} a second`;

/** What a row adds to the provider's own answer, and its share of the floor's rate; null without the other row. */
function compared(cell: Cell, cells: readonly Cell[]) {
  const beside = (name: string | null) =>
    cells.find(({ row, manner }) => row.name === name && manner === cell.manner)?.counts ?? null;
  const direct = cell.row.server === "provider" ? null : beside(ROWS[0]!.name);
  // At a fixed rate all have the same number of requests, so there is no share.
  const floor = beside(cell.row.floor);
  return {
    addedP50: direct === null ? null : cell.counts.p50 - direct.p50,
    addedP99: direct === null ? null : cell.counts.p99 - direct.p99,
    ofFloor: floor === null || cell.manner.rate !== null ? null : cell.counts.rate / floor.rate,
    cpuOfFloor: floor === null ? null : floor.cpuMicros / cell.counts.cpuMicros,
  };
}

export function upstreamTable(cells: readonly Cell[]): string {
  const rows = cells.map((cell) => {
    const { addedP50, addedP99, ofFloor, cpuOfFloor } = compared(cell, cells);
    const { rate, p50, p99, cpuMicros, failures } = cell.counts;
    return [
      cell.row.title,
      mannerText(cell.manner),
      number(rate, 0),
      millis(p50),
      millis(p99),
      millis(addedP50 ?? Number.NaN),
      millis(addedP99 ?? Number.NaN),
      percent(ofFloor),
      number(cpuMicros, 0),
      percent(cpuOfFloor),
      failures === 0 ? "" : String(failures),
    ];
  });
  const head = [
    "the real path",
    "load",
    "req/s",
    "p50 ms",
    "p99 ms",
    "added p50",
    "added p99",
    "of the floor",
    "CPU us/req",
    "CPU of floor",
    "failures",
  ];
  return table([head, ...rows]);
}

export function upstreamLines(cells: readonly Cell[]): string[] {
  return cells.map((cell) => {
    const { row, manner, counts } = cell;
    return JSON.stringify({ scenario: "upstream", row: row.name, ...manner, ...counts, ...compared(cell, cells) });
  });
}
