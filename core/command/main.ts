/** The command line: `penstock [serve]`, or another command of the table below. */
import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { parseArgs, parseEnv } from "node:util";
import { inPlainWords, messageOf } from "../lib/errors.ts";
import { suggest } from "../manifest/manifest.ts";
import { type Invocation, Misuse } from "./invocation.ts";

const HELP = `Penstock serves the agents, workflows, tools and memory that a service.yaml declares.

Usage: penstock [command] [options]

Commands
  serve            serve the manifest (the default)
  dev              serve, reload when the manifest changes, and start again when a plugin or the source does
  check            report every problem of the manifest and its plugins, without listening
  eval FILE        ask agents and workflows what FILE says, and compare what they answer
  explain PATH     show a value of the manifest and where it came from, e.g. explain server.port
  routes           list every route with its access class
  reindex          make the indexes of semantic search anew from the stored messages
  backup FILE      copy the SQLite file of the store, also while it is served
  restore FILE     put a backup in the place of the store's file, while it is not served
  export FILE      write all rows of the store as lines of JSON, for any engine; - is standard output
  import FILE      put an export into a store without rows; - is standard input
  migrate          bring a store that an older version wrote to the layout of this one
  vacuum           give the space of deleted rows in the SQLite file back to the disk
  executions list  list the executions that run or wait
  executions end ID    end one of them with an error
  executions retry ID  let the next start take one up again that has stopped its process
  init [DIR]       make a project here or in DIR: a manifest, a typed tool, a test, a Dockerfile
  client           write a TypeScript client for the agents, tools and workflows of the manifest
  build DIR        put Penstock, the manifest and its plugins into a folder that runs elsewhere
  completion SHELL print what makes bash, zsh or fish complete commands and options
  help             show this text
  generate         rewrite generated/ from schemas/ (in a checkout of the source)

Options
  --config FILE    the manifest; default service.yaml (short: -c)
  --plugins DIR    one more folder of plugins; may be given more than once
  --port N         listen on this port, whatever the manifest says (short: -p)
  --host H         listen on this address, whatever the manifest says
  --env-file FILE  variables for the manifest, one NAME=value a line; those that are set already stay
  --record DIR     with serve, dev and eval: write what providers answer into this folder, without keys
  --replay DIR     with serve, dev and eval: answer from this folder; nothing is sent to providers
  --json           with check and eval: the report as JSON, on standard output
  --junit FILE     with eval: write the report as JUnit's XML into this file too
  --template NAME  with init: chat, workflow or rag; default chat
  --from openapi   with init: make tools of an OpenAPI 3 document: init DIR --from openapi FILE
  --out FILE       with client: the file to write; default penstock-client.ts; - is standard output
  --check          with generate and client: write nothing, fail when a file is not what would be written
  --reason TEXT    with executions end: the error that the execution gets
  --user U         with executions end and retry: whose execution, where users have ids of their own
  --help           show this text (short: -h)
  --version        show the version (short: -v)

Chapters of the manual, which a running service shows at /docs
  tutorial.md              from an empty folder to a service that others can use
  reference/manifest.md    every key of service.yaml
  reference/endpoints.md   every endpoint
  troubleshooting.md       messages, why they come, and what to do
  runbook.md               what to watch, and what to do when it breaks
  evals.md, cassettes.md   eval, --record and --replay
  backup.md, storage.md    backup, restore, export, import, migrate and vacuum
  workflows.md             executions
  client.md                client
  getting-started.md       init and build
They are in dist/docs of the package, and in docs of a checkout.
`;

interface Command {
  /** The required words after the command, each with an example. */
  readonly takes?: Readonly<Record<string, string>>;
  /** How many more words are allowed. */
  readonly more?: number;
  run(invocation: Invocation): Promise<number>;
}

