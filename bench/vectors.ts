/**
 * `node --import tsx bench/vectors.ts`: semantic search in the vectors of one owner, of thirty and of very many, on SQLite. Texts and
 * embeddings are left out: random vectors are stored and searched. Files are built once and kept in `--folder`.
 */
import { existsSync, mkdirSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { parseArgs } from "node:util";
import { pino } from "pino";
import { createExactVectors, createLayout } from "../core/memory/semantic/exact.ts";
import { normalize } from "../core/memory/semantic/matrix.ts";
import { createVectorCache } from "../core/memory/semantic/vector-cache.ts";
import { openSqliteStore } from "../core/storage/sqlite-store.ts";
import { exitOnSignals } from "./process.ts";
import { table } from "./report.ts";

const LIMIT = 10;
const VECTORS_PER_COMMIT = 500;
const MESSAGES_PER_CONVERSATION = 100;
/** Pause between two searches, so that the store has finished. */
const PAUSE_MS = 2;
const AIM_P50_MS = 30;

const say = (line: string) => process.stderr.write(`${line}\n`);

interface Population {
  readonly owners: number;
  /** Number of vectors of each owner. */
  readonly vectors: number;
}

function vector(dimensions: number): Float32Array {
  const bell = () => Math.random() + Math.random() + Math.random() + Math.random() - 2;
  return normalize(Float32Array.from({ length: dimensions }, bell));
}

const open = (file: string) =>
  openSqliteStore({ file, synchronous: "normal", logger: pino({ level: "warn" }, pino.destination(2)) });

const ownerName = (number: number) => `user-${number}`;

async function fill(file: string, { owners, vectors }: Population, dimensions: number): Promise<void> {
  const store = await open(file);
  const index = createExactVectors(store, createLayout("default"), null);
  for (let owner = 0; owner < owners; owner += 1) {
    for (let start = 0; start < vectors; start += VECTORS_PER_COMMIT) {
      const count = Math.min(VECTORS_PER_COMMIT, vectors - start);
      const entries = Array.from({ length: count }, (_, offset) => {
        const number = start + offset;
        const conversation = Math.floor(number / MESSAGES_PER_CONVERSATION);
        return {
          owner: ownerName(owner),
          conversation: String(conversation).padStart(9, "0"),
          message: String(number).padStart(19, "0"),
          vector: vector(dimensions),
        };
      });
      await index.put(entries);
    }
    if (owner % 100 === 99) say(`${owner + 1} owners`);
  }
  await index.idle();
  await store.close();
}

const share = (sorted: readonly number[], part: number) => sorted[Math.floor((sorted.length - 1) * part)]!;

/** Searches one owner after the other, or random ones. */
async function measure(file: string, { owners }: Population, dimensions: number, searches: number): Promise<string[]> {
  const store = await open(file);
  const cache = createVectorCache();
  const index = createExactVectors(store, createLayout("default"), null, { cache });
  const delay = monitorEventLoopDelay({ resolution: 1 });
  const search = async (owner: number): Promise<number> => {
    const query = { vector: vector(dimensions), owner: ownerName(owner), limit: LIMIT, threshold: 0 };
    const began = performance.now();
    const hits = await index.search(query);
    if (hits.length !== LIMIT) throw new Error(`${hits.length} hits`);
    return performance.now() - began;
  };
  delay.enable();
  const cold = [];
  for (let owner = 0; owner < Math.min(owners, 30); owner += 1) cold.push(await search(owner));
  await index.idle();
  const coldPause = delay.max / 1e6;
  delay.reset();
  const cpu = process.cpuUsage();
  const times: number[] = [];
  for (let count = 0; count < searches; count += 1) {
    const owner = owners <= 30 ? count % owners : Math.floor(Math.random() * owners);
    times.push(await search(owner));
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
  const { user, system } = process.cpuUsage(cpu);
  const warmPause = delay.max / 1e6;
  delay.disable();
  const resident = process.memoryUsage().rss / 1024 / 1024;
  await store.close();
  times.sort((a, b) => a - b);
  cold.sort((a, b) => a - b);
  const shown = [share(cold, 0.5), coldPause, share(times, 0.5), share(times, 0.99), warmPause];
  return [
    ...shown.map((milliseconds) => milliseconds.toFixed(1)),
    ((user + system) / 1_000 / searches).toFixed(1),
    String(Math.round(resident)),
    share(times, 0.5) < AIM_P50_MS ? "reached" : "missed",
  ];
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      folder: { type: "string", default: join(tmpdir(), "penstock-vectors") },
      dimensions: { type: "string", default: "512" },
      searches: { type: "string", default: "300" },
      // A list of `OWNERSxVECTORS`.
      of: { type: "string", default: "1x1000,1x10000,1x100000,30x1000,1000x1000" },
    },
  });
  exitOnSignals();
  mkdirSync(values.folder, { recursive: true });
  const dimensions = Number(values.dimensions);
  const rows: string[][] = [];
  for (const text of values.of.split(",")) {
    const [owners, vectors] = text.split("x").map(Number) as [number, number];
    const file = join(values.folder, `${text}-${dimensions}.db`);
    if (!existsSync(file)) {
      say(`${file}: building`);
      await fill(file, { owners, vectors }, dimensions);
    }
    say(`${file}, load average ${loadavg()[0]!.toFixed(1)}`);
    rows.push([text, ...(await measure(file, { owners, vectors }, dimensions, Number(values.searches)))]);
  }
  const head = ["owners x vectors", "cold ms", "pause", "p50 ms", "p99", "pause", "CPU ms", "MiB", "p50 < 30 ms"];
  console.log(
    `\nnode ${process.version}, ${dimensions} dimensions, the nearest ${LIMIT}\n\n${table([head, ...rows])}\n`,
  );
}

await main();
