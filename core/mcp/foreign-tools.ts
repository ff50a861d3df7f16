/** The tools that a foreign MCP server lists, as models and the API see them. */
import type { Logger } from "pino";
import { foreignSchema, type PrepareSchema } from "../client-schema/schemas.ts";
import { isObject } from "../lib/is-object.ts";
import type { JsonSchema } from "../lib/json-schema.ts";
import { exposedName } from "../manifest/mcp-names.ts";
import type { GivenTool, ListedTool } from "./connection.ts";

/** Compiling the schemas of many tools is interrupted after this time, so that requests are served in between. */
const SCHEMA_SLICE_MS = 8;
/** Of one server; the rest is left out. */
const MAX_TOOLS = 500;

/** A tool of the server, as models and the API see it. */
export interface ForeignTool {
  /** The name that the server uses. */
  readonly name: string;
  readonly description: string;
  readonly parameters: JsonSchema;
  readonly shown: object;
  /** Every problem of an input joined by `; `, or null when it fits. */
  validate(input: unknown): string | null;
}

export class ForeignTools {
  readonly #prepare: PrepareSchema;
  readonly #logger: Logger;
  /** From the last list, by their names in this service. */
  byName: ReadonlyMap<string, ForeignTool> = new Map();
  /** Whether there has been a list. */
  wasListed = false;
  /** Tools that were left out, with their place in the list. */
  readonly #reported = new Set<string>();

  constructor(prepare: PrepareSchema, logger: Logger) {
    this.#prepare = prepare;
    this.#logger = logger;
  }

  /** Names are changed to the characters that models accept. Of two tools with the same name then, the first one is kept. */
  async replace(listed: readonly GivenTool[]): Promise<void> {
    const tools = new Map<string, ForeignTool>();
    let since = performance.now();
    for (const [index, tool] of listed.slice(0, MAX_TOOLS).entries()) {
      if (performance.now() - since > SCHEMA_SLICE_MS) {
        await new Promise(setImmediate);
        since = performance.now();
      }
      const problem = problemOf(tool, tools);
      if (problem === null) tools.set(exposedName((tool as ListedTool).name), this.#foreignTool(tool as ListedTool));
      else this.#warnOnce(`${index}: ${nameOf(tool)}`, nameOf(tool), problem);
    }
    if (listed.length > MAX_TOOLS)
      this.#logger.warn({ left: listed.length - MAX_TOOLS }, "some tools of the MCP server are left out");
    this.byName = tools;
    this.wasListed = true;
  }

  /** The list is read again and again: a tool that stays malformed is reported once. */
  #warnOnce(key: string, tool: string, problem: string): void {
    if (this.#reported.has(key)) return;
    if (this.#reported.size >= MAX_TOOLS) this.#reported.clear();
    this.#reported.add(key);
    this.#logger.warn({ tool }, `a tool of the MCP server is left out: ${problem}`);
  }

  #foreignTool({ name, description, inputSchema, shown }: ListedTool): ForeignTool {
    const known = this.byName.get(exposedName(name));
    const same = known?.description === description && JSON.stringify(known.parameters) === JSON.stringify(inputSchema);
    if (same && known.name === name) return { ...known, shown };
    const schema = foreignSchema(this.#prepare, this.#logger, name, inputSchema as object, "inputSchema");
    const parameters = inputSchema as JsonSchema;
    return { name, description, parameters, shown, validate: (input) => schema.problems(input) };
  }
}

/** Of a name in the log: servers choose how long they are. */
const MAX_NAMED = 128;

const nameOf = ({ name }: GivenTool): string => (typeof name === "string" ? name.slice(0, MAX_NAMED) : "(no name)");

/** Why a tool cannot be used, or null. */
function problemOf({ name, description, inputSchema }: GivenTool, taken: ReadonlyMap<string, unknown>): string | null {
  if (typeof name !== "string") return "its name is not text";
  const exposed = exposedName(name);
  if (exposed === "" || exposed.length > MAX_NAMED)
    return "its name cannot be used: it must have 1 to 128 letters, digits or _-";
  if (taken.has(exposed)) return `another tool is ${JSON.stringify(exposed)} already`;
  if (typeof description !== "string") return "its description is not text";
  if (!isObject(inputSchema) || inputSchema.type !== "object")
    return 'its inputSchema is not a schema of type "object"';
  return null;
}