const COMMANDS: Record<string, Command> = {
  serve: { run: async (call) => (await import("./serve.ts")).serve(call) },
  dev: { run: async (call) => (await import("./dev.ts")).dev(call) },
  check: { run: async (call) => (await import("./inspect.ts")).check(call) },
  eval: { takes: { FILE: "evals.yaml" }, run: async (call) => (await import("./eval.ts")).runEvalFile(call) },
  explain: { takes: { PATH: "server.port" }, run: async (call) => (await import("./inspect.ts")).explain(call) },
  routes: { run: async (call) => (await import("./inspect.ts")).listRoutes(call) },
  reindex: { run: async (call) => (await import("./reindex.ts")).reindexAll(call) },
  backup: { takes: { FILE: "backup.db" }, run: async (call) => (await import("./backup.ts")).backup(call) },
  restore: { takes: { FILE: "backup.db" }, run: async (call) => (await import("./backup.ts")).restore(call) },
  export: { takes: { FILE: "export.jsonl" }, run: async (call) => (await import("./transfer.ts")).exportStore(call) },
  import: { takes: { FILE: "export.jsonl" }, run: async (call) => (await import("./transfer.ts")).importStore(call) },
  migrate: { run: async (call) => (await import("./upkeep.ts")).migrate(call) },
  vacuum: { run: async (call) => (await import("./upkeep.ts")).vacuum(call) },
  "executions list": { run: onExecutions("executions list") },
  "executions end": { takes: { ID: "refund-1" }, run: onExecutions("executions end") },
  "executions retry": { takes: { ID: "refund-1" }, run: onExecutions("executions retry") },
  init: { more: 2, run: async (call) => (await import("./init.ts")).init(call) },
  client: { run: async (call) => (await import("./client.ts")).client(call) },
  build: { takes: { DIR: "build" }, run: async (call) => (await import("./build.ts")).buildFolder(call) },
  completion: {
    takes: { SHELL: "bash" },
    run: async ({ rest: [shell = ""] }) =>
      (await import("./completion.ts")).completion(shell, Object.keys(COMMANDS), Object.keys(OPTIONS)),
  },
  help: { more: 2, run: help },
  generate: {
    run: async ({ checkOnly }) => {
      const { runCodegen } = await import("../codegen/main.ts");
      return runCodegen(fileURLToPath(new URL("../..", import.meta.url)), checkOnly, (line) => console.log(line));
    },
  },
};

function onExecutions(command: `executions ${"list" | "end" | "retry"}`): Command["run"] {
  return async (call) => (await import("./executions.ts")).executions(command, call);
}

async function help(): Promise<number> {
  process.stdout.write(HELP);
  return 0;
}

const OPTIONS = {
  config: { type: "string", short: "c", default: "service.yaml" },
  plugins: { type: "string", multiple: true, default: [] as string[] },
  port: { type: "string", short: "p" },
  host: { type: "string" },
  help: { type: "boolean", short: "h", default: false },
  version: { type: "boolean", short: "v", default: false },
  check: { type: "boolean", default: false },
  reason: { type: "string" },
  user: { type: "string" },
  "env-file": { type: "string", multiple: true, default: [] as string[] },
  json: { type: "boolean", default: false },
  junit: { type: "string" },
  template: { type: "string" },
  from: { type: "string" },
  record: { type: "string" },
  replay: { type: "string" },
  out: { type: "string" },
} as const;

/** Options that only some commands have. */
const COMMANDS_OF_OPTION = {
  check: ["generate", "client"],
  reason: ["executions end"],
  user: ["executions end", "executions retry"],
  json: ["check", "eval"],
  junit: ["eval"],
  template: ["init"],
  from: ["init"],
  record: ["serve", "dev", "eval"],
  replay: ["serve", "dev", "eval"],
  out: ["client"],
} as const;

