/**
 * `npm run conformance`: the conformance suite of the Model Context Protocol against an MCP server of Penstock, and against its client of
 * foreign servers, in the revisions that it knows. It is fetched from the npm registry, with a Node.js that it runs on, and kept in
 * node_modules/.cache. Exits with 1 when something fails that is not judged below.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fetchPackages, newNode } from "../support/fetched.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { reload } from "../support/reload.ts";
import { manifestWith, startService } from "../support/service.ts";
import { PLUGINS, TOOLS } from "./tools.ts";

const SUITE = "0.2.0-alpha.12";
const REVISIONS = ["2025-06-18", "2025-11-25", "2026-07-28"];

/** Without those of `auth/`: foreign servers get the headers of the manifest, or the token of a user, and nobody is here for OAuth in a browser. */
const CLIENT_SCENARIOS = [
  "initialize",
  "tools_call",
  "elicitation-sep1034-client-defaults",
  "sse-retry",
  "request-metadata",
  "sep-2322-client-request-state",
  "http-standard-headers",
  "http-custom-headers",
  "http-invalid-tool-headers",
  "json-schema-ref-no-deref",
  "json-schema-2020-12-preservation",
];

/** What fails for a reason: patterns of `SCENARIO CHECK`. */
const JUDGED: [RegExp, string][] = [
  [
    /^server-(resources|prompts|completion|sep-2164)-/,
    "servers of Penstock have tools, and no resources, prompts or completion",
  ],
  [
    /^server-caching .*-(prompts|resources)-/,
    "servers of Penstock have tools, and no resources, prompts or completion",
  ],
  [/^server-(logging-set-level|tools-call-with-logging) /, "servers of Penstock send no log: it has a door of its own"],
  [/^server-(tools-call-(sampling|elicitation)|elicitation-|input-required-)/, "tools ask nothing of clients"],
  [
    /^server-server-stateless .*-(undeclared-capability|missing-capability|independent-requests)/,
    "tools ask nothing of clients",
  ],
  [/^server-server-sse-polling /, "streams are not resumed: a call that lost its client is cancelled"],
  [/^elicitation-/, "nobody is here to answer a foreign server: it is told so"],
  [/^sep-2322-/, "nobody is here to answer a foreign server: it is told so"],
  [/^http-custom-headers .*-omit-null/, "input that its schema does not allow is refused before it is sent"],
  [/^sse-retry /, "a call whose stream breaks is not sent again: it may have had its effect"],
];

const node = newNode();
const modules = fetchPackages(`conformance-${SUITE}`, `@modelcontextprotocol/conformance@${SUITE}`);
const suite = join(modules, "@modelcontextprotocol/conformance/dist/index.js");

interface Check {
  status: "SUCCESS" | "FAILURE" | "WARNING" | "SKIPPED" | "INFO";
  id: string;
  errorMessage?: string;
}

/** The checks of each scenario. */
async function run(args: string[]): Promise<Map<string, Check[]>> {
  const out = mkdtempSync(join(tmpdir(), "conformance-"));
  const child = spawn(node, [suite, ...args, "--timeout", "30000", "-o", out], { stdio: "ignore" });
  await once(child, "close");
  const scenarios = new Map<string, Check[]>();
  for (const file of readdirSync(out, { recursive: true, encoding: "utf8" }).sort()) {
    if (!file.endsWith("checks.json")) continue;
    const scenario = dirname(file).replace(/-\d{4}-\d\d-\d\dT.*$/, "");
    scenarios.set(scenario, JSON.parse(readFileSync(join(out, file), "utf8")));
  }
  rmSync(out, { recursive: true });
  return scenarios;
}

let unjudged = 0;

function print(title: string, scenarios: ReadonlyMap<string, Check[]>): void {
  const all = [...scenarios].flatMap(([scenario, checks]) => checks.map((check) => ({ scenario, ...check })));
  const count = (status: Check["status"]) => all.filter((check) => check.status === status).length;
  const wrong = all.filter(({ status }) => status === "FAILURE" || status === "WARNING");
  const reasons = new Map<string, Set<string>>();
  for (const { scenario, id, errorMessage = "" } of wrong) {
    const judged = JUDGED.find(([pattern]) => pattern.test(`${scenario} ${id}`))?.[1];
    if (judged === undefined) unjudged++;
    const reason = judged ?? `NOT JUDGED: ${id}: ${errorMessage.slice(0, 200)}`;
    reasons.set(reason, (reasons.get(reason) ?? new Set()).add(scenario));
  }
  console.log(
    `${title}: ${scenarios.size} scenarios, ${count("SUCCESS")} checks passed, ${wrong.length} not, ${count("SKIPPED")} skipped`,
  );
  for (const [reason, those] of reasons) console.log(`  ${reason}\n    ${[...those].join(", ")}`);
}

const ends: (() => unknown)[] = [];
const test = { after: (end: () => unknown) => void ends.push(end) };
try {
  const tools = Object.fromEntries(TOOLS.map((name) => [name, { use: name }]));
  const manifest = (description: string) =>
    manifestWith(
      {},
      {
        tools: { ...tools, changes: { use: "add", description } },
        mcp: { servers: { suite: { tools: [...TOOLS, "changes"] } } },
      },
    );
  const service = await startService(test, manifest("0"), { plugins: [pluginFolder(test, PLUGINS)] });
  let changes = 0;
  // The tool that the suite calls to have the list changed: it runs in this process.
  Object.assign(globalThis, { changeTheTools: () => void reload(service, manifest(`${++changes}`)) });
  for (const revision of REVISIONS) {
    const url = `${service.url}/mcp/suite/mcp`;
    print(`server, ${revision}`, await run(["server", "--url", url, "--suite", "all", "--spec-version", revision]));
  }
  const client = `${process.execPath} --import tsx ${join("test", "conformance", "client.ts")}`;
  for (const revision of REVISIONS) {
    const checks = new Map<string, Check[]>();
    // One after the other: each starts a Penstock.
    for (const scenario of CLIENT_SCENARIOS)
      for (const known of await run([
        "client",
        "--command",
        client,
        "--scenario",
        scenario,
        "--spec-version",
        revision,
      ]))
        checks.set(...known);
    print(`client, ${revision}`, checks);
  }
} finally {
  for (const end of ends) await end();
}
console.log(unjudged === 0 ? "as it should be" : `${unjudged} checks are not judged`);
process.exit(unjudged === 0 ? 0 : 1);
