/** The command line of the bench. */
import { parseArgs } from "node:util";
import { availableTools, type Tool } from "./load.ts";

export interface Options {
  scenarios: string[];
  seconds: number;
  rounds: number;
  connections: number;
  transport: "auto" | "uws" | "node";
  entry: string;
  tools: Tool[];
  json: boolean;
  /** Requests per second of the open loop on the real path. */
  rate: number;
  /** Words that select rows of the real path by name; empty for all. */
  only: string[];
  /** Duration in minutes, or null. */
  soak: number | null;
  /** Folder for CPU profiles, or null. */
  profile: string | null;
  /** The commit beside which the ratchet measures every row, or null for that of its line. */
  reference: string | null;
  help: boolean;
}

export const USAGE = `npm run bench -- [SCENARIO ...] [options]
npm run bench -- ratchet [ROW ...] [options]     each row beside its commit in bench/reference.json

  --seconds N        length of one run of load (5)
  --rounds N         runs per server and tool; the median is printed (3)
  --connections N    keep-alive connections (64)
  --transport NAME   auto, uws or node (auto)
  --tool NAME        autocannon or wrk; default: both where wrk is installed
  --entry FILE       what is started: core/penstock.js, or dist/penstock.js after npm run build
  --json             one JSON line per result on stdout, everything else on stderr
  --reference REF    ratchet: beside this commit instead
  --rate N           upstream: requests a second of the open loop (500)
  --only WORDS       upstream: rows whose name has one of these words in it, by commas, and what they are compared with
  --soak MINUTES     all scenarios mixed, resident memory over time, nothing else
  --profile DIR      write a CPU profile per HTTP scenario and print where the time goes`;

const TRANSPORTS = ["auto", "uws", "node"] as const;

function positive(name: string, text: string): number {
  const value = Number(text);
  if (!(value > 0)) throw new Error(`--${name} must be a number above 0`);
  return value;
}

function oneOf<const T extends string>(name: string, text: string, known: readonly T[]): T {
  const found = known.find((value) => value === text);
  if (found === undefined) throw new Error(`--${name} must be one of ${known.join(", ")}`);
  return found;
}

/** Throws an error with advice. */
export function readOptions(args: readonly string[]): Options {
  const { values, positionals } = parseArgs({
    args: [...args],
    allowPositionals: true,
    options: {
      seconds: { type: "string", default: "5" },
      rounds: { type: "string", default: "3" },
      connections: { type: "string", default: "64" },
      transport: { type: "string", default: "auto" },
      entry: { type: "string", default: "core/penstock.js" },
      tool: { type: "string" },
      json: { type: "boolean", default: false },
      rate: { type: "string", default: "500" },
      only: { type: "string", default: "" },
      soak: { type: "string" },
      profile: { type: "string" },
      reference: { type: "string" },
      help: { type: "boolean", default: false },
    },
  });
  const tools = availableTools();
  return {
    scenarios: positionals,
    // wrk accepts only whole seconds.
    seconds: Math.ceil(positive("seconds", values.seconds)),
    rounds: Math.ceil(positive("rounds", values.rounds)),
    connections: Math.ceil(positive("connections", values.connections)),
    transport: oneOf("transport", values.transport, TRANSPORTS),
    entry: values.entry,
    tools: values.tool === undefined ? tools : [oneOf("tool", values.tool, tools)],
    json: values.json,
    rate: positive("rate", values.rate),
    only: values.only.split(",").filter((word) => word !== ""),
    soak: values.soak === undefined ? null : positive("soak", values.soak),
    profile: values.profile ?? null,
    reference: values.reference ?? null,
    help: values.help,
  };
}
