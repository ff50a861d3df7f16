// Loaded by `--import` into a process that a test measures: on SIGUSR2 it collects its garbage and writes one line to a file.
import { appendFileSync } from "node:fs";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc");

process.on("SIGUSR2", () => {
  // What a finalizer lets go is collected the second time.
  collect();
  setImmediate(() => {
    collect();
    const { rss, heapUsed, external } = process.memoryUsage();
    const { userCPUTime: user, systemCPUTime: system, maxRSS } = process.resourceUsage();
    appendFileSync(
      process.env.PENSTOCK_MEASURES,
      `${JSON.stringify({ rss, peak: maxRSS * 1024, heapUsed, external, user, system })}\n`,
    );
  });
});