/** Runs a command and sets the exit code: 0 for success, 1 for a problem with the manifest or the start, 2 for a wrong command line. */
export async function main(argv: string[]): Promise<void> {
  try {
    const { values, positionals } = parse(argv);
    if (values.help) return void help();
    if (values.version) return void process.stdout.write(`${(await import("../lib/version.ts")).VERSION}\n`);
    const [name, ...rest] = nameFirst(positionals);
    const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
    if (command === undefined) throw new Misuse(`unknown command "${name}"${near(name, Object.keys(COMMANDS), "")}`);
    const takes = Object.entries(command.takes ?? {});
    const [missing] = takes.slice(rest.length);
    if (missing !== undefined)
      throw new Misuse(
        `${name} needs ${/^[AEIOU]/.test(missing[0]) ? "an" : "a"} ${missing[0]}, e.g. penstock ${name} ${missing[1]}`,
      );
    const [surplus] = rest.slice(takes.length + (command.more ?? 0));
    if (surplus !== undefined) throw new Misuse(`${name} takes no "${surplus}"`);
    for (const [option, commands] of Object.entries(COMMANDS_OF_OPTION)) {
      const isGiven = ![undefined, false].includes(values[option as keyof typeof COMMANDS_OF_OPTION] as undefined);
      if (isGiven && !commands.some((each) => each === name))
        throw new Misuse(`--${option} belongs to ${commands.join(" and ")}`);
    }
    const { help: _, version: __, check: checkOnly, port: text, "env-file": envFiles, ...options } = values;
    if (options.record !== undefined && options.replay !== undefined)
      throw new Misuse("--record and --replay exclude each other");
    const port = text === undefined ? undefined : parsePort(text);
    const inherited = { ...process.env };
    for (const file of envFiles) await addVariables(file);
    process.exitCode = await command.run({ ...options, port, rest, envFiles, inherited, checkOnly });
  } catch (error) {
    const hint = error instanceof Misuse ? "Run penstock --help for the commands and options.\n" : "";
    process.stderr.write(`penstock: ${inPlainWords(messageOf(error))}\n${hint}`);
    process.exitCode = error instanceof Misuse ? 2 : 1;
  }
}

/** Adds the variables of a file like `.env`. Variables that are set already take precedence, and so do earlier files. */
async function addVariables(file: string): Promise<void> {
  const text = await readFile(file, "utf8").catch((error) => {
    throw new Error(`--env-file ${file}: ${messageOf(error)}`);
  });
  for (const [name, value] of Object.entries(parseEnv(text))) process.env[name] ??= value;
}

/** Splits off the name of the command, which may be two words. */
function nameFirst([first = "serve", ...rest]: readonly string[]): [string, ...string[]] {
  const group = Object.keys(COMMANDS).filter((name) => name.startsWith(`${first} `));
  if (group.length === 0) return [first, ...rest];
  const [second = "", ...behind] = rest;
  const name = `${first} ${second}`;
  if (group.includes(name)) return [name, ...behind];
  const known = group.map((each) => each.slice(first.length + 1));
  throw new Misuse(`${first} needs one of ${known.join(", ")}${near(second, known, "")}`);
}

function parse(argv: string[]) {
  try {
    return parseArgs({ args: argv, allowPositionals: true, options: OPTIONS });
  } catch (error) {
    const message = messageOf(error);
    const [, unknown] = /^Unknown option '(-[^']*)'/.exec(message) ?? [];
    if (unknown === undefined) throw new Misuse(message);
    const names = Object.keys(OPTIONS);
    throw new Misuse(`unknown option ${unknown}${near(unknown.replace(/^-+/, ""), names, "--")}`);
  }
}

function near(name: string, known: readonly string[], prefix: string): string {
  const meant = suggest(name, known);
  return meant === undefined ? "" : `, did you mean ${prefix}${meant}?`;
}

function parsePort(text: string): number {
  const port = Number(text);
  if (/^\d+$/.test(text) && port <= 65535) return port;
  throw new Misuse(`--port must be a number from 0 to 65535, not "${text}"`);
}
