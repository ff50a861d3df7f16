/** The commands that look and do not listen: `check`, `explain`, `routes`. */
import { accessOf } from "./auth/access.ts";
import { type Booted, boot } from "./boot.ts";
import type { Invocation } from "./invocation.ts";
import { formatIssue, type Issue } from "./manifest/issues.ts";
import { createLogger } from "./observability/logger.ts";

/** Errors and warnings to standard error, one line each; colours only on a terminal. */
export function printIssues(issues: readonly Issue[]): void {
  const colour = process.stderr.isTTY && !process.env.NO_COLOR;
  for (const issue of issues) {
    const word = issue.severity === "warning" ? "warning: " : "";
    const text = `${word}${formatIssue(issue)}`;
    process.stderr.write(`${colour ? `\u001b[${issue.severity === "error" ? 31 : 33}m${text}\u001b[0m` : text}\n`);
  }
}

async function inspect(invocation: Invocation, look: (booted: Booted) => number): Promise<number> {
  const logger = createLogger("silent");
  const { config, plugins } = invocation;
  const booted = await boot({ config, plugins, env: process.env, logger });
  try {
    return look(booted);
  } finally {
    await booted.host.close();
  }
}

/** Exit code 1 when anything would stop the boot. */
export function check(invocation: Invocation): Promise<number> {
  return inspect(invocation, ({ issues, service }) => {
    printIssues(issues);
    if (service === null) return 1;
    process.stdout.write(`${invocation.config} is valid\n`);
    return 0;
  });
}

export function explain(invocation: Invocation): Promise<number> {
  const [path] = invocation.rest;
  if (path === undefined) throw new Error("explain needs a path, e.g. penstock explain server.port");
  return inspect(invocation, ({ loaded, issues }) => {
    const { entries, problem } = loaded.explain(path);
    if (problem !== undefined) {
      printIssues(issues);
      process.stderr.write(`${problem}\n`);
      return 1;
    }
    for (const entry of entries)
      process.stdout.write(`${entry.path} = ${JSON.stringify(entry.value)}  # ${entry.source}\n`);
    return 0;
  });
}

export function routes(invocation: Invocation): Promise<number> {
  return inspect(invocation, ({ issues, service }) => {
    if (service === null) {
      printIssues(issues);
      return 1;
    }
    const rows = [...service.routes].sort((a, b) =>
      a.path === b.path ? (a.method < b.method ? -1 : 1) : a.path < b.path ? -1 : 1,
    );
    for (const { method, path, group } of rows) {
      process.stdout.write(
        `${method.padEnd(7)} ${path.padEnd(34)} ${accessOf(service.manifest.auth.mode as "none", group)}\n`,
      );
    }
    return 0;
  });
}
