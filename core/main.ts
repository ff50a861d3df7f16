/** The command line: `penstock [serve] | check | explain PATH | generate | routes` (decision 57). */
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { messageOf } from "./errors.ts";
import type { Invocation } from "./invocation.ts";

const HELP = `Penstock serves the agents, workflows, tools and memory that a service.yaml declares.

Usage: penstock [command] [options]

Commands
  serve            serve the manifest (the default)
  check            report every problem of the manifest and its plugins, without listening
  explain PATH     show a value of the manifest and where it came from, e.g. explain server.port
  routes           list every route with its access class
  generate         rewrite generated/ from schemas/ (in a checkout of the source)

Options
  --config FILE    the manifest; default service.yaml
  --plugins DIR    one more folder of plugins; may be given more than once
  --port N         listen on this port, whatever the manifest says
  --host H         listen on this address, whatever the manifest says
  --help           show this text
  --version        show the version
`;

const COMMANDS: Record<string, (invocation: Invocation) => Promise<number>> = {
  serve: async (invocation) => (await import("./serve.ts")).serve(invocation),
  check: async (invocation) => (await import("./inspect.ts")).check(invocation),
  explain: async (invocation) => (await import("./inspect.ts")).explain(invocation),
  routes: async (invocation) => (await import("./inspect.ts")).routes(invocation),
  generate: async ({ rest }) => {
    const { run } = await import("./codegen/main.ts");
    return run(fileURLToPath(new URL("..", import.meta.url)), rest.includes("--check"), (line) => console.log(line));
  },
};

/** Runs a command and sets the exit code: 0 done, 1 a problem with the manifest or the start, 2 a mistake in the call. */
export async function main(argv: string[]): Promise<void> {
  try {
    const { values, positionals } = parseArgs({
      args: argv,
      allowPositionals: true,
      options: {
        config: { type: "string", short: "c", default: "service.yaml" },
        plugins: { type: "string", multiple: true, default: [] },
        port: { type: "string", short: "p" },
        host: { type: "string" },
        help: { type: "boolean", short: "h", default: false },
        version: { type: "boolean", default: false },
        check: { type: "boolean", default: false },
      },
    });
    const [name = "serve", ...rest] = positionals;
    if (values.help) return void process.stdout.write(HELP);
    if (values.version) return void process.stdout.write(`${(await import("./version.ts")).VERSION}\n`);
    const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
    if (command === undefined) return misuse(`unknown command "${name}"`);
    const port = values.port === undefined ? undefined : Number(values.port);
    if (port !== undefined && !(Number.isInteger(port) && port >= 0 && port <= 65535)) {
      return misuse(`--port must be a number from 0 to 65535, not "${values.port}"`);
    }
    if (values.check) rest.push("--check");
    process.exitCode = await command({ config: values.config, plugins: values.plugins, port, host: values.host, rest });
  } catch (error) {
    if ((error as { code?: string }).code?.startsWith("ERR_PARSE_ARGS") === true) return misuse(messageOf(error));
    process.stderr.write(`penstock: ${messageOf(error)}\n`);
    process.exitCode = 1;
  }
}

function misuse(message: string): void {
  process.stderr.write(`penstock: ${message}\nRun penstock --help for the commands and options.\n`);
  process.exitCode = 2;
}
