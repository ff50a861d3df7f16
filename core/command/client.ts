/** The command `client`: writes one TypeScript file with which programs call this service. */
import { readFileSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import type { Service } from "../app/service.ts";
import { whyUnreadable } from "../manifest/load.ts";
import { clientOf } from "../manifest/mcp-names.ts";
import { CLIENT_MARK, clientText } from "../typed-client/client-file.ts";
import { loadGenerator } from "../typed-client/generator.ts";
import { type ClientNames, workflowSchemas } from "../typed-client/names.ts";
import { describeWorkflow } from "../workflows/definition/describe.ts";
import { inspect, printIssues } from "./inspect.ts";
import { type Invocation, Misuse } from "./invocation.ts";

const FILE = "penstock-client.ts";
const STANDARD_OUTPUT = "-";

/** Exit code 1 when the manifest has errors, or with `--check` when the file is out of date. */
export async function client(invocation: Invocation): Promise<number> {
  const { config, checkOnly, out = FILE } = invocation;
  if (checkOnly && out === STANDARD_OUTPUT) throw new Misuse("--check needs a file to compare: --out FILE");
  // Fails early, before the plugins are loaded, which takes longer.
  if (!checkOnly) requireOwn(out);
  const generator = loadGenerator([dirname(resolve(config)), process.cwd()]);
  return inspect(invocation, async ({ issues, service }) => {
    if (service === null) {
      printIssues(issues);
      return 1;
    }
    const document = JSON.parse(String((await service.documentation()).openapi().body)) as object;
    const text = await clientText(document, clientNames(service), generator);
    if (checkOnly) return compare(out, text, config);
    await write(out, text);
    return 0;
  });
}

function clientNames({ manifest, agents, tools }: Service): ClientNames {
  const workflows = new Map(
    Object.entries(manifest.workflows).map(([id, each]) => [id, describeWorkflow(id, each).detail("idle")]),
  );
  // Tools of MCP servers are known only while the service runs; client tools run in the program that reads the agent's stream.
  const servers = Object.keys(manifest.mcp.clients);
  const own = [...tools.values()].filter(
    ({ name, client }) => client !== true && clientOf(name, servers) === undefined,
  );
  return {
    agents: [...agents.keys()],
    tools: new Map(own.map(({ name, parameters }) => [name, parameters])),
    toolPrefixes: servers.map((name) => `${name}_`),
    workflows: new Map(
      [...workflows].map(([id, each]) => [id, workflowSchemas(each, (inner) => workflows.get(inner))]),
    ),
  };
}

function read(file: string): string | null {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw new Error(`${file}: ${whyUnreadable(error, "file")}`);
  }
}

function requireOwn(file: string): void {
  const found = file === STANDARD_OUTPUT ? null : read(file);
  if (found !== null && !found.startsWith(CLIENT_MARK))
    throw new Error(`${file} is not a client that this command has written: choose another name, or remove it`);
}

function compare(file: string, text: string, config: string): number {
  const found = read(file);
  if (found === text) return 0;
  const problem = found === null ? "is not there" : `is not the client of ${config}`;
  process.stderr.write(`${file} ${problem}: write it with penstock client --out ${file}\n`);
  return 1;
}

async function write(file: string, text: string): Promise<void> {
  if (file === STANDARD_OUTPUT) return void process.stdout.write(text);
  // An unchanged file is not written, so that nothing is rebuilt.
  if (read(file) !== text) {
    await mkdir(dirname(resolve(file)), { recursive: true });
    await writeFile(file, text);
  }
  process.stdout.write(`${file} is the client. What it imports: npm install openapi-fetch\n`);
}
