/** Two real processes of one manifest over one database, as long as a test file runs. */
import { rmSync, writeFileSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, type TestContext } from "node:test";
import { PENSTOCK, type Served, serve } from "./command-line.ts";
import { pluginFolder } from "./plugin-folder.ts";
import type { PostgresServer } from "./postgres.ts";

/** What ends with the test file. */
const file = { after } as unknown as Pick<TestContext, "after">;

/** A folder whose files tell the plugins of both processes to wait. */
export async function holdingFolder() {
  const folder = await mkdtemp(join(tmpdir(), "penstock-two-"));
  after(() => rmSync(folder, { recursive: true, force: true }));
  return {
    folder,
    hold: (name: string) => writeFileSync(join(folder, name), ""),
    release: (name: string) => rmSync(join(folder, name)),
  };
}

/** @param server null: nothing is started, and all tests are skipped */
export async function twoProcesses(
  server: PostgresServer | null,
  folder: string,
  { plugins, ...manifest }: { plugins: Record<string, string>; [section: string]: unknown },
) {
  const url = await server?.createDatabase();
  const config = join(folder, "service.yaml");
  writeFileSync(config, JSON.stringify({ name: "Test", version: "1.0.0", store: url, ...manifest }));
  const own = pluginFolder(file, plugins);
  const start = () =>
    serve(file, [process.execPath, PENSTOCK, "serve", "--config", config, "--plugins", own, "--port", "0"]);
  const [one, other] = (server === null ? [] : await Promise.all([start(), start()])) as [Served, Served];
  return { url, start, one, other };
}
