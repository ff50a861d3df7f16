/**
 * What operations cost, exactly: rows, bytes, commits, statements and round trips, and the bytes that they allocate. The operations are
 * rows of the bench, sent one after the other to a service in a process of its own, in which time stands still (still.mjs).
 */
import { type ChildProcess, type StdioOptions, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { Agent, request } from "node:http";
import { join } from "node:path";
import pg from "pg";
import { checked, idIn } from "../../bench/capture.ts";
import { fill, ID } from "../../bench/numbers.ts";
import { type HttpScenario, httpScenarios, SCENARIOS } from "../../bench/scenarios.ts";
import { originOf, ROOT, SERVICES, startProvider } from "../../bench/targets.ts";

export interface Order {
  do: "start" | "stop" | "begin" | "idle" | "end" | "collect" | "weigh";
  config: string;
  env: Record<string, string>;
  /** Whether time goes by, so that what is written later is written. */
  later: boolean;
}

/** In SQLite rows that were changed, bytes of parameters of what writes; in PostgreSQL bytes that were sent. */
export interface Counts {
  rows: number;
  bytes: number;
  commits: number;
  statements: number;
  roundTrips: number;
}

type Figures = Partial<Counts> & { allocated?: number };

/** Requests before anything is measured: caches are filled, and functions are compiled. */
const WARM = 30;
/** Requests whose counts are added up. */
const COUNTED = 20;
/** Batches of requests whose allocations are taken, without a garbage collection; the least counts: what others do can only add to it. */
const BATCHES = 5;
const BATCH = 8;
/** Milliseconds; for hangs only. */
const HANG_MS = 300_000;

/** Nothing is optimised, compiled in the background, forgotten or collected while it is measured, and nothing depends on chance. */
const FLAGS = [
  "--expose-gc",
  "--no-opt",
  "--no-sparkplug",
  "--no-lazy-feedback-allocation",
  "--no-flush-bytecode",
  "--single-threaded",
  "--hash-seed=1",
  "--random-seed=1",
  "--min-semi-space-size=128",
  "--max-semi-space-size=128",
];

/** A row of the bench on PostgreSQL instead of SQLite. */
const ON_POSTGRES = ["save", "create", "text-memory", "workflow", "workflow-resume"];
/** They need a hundred thousand conversations, or are the same for this as their twin. */
const LEFT_OUT = ["save-random", "text-traced", "text-traced-content"];

interface Row {
  name: string;
  scenario: HttpScenario;
  store: "none" | "sqlite" | "postgres";
}

export const ROWS: readonly Row[] = httpScenarios(SCENARIOS)
  .filter(({ name }) => !LEFT_OUT.includes(name))
  .flatMap((scenario): Row[] => {
    const { name, service } = scenario;
    const row: Row = { name, scenario, store: SERVICES[service].file ? "sqlite" : "none" };
    return ON_POSTGRES.includes(name) ? [row, { name: `${name}-postgres`, scenario, store: "postgres" }] : [row];
  });

class Process {
  readonly #child: ChildProcess;
  readonly #ended: Promise<[{ error: string }]>;

  constructor() {
    const args = [...FLAGS, "--import", "./test/exact/still.mjs", "--import", "tsx", "test/exact/measured.ts"];
    const stdio: StdioOptions = ["ignore", "ignore", "inherit", "ipc"];
    this.#child = spawn(process.execPath, args, { cwd: ROOT, stdio, timeout: HANG_MS });
    this.#ended = once(this.#child, "exit").then(([code]) => [{ error: `the measured process ended with ${code}` }]);
  }

  async answer<T>(): Promise<T> {
    const [{ result, error }] = await Promise.race([once(this.#child, "message"), this.#ended]);
    if (error !== undefined) throw new Error(error);
    return result;
  }

  order<T>(what: Order["do"], more: Partial<Order> = {}): Promise<T> {
    const answer = this.answer<T>();
    this.#child.send({ do: what, ...more });
    return answer;
  }

  end(): void {
    this.#child.disconnect();
  }
}

/** Sends the requests of a row one after the other, on one connection. */
class Client {
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 1 });
  readonly #port: number;
  readonly #scenario: HttpScenario;
  #sent = 0;

  constructor(port: number, scenario: HttpScenario) {
    this.#port = port;
    this.#scenario = scenario;
  }

  /** Sends one of each of its requests. */
  async once(between: () => Promise<unknown>): Promise<void> {
    const { path, body, next, numbers } = this.#scenario;
    const number = numbers === undefined ? 0 : this.#sent % Math.min(numbers.below, CONVERSATIONS);
    this.#sent += 1;
    const reply = await this.#send(fill(path, number), body === null ? null : fill(body, number));
    await between();
    if (next === undefined) return;
    await this.#send(next.path.replace(ID, idIn(next.id, reply)), next.body);
    await between();
  }

  async #send(path: string, body: string | null): Promise<string> {
    const { method, keyed } = this.#scenario;
    const headers = {
      ...this.#scenario.headers?.(),
      ...(keyed && { "idempotency-key": `key-${String(this.#sent).padStart(9, "0")}` }),
      ...(body !== null && { "content-type": "application/json", "content-length": Buffer.byteLength(body) }),
    };
    const asked = request({ host: "127.0.0.1", port: this.#port, agent: this.#agent, method, path, headers });
    asked.end(body ?? undefined);
    const [response] = await once(asked, "response");
    let text = "";
    for await (const part of response.setEncoding("utf8")) text += part;
    const wrong = response.statusCode < 300 ? checked(this.#scenario, text) : `${response.statusCode}: ${text}`;
    if (wrong !== null) throw new Error(`${this.#scenario.name}: ${wrong}`);
    return text;
  }

  close(): void {
    this.#agent.destroy();
  }
}

/** Few, since filling them takes time, and as many as are counted. */
const CONVERSATIONS = 20;

/** Numbers that PostgreSQL gives are sent back to it as text. Revisions get as many digits here, however many it has given. */
async function widenNumbers(connectionString: string): Promise<void> {
  const pool = new pg.Pool({ connectionString, max: 1 });
  await pool.query({ text: "UPDATE penstock_meta SET value = '1000000000' WHERE key = 'revisions'" });
  await pool.end();
}

async function measureRow(child: Process, { scenario, store }: Row, env: Record<string, string>): Promise<Figures> {
  const { manifest, env: own } = SERVICES[scenario.service];
  const config = join(ROOT, "bench", manifest);
  const start = () => child.order<number>("start", { config, env: { ...own, ...env } });
  if (store === "postgres") {
    // The first start makes the tables.
    await start();
    await child.order("stop");
    await widenNumbers(env.BENCH_STORE!);
  }
  const port = await start();
  const client = new Client(port, scenario);
  try {
    await scenario.prepare?.(port, CONVERSATIONS);
    const nothing = async () => undefined;
    for (let count = 0; count < WARM; count += 1) await client.once(nothing);
    await child.order("begin");
    for (let count = 0; count < COUNTED; count += 1) await client.once(() => child.order("idle"));
    const counts = await child.order<Counts>("end", { later: store === "sqlite" });
    const each = (...names: (keyof Counts)[]) =>
      Object.fromEntries(names.map((name) => [name, Math.round((counts[name] / COUNTED) * 100) / 100]));
    if (store === "postgres") return each("bytes", "statements", "roundTrips");
    await child.order("collect");
    const batches: number[] = [];
    for (let batch = 0; batch < BATCHES; batch += 1) {
      const before = await child.order<number>("weigh");
      for (let count = 0; count < BATCH; count += 1) await client.once(nothing);
      batches.push((await child.order<number>("weigh")) - before);
    }
    const allocated = Math.round(Math.min(...batches) / BATCH);
    return store === "sqlite" ? { ...each("rows", "bytes", "commits", "statements"), allocated } : { allocated };
  } finally {
    client.close();
    await child.order("stop");
  }
}

/** What is in figures.json, one row a line. */
interface Kept {
  /** The major version of Node.js for which the allocations are stated. */
  node: number;
  figures: Record<string, Figures>;
  /** The least that each row has cost. */
  least: Record<string, Figures>;
  /** Why a row costs more than that: what users have of it. */
  reasons: Record<string, string>;
}

const FILE = join(ROOT, "test/exact/figures.json");
export const readKept = (): Kept => JSON.parse(readFileSync(FILE, "utf8"));

export function writeKept({ node, ...parts }: Kept): void {
  const order = ROWS.map(({ name }) => name);
  const section = ([part, rows]: [string, Record<string, unknown>]) => {
    const lines = order
      .filter((name) => name in rows)
      .map((name) => `    "${name}": ${JSON.stringify(rows[name], null, 1).replaceAll(/\s+/g, " ")}`);
    return `  "${part}": ${lines.length === 0 ? "{}" : `{\n${lines.join(",\n")}\n  }`}`;
  };
  writeFileSync(FILE, `{\n  "node": ${node},\n${Object.entries(parts).map(section).join(",\n")}\n}\n`);
}

/** The figures of a row after an update, and the least that it has cost. */
export function lesser(now: Figures, before: Figures = now): Figures {
  return Object.fromEntries(counts(now).map(([what, count]) => [what, Math.min(count, before[what] ?? count)]));
}

/** Rows that cost more than they have cost, without a reason; each as sentences. */
export const unexplained = ({ node, figures, least, reasons }: Kept): string[] =>
  Object.entries(figures)
    .filter(([name]) => (reasons[name] ?? "").length <= 20)
    .flatMap(([name, now]) => differences(name, now, least[name], node, node).worse);

export const NODE = Number(process.versions.node.split(".")[0]);
/** The share by which allocations may differ; everything else is equal. */
const TOLERANCE = 0.03;

const counts = Object.entries as (figures: Figures) => [keyof Figures, number][];

/** What differs from the figures that are kept, each as a sentence; `worse` are those that cost more. */
export function differences(name: string, now: Figures, before: Figures | undefined, node: number, on = NODE) {
  if (before === undefined) return { all: [`${name}: no figures`], worse: [`${name}: no figures`] };
  const differing = counts(now).filter(([what, count]) => {
    if (what !== "allocated") return count !== before[what];
    return node === on && Math.abs(count / before.allocated! - 1) > TOLERANCE;
  });
  const told = ([what, count]: [keyof Figures, number]) => `${name}: ${what} ${count}, not ${before[what]}`;
  return {
    all: differing.map(told),
    worse: differing.filter(([what, count]) => count > (before[what] ?? 0)).map(told),
  };
}

/** @param database gives the URL of an empty database of PostgreSQL; without it the rows on PostgreSQL are left out */
export async function measure(
  rows: readonly Row[],
  database: (() => Promise<string>) | null,
  tell: (name: string, figures: Figures) => void = () => undefined,
): Promise<Map<string, Figures>> {
  const provider = await startProvider();
  const child = new Process();
  try {
    await child.answer();
    const measured = new Map<string, Figures>();
    for (const row of rows) {
      if (row.store === "postgres" && database === null) continue;
      const stores = { none: "memory:", sqlite: "sqlite:FILE", postgres: (await database?.()) ?? "" };
      const figures = await measureRow(child, row, {
        BENCH_STORE: stores[row.store],
        BENCH_PROVIDER: originOf(provider),
      });
      measured.set(row.name, figures);
      tell(row.name, figures);
    }
    return measured;
  } finally {
    child.end();
    await provider.stop();
  }
}
