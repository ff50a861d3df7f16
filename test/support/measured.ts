/** Penstock as a process of its own that can be asked what it weighs. */
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { PENSTOCK, ROOT, type Served, serve } from "./command-line.ts";
import { openSockets } from "./open-sockets.ts";
import { EXAMPLES } from "./plugin-folder.ts";

/** After a garbage collection; bytes, and microseconds of processor time since the start. */
export interface Measure {
  readonly rss: number;
  /** The most that was resident since the start, at any time. */
  readonly peak: number;
  readonly heapUsed: number;
  readonly external: number;
  readonly user: number;
  readonly system: number;
}

export interface Measured extends Served {
  /** Where its manifest is, and with it its store. */
  readonly folder: string;
  measure(): Promise<Measure>;
  /** Sockets that it has open, a line each; none where the system does not tell. */
  sockets(): readonly string[];
}

const HANG_MS = 240_000;
const INSIDE = join(ROOT, "test/support/measured-inside.mjs");

/**
 * Serves a manifest from a folder of its own, with the example plugins.
 *
 * @param files more contents of the folder, by their names; programs among them go before others of their name
 */
export async function serveMeasured(
  test: Pick<TestContext, "after">,
  manifest: string,
  env: Record<string, string> = {},
  files: Record<string, string> = {},
): Promise<Measured> {
  const folder = mkdtempSync(join(tmpdir(), "penstock-measured-"));
  const config = join(folder, "service.yaml");
  const measures = join(folder, "measures");
  for (const [name, text] of Object.entries({ "service.yaml": manifest, "package.json": "{}", ...files })) {
    writeFileSync(join(folder, name), text, { mode: 0o755 });
  }
  const command = [
    process.execPath,
    "--import",
    INSIDE,
    PENSTOCK,
    "serve",
    "--config",
    config,
    "--plugins",
    EXAMPLES,
  ] as const;
  const served = await serve(test, [...command], {
    cwd: folder,
    env: { PATH: `${folder}:${process.env.PATH}`, ...env, PENSTOCK_MEASURES: measures },
  });
  // After the end of the process, which `serve` has asked for.
  test.after(() => rmSync(folder, { recursive: true, force: true }));
  const pid = served.child.pid!;
  const lines = () => (existsSync(measures) ? readFileSync(measures, "utf8").split("\n").slice(0, -1) : []);
  return {
    ...served,
    folder,
    async measure() {
      const before = lines().length;
      served.child.kill("SIGUSR2");
      for (const end = Date.now() + HANG_MS; Date.now() < end; await sleep(10)) {
        const line = lines()[before];
        if (line !== undefined) return JSON.parse(line) as Measure;
      }
      throw new Error("the process did not say what it weighs");
    },
    sockets: () => openSockets(pid),
  };
}

export function median(numbers: readonly number[]): number {
  const sorted = numbers.toSorted((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)]!;
}
