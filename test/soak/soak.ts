/** The load, what it has seen, and what the process weighed meanwhile. */

import { setTimeout as sleep } from "node:timers/promises";
import { Pool } from "undici";
import { caseSeed, randomOf } from "../fuzz/random.ts";
import { serve } from "../support/command-line.ts";
import { type Measure, type Measured, median } from "../support/measured.ts";
import { type Sockets, settledSockets } from "./aftermath.ts";
import * as agents from "./agents.ts";
import { type Caller, Refused, type Visit } from "./caller.ts";
import * as memory from "./memory.ts";
import { serveSoaked } from "./service.ts";
import * as sockets from "./sockets.ts";
import * as workflows from "./workflows.ts";

/** How often each is made, against the others. */
const VISITS: readonly (readonly [weight: number, name: string, visit: Visit])[] = [
  [14, "agents.text", agents.text],
  [5, "agents.object", agents.object],
  [10, "agents.stream", agents.stream],
  [8, "agents.chat", agents.chat],
  [4, "agents.streamedObject", agents.streamedObject],
  [1, "agents.slowReader", agents.slowReader],
  [2, "agents.leaver", agents.leaver],
  [3, "agents.hasty", agents.hasty],
  [2, "agents.history", agents.history],
  [2, "agents.forget", agents.forget],
  [10, "memory.save", memory.save],
  [8, "memory.page", memory.page],
  [5, "memory.search", memory.search],
  [3, "memory.note", memory.note],
  [1, "memory.copy", memory.copy],
  [8, "workflows.execute", workflows.execute],
  [5, "workflows.approve", workflows.approve],
  [4, "workflows.talk", workflows.talk],
  [5, "workflows.stream", workflows.stream],
  [2, "workflows.leaver", workflows.leaver],
  [2, "workflows.stop", workflows.stop],
  [2, "workflows.list", workflows.list],
  [4, "sockets.echo", sockets.echo],
  [2, "sockets.logs", sockets.logs],
  [2, "sockets.traces", sockets.traces],
  [1, "sockets.deaf", sockets.deaf],
  [2, "sockets.pages", sockets.pages],
];

const CLIENTS = 24;
/** Milliseconds within which every visit must be over: the longest has several calls of 15 s at most each. */
const PATIENCE = 60_000;
/** How often the process is measured. */
const MEASURES = 40;

interface SoakSettings {
  /** Milliseconds. */
  readonly duration: number;
  /** Visits in a second, of all clients together. */
  readonly rate: number;
  readonly seed: number;
  readonly transport: string;
  /** As the manifest names it; default: a file of SQLite. */
  readonly store?: string;
  /** Ends it early. */
  readonly signal?: AbortSignal;
  /** Told now and then how it goes. */
  readonly tell: (line: string) => void;
}

export interface SoakReport {
  /** How often each visit had each outcome. */
  readonly outcomes: Map<string, Map<string, number>>;
  /** What must not happen, in words. */
  readonly wrong: string[];
  readonly measures: Measure[];
  readonly base: Measure;
  readonly end: Measure;
  /** Sockets of the process, before and after the load. */
  readonly sockets: Sockets;
  readonly served: Measured;
}

type Registrar = Parameters<typeof serve>[0];

export async function soak(test: Registrar, settings: SoakSettings): Promise<SoakReport> {
  const { duration, seed, transport, store = "sqlite:data/soak.db", signal, tell } = settings;
  const model = await serve(test, [process.execPath, "--import", "tsx", "test/soak/upstream.ts", String(seed)]);
  const served = await serveSoaked(test, model.url, transport, store);
  const before = served.sockets();
  const base = await served.measure();
  const report = { outcomes: new Map(), wrong: [] as string[], measures: [] as Measure[], base, served };
  const pool = new Pool(served.url, { connections: 2 * CLIENTS, bodyTimeout: 30_000, headersTimeout: 30_000 });
  let going = true;
  const clients = startClients(settings, served.url, pool, report, () => going);
  for (let index = 1; index <= MEASURES && report.wrong.length === 0; index++) {
    await sleep(duration / MEASURES, undefined, { signal }).catch(() => {});
    if (signal?.aborted) break;
    if (served.child.exitCode !== null) report.wrong.push(`the process ended:\n${served.stderr().slice(-3_000)}`);
    else report.measures.push(await served.measure());
    if (index % (MEASURES / 8) === 0) tell(`${index} of ${MEASURES}: ${describeMeasure(report.measures.at(-1)!)}`);
  }
  going = false;
  await Promise.all(clients);
  await pool.destroy();
  await model.interrupt("SIGTERM");
  const sockets = await settledSockets(served, before);
  return { ...report, end: await served.measure(), sockets };
}

function startClients(
  { rate, seed }: SoakSettings,
  url: string,
  pool: Pool,
  report: Pick<SoakReport, "outcomes" | "wrong">,
  goes: () => boolean,
): Promise<void>[] {
  let number = 0;
  const serials = new Set<number>();
  const choices = VISITS.map(([weight, name, visit]) => [weight, { name, visit }] as const);
  return Array.from({ length: CLIENTS }, async (_, index) => {
    const random = randomOf(caseSeed(seed, index));
    const next = () => ++number;
    const caller: Caller = { url, pool, random, name: `user${index}`, next, serials };
    while (goes() && report.wrong.length === 0) {
      // At moments of chance, as often as the rate says.
      await sleep((-Math.log(1 - random.next()) * CLIENTS * 1_000) / rate);
      const { name, visit } = random.weighted(choices);
      const outcome = await within(visit(caller)).catch((error: Error) => {
        if (error instanceof Refused) return error.outcome;
        report.wrong.push(`${name}: ${error.stack}`);
        return "wrong";
      });
      const counts = report.outcomes.get(name) ?? new Map<string, number>();
      report.outcomes.set(name, counts.set(outcome, (counts.get(outcome) ?? 0) + 1));
    }
  });
}

function within<T>(visit: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`nothing for ${PATIENCE / 1_000} s`)), PATIENCE);
  });
  return Promise.race([visit, late]).finally(() => clearTimeout(timer));
}

export const describeMeasure = ({ rss, peak, heapUsed, external, user, system }: Measure): string =>
  `resident ${mega(rss)}, at most ${mega(peak)}, heap ${mega(heapUsed)}, external ${mega(external)}, processor ${((user + system) / 1e6).toFixed(1)} s`;

const mega = (bytes: number) => `${(bytes / 1e6).toFixed(1)} MB`;

/** Resident memory in one quarter of the time: the median of its samples. */
export function residentIn(measures: readonly Measure[], quarter: 1 | 2 | 3 | 4): number {
  const size = measures.length / 4;
  return median(measures.slice((quarter - 1) * size, quarter * size).map(({ rss }) => rss));
}
