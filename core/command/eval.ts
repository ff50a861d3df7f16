/** The command `eval`: runs the cases of a file with the agents and workflows of a manifest, and compares the answers. */
import { open, writeFile } from "node:fs/promises";
import { type Booted, boot } from "../app/boot.ts";
import { openCassettes } from "../app/cassettes.ts";
import { loadEvals } from "../eval/load.ts";
import { formatJUnit, formatTable } from "../eval/report.ts";
import { type CaseReport, runEvals } from "../eval/run.ts";
import { inPlainWords, messageOf } from "../lib/errors.ts";
import { hasErrors, type Issue } from "../manifest/manifest.ts";
import { LogText } from "../observability/log-text.ts";
import { createLogger } from "../observability/logger.ts";
import { printIssues } from "./inspect.ts";
import type { Invocation } from "./invocation.ts";
import { endWith, SAME_SIGNAL_WINDOW_MS } from "./signals.ts";

const PASSED = 0;
const FAILED = 1;
/** Exit code when no case ran, because the file, the manifest or a folder is wrong. */
const NOT_RUN = 2;
/** How long to wait for the ends of answers that are being recorded. */
const RECORDING_TIMEOUT_MS = 5_000;

export async function runEvalFile(invocation: Invocation): Promise<number> {
  return endWith(
    await evalFile(invocation).catch((error) => {
      process.stderr.write(`penstock: ${inPlainWords(messageOf(error))}\n`);
      return NOT_RUN;
    }),
  );
}

/** The service is made as `serve` makes it, but does not listen and opens no store: what it keeps ends with it. */
async function evalFile(invocation: Invocation): Promise<number> {
  const { config, plugins, rest, json, junit, record, replay } = invocation;
  const [path] = rest as [string];
  // Checked before the cases run, which may cost money.
  if (junit !== undefined) await (await open(junit, "a")).close();
  const text = new LogText();
  const logger = createLogger("error", { destination: process.stderr, text });
  const cassettes = await openCassettes({ record, replay }, logger);
  const booted = await boot({
    config,
    plugins,
    env: process.env,
    logger,
    text,
    cassettes,
    vectors: "exact",
    providers: "all",
  });
  try {
    const loaded = await loadEvals(path, known(booted));
    const issues = [...booted.issues, ...loaded.issues];
    const { service, models } = booted;
    if (service === null || models === null || hasErrors(loaded.issues)) {
      reportIssues(issues, json === true);
      return NOT_RUN;
    }
    printIssues(issues);
    await booted.begin();
    const reports = await runEvals(loaded, { service, models, logger, signal: stopSignal() });
    await cassettes?.idle?.(RECORDING_TIMEOUT_MS);
    if (junit !== undefined) await writeFile(junit, formatJUnit(loaded.file, reports));
    const passed = reports.every((report) => report.passed);
    process.stdout.write(json === true ? jsonReport({ passed, cases: reports }) : formatTable(reports));
    return passed ? PASSED : FAILED;
  } finally {
    await booted.close();
  }
}

/** The first signal aborts the cases; a second one ends the process at once, because a plugin may be blocking. */
function stopSignal(): AbortSignal {
  const stop = new AbortController();
  let begun = 0;
  const onSignal = (signal: NodeJS.Signals) => {
    if (!stop.signal.aborted) begun = performance.now();
    else if (performance.now() - begun > SAME_SIGNAL_WINDOW_MS) process.exit(FAILED);
    stop.abort(new Error(`stopped by ${signal}`));
  };
  process.on("SIGINT", onSignal).on("SIGTERM", onSignal);
  return stop.signal;
}

/** The names in the manifest, even if it has errors. */
function known({ loaded, models }: Booted): Parameters<typeof loadEvals>[1] {
  const { agents = {}, workflows = {} } = loaded.validSubset ?? {};
  return {
    agents: Object.keys(agents),
    workflows: Object.keys(workflows),
    requireModel: (name) => void models?.chain([name]),
  };
}

function reportIssues(issues: readonly Issue[], json: boolean): void {
  if (json) process.stdout.write(jsonReport({ passed: false, issues, cases: [] }));
  else printIssues(issues);
}

const jsonReport = (report: {
  readonly passed: boolean;
  readonly issues?: readonly Issue[];
  readonly cases: readonly CaseReport[];
}): string => `${JSON.stringify(report, null, 2)}\n`;
