/**
 * `node --import tsx bench/processes.ts`: one, two and four processes of Penstock on one PostgreSQL: what an operation costs the database
 * and the processes, and how much is refused or rolled back.
 */
import { availableParallelism } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { startPostgres } from "../test/support/postgres.ts";
import { runLoop } from "./keep-alive-load.ts";
import { childrenOf, cpuSeconds, exitOnSignals } from "./process.ts";
import { table } from "./report.ts";
import { ROOT, type Running, startPenstock } from "./targets.ts";

const USAGE = `node --import tsx bench/processes.ts [options]

  --counts 1,2,4      numbers of processes
  --rows LIST         create,save,text,workflow
  --seconds N         length of one run of load (5)
  --connections N     requests at once, of each process (16)
  --rounds N          runs of each row (1)
  --root DIR          another source tree

PENSTOCK_TEST_POSTGRES names a server on this machine instead of one that is started for it.`;

/** Conversations to which each process saves. */
const OWN = 64;
const WARM_UP_SECONDS = 2;
/** Delay until the server's statistics are up to date. */
const SETTLE_MS = 1_500;

interface Row {
  path: string;
  /** @param process @param n counter of the requests of a process */
  body(process: number, n: number): unknown;
}

const user = (process: number, n: number) => `user-${process}-${n % OWN}`;
const talk = (process: number, n: number) => `talk-${process}-${n % OWN}`;

const ROWS: Readonly<Record<string, Row>> = {
  create: {
    path: "/api/memory/conversations",
    body: (process, n) => ({ userId: user(process, n), resourceId: "assistant", title: "A talk", metadata: { n } }),
  },
  save: {
    path: "/api/memory/save-messages",
    body: (process, n) => ({
      userId: user(process, n),
      conversationId: talk(process, n),
      messages: [{ role: "user", content: "The quick brown fox jumps over the lazy dog." }],
    }),
  },
  text: {
    path: "/agents/assistant/text",
    body: (process, n) => ({
      input: "The quick brown fox jumps over the lazy dog.",
      options: { memory: { userId: user(process, n), conversationId: `text-${process}-${n % OWN}` } },
    }),
  },
  workflow: {
    path: "/workflows/expense/execute",
    body: (process, n) => ({ input: { employee: user(process, n), amount: n } }),
  },
};

async function post(port: number, path: string, body: unknown): Promise<void> {
  const reply = await fetch(`http://127.0.0.1:${port}${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  if (!reply.ok) throw new Error(`${path}: ${reply.status} ${await reply.text()}`);
}

/** CPU seconds of all processes of the database server that run now. */
const serverCpu = (postmaster: number) =>
  [postmaster, ...childrenOf(postmaster)].map(cpuSeconds).reduce((a, b) => a + b, 0);

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      counts: { type: "string", default: "1,2,4" },
      rows: { type: "string", default: Object.keys(ROWS).join() },
      seconds: { type: "string", default: "5" },
      connections: { type: "string", default: "16" },
      rounds: { type: "string", default: "1" },
      root: { type: "string", default: ROOT },
      help: { type: "boolean" },
    },
  });
  if (values.help) return console.log(USAGE);
  const postgres = await startPostgres();
  if (postgres === null) throw new Error("there is no PostgreSQL");
  const [{ pid } = {}] = await postgres.query("SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1) AS pid");
  const postmaster = Number(pid);
  const lines: string[][] = [];
  try {
    for (let round = 0; round < Number(values.rounds); round++) {
      for (const name of values.rows.split(",")) {
        for (const count of values.counts.split(",").map(Number)) lines.push(await measure(name, count));
      }
    }
  } finally {
    await postgres.close();
  }
  const head = [
    "row",
    "processes",
    "rate/s",
    "refused",
    "p50 ms",
    "p99 ms",
    "PG us/op",
    "process us/op",
    "both",
    "transactions/op",
    "kB of WAL/op",
    "rolled back",
  ];
  console.log(table([head, ...lines]));
  console.log(`${availableParallelism()} cores for the processes, the database and the load`);

  async function measure(name: string, count: number): Promise<string[]> {
    const row = ROWS[name];
    if (row === undefined) throw new Error(USAGE);
    const store = await postgres!.createDatabase();
    const servers: Running[] = [];
    const statistics = async () => {
      await sleep(SETTLE_MS);
      const text =
        "SELECT xact_commit::int AS done, xact_rollback::int AS undone, (pg_current_wal_lsn() - '0/0')::float8 AS wal FROM pg_stat_database WHERE datname = current_database()";
      return (await postgres!.query(text, store))[0] as { done: number; undone: number; wal: number };
    };
    try {
      for (let index = 0; index < count; index++) {
        servers.push(
          await startPenstock({ root: values.root, service: "processes", pinned: false, env: { BENCH_STORE: store } }),
        );
      }
      for (const [process, { port }] of servers.entries()) {
        for (let n = 0; name === "save" && n < OWN; n++) {
          const body = { userId: user(process, n), conversationId: talk(process, n), resourceId: "assistant" };
          await post(port, "/api/memory/conversations", body);
        }
      }
      const counters = servers.map(() => 0);
      const load = (seconds: number) => {
        const until = performance.now() + seconds * 1_000;
        return Promise.all(
          servers.map(({ port }, process) => {
            const body = () => JSON.stringify(row.body(process, counters[process]!++));
            return runLoop({ port, connections: Number(values.connections), until, path: row.path, body });
          }),
        );
      };
      await load(WARM_UP_SECONDS);
      const before = await statistics();
      const cpu = () => [
        serverCpu(postmaster),
        servers.map((server) => cpuSeconds(server.pid)).reduce((a, b) => a + b, 0),
      ];
      const [databaseBefore = 0, processesBefore = 0] = cpu();
      const began = performance.now();
      const results = await load(Number(values.seconds));
      const seconds = (performance.now() - began) / 1_000;
      const [database = 0, processes = 0] = cpu();
      const after = await statistics();
      const requests = results.reduce((sum, result) => sum + result.requests, 0);
      const micros = (cpuSeconds: number) => Math.round((cpuSeconds * 1e6) / requests);
      const done = after.done - before.done;
      const undone = after.undone - before.undone;
      process.stderr.write(`${name} ${count}\n`);
      return [
        name,
        String(count),
        String(Math.round(requests / seconds)),
        String(results.reduce((sum, { refused }) => sum + refused, 0)),
        Math.max(...results.map(({ p50 }) => p50)).toFixed(1),
        Math.max(...results.map(({ p99 }) => p99)).toFixed(1),
        String(micros(database - databaseBefore)),
        String(micros(processes - processesBefore)),
        String(micros(database - databaseBefore + processes - processesBefore)),
        ((done + undone) / requests).toFixed(3),
        ((after.wal - before.wal) / requests / 1_000).toFixed(2),
        `${undone} (${((100 * undone) / (done + undone)).toFixed(1)} %)`,
      ];
    } finally {
      await Promise.all(servers.map((server) => server.stop()));
    }
  }
}

exitOnSignals();
await main();
