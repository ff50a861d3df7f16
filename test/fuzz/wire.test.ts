/**
 * Whatever is sent, the service answers as it promises, stays up and does not grow: mutated requests over all rows of the routes
 * table, HTTP framing, and WebSocket frames, against a process of its own on both transports.
 *
 * 3,000 cases, or 100,000 with `npm run test:fuzz`; `PENSTOCK_FUZZ_CASES` sets another number. `PENSTOCK_FUZZ_SEED` repeats a run, and
 * with `PENSTOCK_FUZZ_CASE` one case of it alone, which is printed.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import { LONG } from "../support/at-length.ts";
import { type Measure, type Measured, median } from "../support/measured.ts";
import { token } from "../support/tokens.ts";
import { TRANSPORTS } from "../support/transports.ts";
import { type Case, FuzzClient } from "./client.ts";
import { frameCase } from "./frames.ts";
import { framingCase } from "./framing.ts";
import { caseSeed, randomOf } from "./random.ts";
import { ROW_NAMES, requestCase } from "./requests.ts";
import { serveFuzzed } from "./service.ts";

const CASES = Number(process.env.PENSTOCK_FUZZ_CASES ?? (LONG ? 100_000 : 3_000));
const SEED = Number(process.env.PENSTOCK_FUZZ_SEED ?? Date.now() % 1_000_000_007);
const ONLY = process.env.PENSTOCK_FUZZ_CASE;
const CLIENTS = 12;
/** How often the process is measured. */
const MEASURES = 16;
/** Bytes that resident memory may have grown by from the second quarter to the last: each connection to SQLite has a cache of 32 MiB. */
const RESIDENT = 64 * 1024 * 1024;
/** Share by which the heap may have grown meanwhile: what is stored has an index in memory. */
const HEAP = 0.15;
/** Problems after which a run is over. */
const ENOUGH = 8;

function makeCase(index: number, host: string): Case {
  const random = randomOf(caseSeed(SEED, index));
  return random.weighted<() => Case>([
    [72, () => requestCase(random, host)],
    [18, () => framingCase(random, host)],
    [10, () => frameCase(random, host)],
  ])();
}

interface Run {
  readonly problems: string[];
  readonly rows: Map<string, number>;
  readonly measures: Measure[];
  readonly seen: Map<string, number>;
}

async function runCases(service: Measured): Promise<Run> {
  const { host, port } = new URL(service.url);
  const clients = Array.from({ length: CLIENTS }, () => new FuzzClient(Number(port)));
  const run: Run = { problems: [], rows: new Map(), measures: [], seen: clients[0]!.seen };
  for (const client of clients) Object.assign(client, { seen: run.seen });
  let next = 0;
  const work = async (client: FuzzClient, end: number) => {
    while (next < end && run.problems.length < ENOUGH) {
      const index = next++;
      const each = makeCase(index, host);
      const row = `${each.kind} ${each.row}`;
      run.rows.set(row, (run.rows.get(row) ?? 0) + 1);
      const problem = await client.run(each).catch((error: Error) => `the client failed: ${error.message}`);
      if (problem !== null) run.problems.push(`case ${index}, ${row}: ${problem}`);
    }
  };
  for (let part = 1; part <= MEASURES; part++) {
    await Promise.all(clients.map((client) => work(client, Math.round((CASES * part) / MEASURES))));
    if (service.child.exitCode !== null || service.child.signalCode !== null) {
      run.problems.push(`the process ended:\n${service.stderr().slice(-3_000)}`);
      break;
    }
    // A connection that rests while the process is measured may be closed under the next request.
    for (const client of clients) client.close();
    run.measures.push(await service.measure());
  }
  return run;
}

async function repeatOne(service: Measured, index: number): Promise<void> {
  const { host, port } = new URL(service.url);
  const each = makeCase(index, host);
  console.log(each);
  for (const part of "bytes" in each
    ? [each.bytes]
    : each.kind === "framing"
      ? each.pieces.map(({ bytes }) => bytes)
      : [each.handshake, ...each.echoes, ...each.frames]) {
    console.log(JSON.stringify(part.toString("latin1").slice(0, 20_000)));
  }
  assert.equal(await new FuzzClient(Number(port)).run(each), null);
}

/** Lines of the log that tell of a fault of the service itself: what tools and models do wrong is a warning. */
const alarmsOf = (log: string) => log.split("\n").filter((line) => /^\{"level":"(error|fatal)"/.test(line));

for (const transport of TRANSPORTS) {
  const title = `${CASES} mutated requests, framings and frames over ${transport}: every reply is of a documented form, and the process stays as it was`;
  test(`${title} (seed ${SEED})`, { timeout: LONG ? 3_000_000 : 240_000 }, async (t) => {
    const repeat = `PENSTOCK_FUZZ_SEED=${SEED} PENSTOCK_FUZZ_CASES=${CASES} repeats it; PENSTOCK_FUZZ_CASE=NUMBER one case of it`;
    t.diagnostic(repeat);
    const service = await serveFuzzed(t, transport);
    if (ONLY !== undefined) return repeatOne(service, Number(ONLY));
    const { problems, rows, measures, seen } = await runCases(service);
    t.diagnostic(
      [...seen]
        .toSorted()
        .map(([what, count]) => `${what}: ${count}`)
        .join(", "),
    );
    assert.deepEqual(problems, [], `${problems.length} problems; ${repeat}`);
    for (const row of ROW_NAMES) assert.ok(rows.has(`request ${row}`), `${row} was never asked`);
    t.diagnostic(`resident: ${measures.map(({ rss }) => Math.round(rss / 1e6)).join(" ")} MB`);
    t.diagnostic(`heap: ${measures.map(({ heapUsed }) => (heapUsed / 1e6).toFixed(1)).join(" ")} MB`);
    const { user, system } = measures.at(-1)!;
    t.diagnostic(`the service took ${((user + system) / 1e6).toFixed(1)} s of processor time`);
    const quarter = (number: number, of: (measure: Measure) => number) =>
      median(measures.slice(((number - 1) * MEASURES) / 4, (number * MEASURES) / 4).map(of));
    const [resident, heap] = [({ rss }: Measure) => rss, ({ heapUsed }: Measure) => heapUsed];
    assert.ok(quarter(4, resident) - quarter(2, resident) < RESIDENT, "resident memory grew");
    assert.ok(quarter(4, heap) < quarter(2, heap) * (1 + HEAP), "the heap grew");
    assert.deepEqual(alarmsOf(service.stdout()), []);
    const reply = await fetch(`${service.url}/agents/support/text`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${token({ sub: "zoe" })}` },
      body: JSON.stringify({ input: "Where is order A-1002?" }),
    });
    const { data } = (await reply.json()) as { data: { text: string } };
    assert.equal(data.text, "Order A-1002, a Standing desk, is shipped.");
  });
}
