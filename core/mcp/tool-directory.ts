/** All tools of a service by name: those of the manifest, and those of foreign MCP servers. */
import type { SourceReader } from "../agents/run/sources.ts";
import { unavailable } from "../lib/errors.ts";
import type { JsonSchema } from "../lib/json-schema.ts";
import type { Manifest, StepManifest } from "../manifest/manifest.ts";
import { clientOf } from "../manifest/mcp-names.ts";
import type { NamedMeters, ToolMeter } from "../observability/metrics/meters.ts";
import type { ConfiguredCall, Tool } from "../tools/tool.ts";
import { allSteps } from "../workflows/definition/pinned.ts";
import type { McpClient } from "./client.ts";
import type { McpClients } from "./clients.ts";

/* The tools that a manifest names. */

/** In agents, steps of workflows and MCP servers. Tools that an expression computes are not among them. */
function namedTools({ agents, workflows, mcp }: Manifest): Set<string> {
  const ofAgents = Object.values(agents).flatMap(({ tools }) =>
    tools.map((item) => (typeof item === "string" ? item : item.use)),
  );
  const ofSteps = Object.values(workflows).flatMap((workflow) => allSteps(workflow).flatMap(toolsIn));
  const ofServers = Object.values(mcp.servers).flatMap(({ tools }) => tools);
  return new Set([...ofAgents, ...ofSteps, ...ofServers]);
}

const toolsIn = ({ andThen, andTap }: StepManifest): string[] =>
  [andThen, andTap].flatMap((work) => (work !== undefined && "tool" in work ? (work.tool ?? []) : []));

/* A tool of a foreign MCP server as a tool of this service, whether the server has been reached yet or not. */

/** For a tool that its server has not described yet. */
const ANYTHING: JsonSchema = { type: "object" };

class ImportedTool implements Tool {
  readonly name: string;
  readonly tags: readonly string[];
  readonly approval = false as const;
  readonly timeout: number;
  readonly config = {};
  readonly changes = true;
  readonly meter: ToolMeter | undefined;
  readonly #client: McpClient;
  /** Without the prefix of the client. */
  readonly #short: string;

  constructor(client: McpClient, short: string, meter?: ToolMeter) {
    this.name = `${client.name}_${short}`;
    this.tags = [client.name];
    this.timeout = client.timeout;
    this.#client = client;
    this.#short = short;
    this.meter = meter;
  }

  /** As its server has listed it last. */
  get #tool() {
    return this.#client.tools.get(this.#short);
  }

  get description(): string {
    return this.#tool?.description ?? "";
  }

  get parameters(): JsonSchema {
    return this.#tool?.parameters ?? ANYTHING;
  }

  get shown(): object | undefined {
    return this.#tool?.shown;
  }

  get available(): boolean {
    return this.#client.connected && this.#tool !== undefined;
  }

  validate(input: unknown): string | null {
    return this.#tool?.validate(input) ?? null;
  }

  run(input: unknown, call: ConfiguredCall): Promise<unknown> {
    return this.#client.call(this.#short, input as Record<string, unknown>, call);
  }
}

interface DirectoryOptions {
  readonly clients: McpClients;
  readonly meters: NamedMeters<ToolMeter>;
}

/**
 * The tools of MCP servers come and go while the service runs. A tool that the manifest names is there from the beginning. While a
 * server has never answered, `get` finds any name with its prefix, because the tool may exist.
 */
export class ToolDirectory extends Map<string, Tool> {
  readonly #clients = new Map<string, McpClient>();
  readonly #meters: NamedMeters<ToolMeter>;
  /** Tools that the manifest names: they stay, whatever their servers list. */
  readonly #named = new Set<string>();
  readonly #listeners: (() => void)[] = [];
  readonly #releases: (() => Promise<void>)[] = [];

  constructor(tools: ReadonlyMap<string, Tool>, manifest: Manifest, { clients: shared, meters }: DirectoryOptions) {
    super(tools);
    this.#meters = meters;
    const clients = Object.entries(manifest.mcp.clients);
    if (clients.length === 0) return;
    for (const [name, settings] of clients) {
      const { client, release } = shared.take(name, settings, () => this.#update(name));
      this.#clients.set(name, client);
      this.#releases.push(release);
    }
    for (const name of namedTools(manifest)) {
      const client = this.#clientOf(name);
      if (client === undefined) continue;
      this.#named.add(name);
      meters.declare([name]);
      this.#add(client, name.slice(client.name.length + 1));
    }
    // One that was connected before lists its tools at once.
    for (const client of this.#clients.values()) if (client.wasKnown) this.#update(client.name);
  }

  /** Starts to connect to every server, without waiting for it. */
  begin(): void {
    for (const client of this.#clients.values()) void client.connect();
  }

  async close(): Promise<void> {
    await Promise.all(this.#releases.splice(0).map((release) => release()));
  }

  /** Calls a listener whenever tools have been added, changed or removed. */
  onChange(listener: () => void): void {
    this.#listeners.push(listener);
  }

  /** Texts of the servers, for agents. */
  get sources(): SourceReader {
    return {
      read: async (client, request, caller) => {
        const known = this.#clients.get(client);
        if (known === undefined) throw unavailable(`there is no MCP client ${JSON.stringify(client)}`);
        return known.texts.read(request, caller);
      },
    };
  }

  override get(name: string): Tool | undefined {
    const known = super.get(name);
    if (known !== undefined || this.#clients.size === 0) return known;
    const client = this.#clientOf(name);
    return client === undefined || client.wasKnown
      ? undefined
      : this.#toolOf(client, name.slice(client.name.length + 1));
  }

  #clientOf(tool: string): McpClient | undefined {
    const client = clientOf(tool, [...this.#clients.keys()]);
    return client === undefined ? undefined : this.#clients.get(client);
  }

  #update(name: string): void {
    const client = this.#clients.get(name)!;
    for (const [tool] of this) {
      const isTheirs = this.#clientOf(tool) === client;
      if (isTheirs && !this.#named.has(tool) && !client.tools.has(tool.slice(name.length + 1))) this.delete(tool);
    }
    for (const short of client.tools.keys()) if (!this.has(`${name}_${short}`)) this.#add(client, short);
    for (const listener of this.#listeners) listener();
  }

  #add(client: McpClient, short: string): void {
    const tool = this.#toolOf(client, short);
    this.set(tool.name, tool);
  }

  #toolOf(client: McpClient, short: string): ImportedTool {
    return new ImportedTool(client, short, this.#meters.of(`${client.name}_${short}`));
  }
}
