/** The process that is measured: it starts services, one after the other, and does what exact.ts asks of it. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { getHeapStatistics } from "node:v8";
import type { Counts, Order } from "./exact.ts";

interface Still {
  jump(): void;
  idle(): Promise<void>;
  advance(milliseconds: number): Promise<void>;
  counts(): Promise<Counts>;
}

const { still } = globalThis as unknown as { still: Still };
const { gc } = globalThis as unknown as { gc(): void };
/** Longer than what a run sets off later takes to be written. */
const LATER_MS = 3_000;

const folder = mkdtempSync(join(tmpdir(), "penstock-exact-"));
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
const { start } = await import("../../core/app/start.ts");
let service: Awaited<ReturnType<typeof start>> | undefined;
let files = 0;
let before: Counts | undefined;

const ORDERS: Record<Order["do"], (order: Order) => unknown> = {
  async start({ config, env }) {
    still.jump();
    files += 1;
    const store = env.BENCH_STORE?.replace("FILE", join(folder, `${files}.db`));
    service = await start({ config, port: 0, env: { ...env, ...(store && { BENCH_STORE: store }) } });
    return Number(new URL(service.url).port);
  },
  async stop() {
    const over = service?.kill().then(() => true);
    // It may wait for a timer.
    while (!(await Promise.race([over, still.advance(10)])));
  },
  async begin() {
    await still.advance(LATER_MS);
    before = await still.counts();
  },
  idle: () => still.idle(),
  /** What was done since `begin`, and what it has set off for later. */
  async end({ later }) {
    if (later) await still.advance(LATER_MS);
    const after = await still.counts();
    return Object.fromEntries(
      Object.entries(after).map(([name, count]) => [name, count - before![name as keyof Counts]]),
    );
  },
  collect: () => gc(),
  weigh: () => getHeapStatistics().used_heap_size,
};

process.on("message", async (order: Order) => {
  try {
    process.send!({ result: await ORDERS[order.do](order) });
  } catch (error) {
    process.send!({ error: String((error as Error).stack) });
  }
});
process.on("disconnect", () => process.exit(0));
process.send!({ result: "ready" });
