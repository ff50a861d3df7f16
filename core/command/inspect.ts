/** The commands that read the manifest and do not listen: `check`, `explain`, `routes`. */
import { type Booted, boot } from "../app/boot.ts";
import { routeStates } from "../app/service.ts";
import { inPlainWords } from "../lib/errors.ts";
import { formatExplained } from "../manifest/explain.ts";
import { formatIssue, hasErrors, type Issue } from "../manifest/manifest.ts";
import { createLogger } from "../observability/logger.ts";
import type { Invocation } from "./invocation.ts";

/** Prints errors and warnings to standard error, one per line; with colours only on a terminal. */
export function printIssues(issues: readonly Issue[]): void {
  const isColoured = process.stderr.isTTY && !process.env.NO_COLOR;
  for (const issue of issues) {
    const [label, colour] = issue.severity === "warning" ? ["warning: ", 33] : ["", 31];
    const text = label + inPlainWords(formatIssue(issue));
    process.stderr.write(isColoured ? `\u001b[${colour}m${text}\u001b[0m\n` : `${text}\n`);
  }
}

/** Boots the manifest without listening, and returns the exit code from `look`. */
export async function inspect(
  invocation: Invocation,
  look: (booted: Booted) => number | Promise<number>,
): Promise<number> {
  const logger = createLogger("silent");
  const { config, plugins } = invocation;
  const booted = await boot({ config, plugins, env: process.env, logger });
  try {
    return await look(booted);
  } finally {
    await booted.close();
  }
}

/** Exit code 1 when anything would prevent the boot. */
export function check(invocation: Invocation): Promise<number> {
  return inspect(invocation, ({ issues, service }) => {
    const valid = service !== null;
    if (invocation.json === true) process.stdout.write(`${JSON.stringify({ valid, issues }, null, 2)}\n`);
    else {
      printIssues(issues);
      const unknown = issues.find(({ path, message }) => path.includes(".") && message.startsWith("unknown key"));
      if (unknown) process.stderr.write(`see docs/reference/manifest.md: ${unknown.path.split(/\W/, 1)}\n`);
      if (valid) process.stdout.write(`${invocation.config} is valid\n`);
    }
    return valid ? 0 : 1;
  });
}

/** Prints a value and its origin. Exit code 1 when the path does not exist. */
export function explain(invocation: Invocation): Promise<number> {
  return inspect(invocation, ({ loaded, issues }) => {
    const explained = loaded.explain(invocation.rest[0] as string);
    const output = explained.problem === undefined ? process.stdout : process.stderr;
    // A manifest with errors is explained as written, without defaults: the errors are printed so that this is no surprise.
    if (hasErrors(issues)) printIssues(issues);
    output.write(`${formatExplained(explained)}\n`);
    return explained.problem === undefined ? 0 : 1;
  });
}

/** Wide enough for the service's own routes, so that the lists of two manifests have the same columns. */
const ROUTE_WIDTH = 60;

/** Prints every route and socket with its access class, by path. */
export function listRoutes(invocation: Invocation): Promise<number> {
  return inspect(invocation, ({ issues, service }) => {
    if (service === null) {
      printIssues(issues);
      return 1;
    }
    const rows = routeStates(service);
    const width = Math.max(ROUTE_WIDTH, ...rows.map(({ path }) => path.length));
    for (const { method, path, access } of rows)
      process.stdout.write(`${method.padEnd(7)} ${path.padEnd(width)} ${access}\n`);
    return 0;
  });
}
