/** What runs in each process of a simulation: the service as `penstock serve` starts it. */
import { start } from "../../../core/app/start.ts";
import { CONFIG } from "../manifest.ts";

export async function run() {
  const { reload, stop } = await start({
    config: CONFIG,
    project: "/simulated",
    env: { SERVICE_CONSOLE_ACCESS_KEY: "the-key-of-the-console" },
    log: { write: (line: string) => simulated.trace(`log ${JSON.parse(line).msg}`) },
  });
  return { reload, stop };
}
