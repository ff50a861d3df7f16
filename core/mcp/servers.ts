/** The MCP servers of the manifest: what each one exposes, and its endpoint, which is loaded with its first message. */
import type { McpServer as McpServerRecord } from "../../generated/types.ts";
import type { Manifest, McpServerManifest } from "../manifest/manifest.ts";
import type { Tool } from "../tools/tool.ts";
import type { McpEndpoint, RunTool } from "./endpoint.ts";
import { type Exposed, exposeAgent, exposeTool, exposeWorkflow } from "./exposed.ts";
import type { ListChanges } from "./list-changes.ts";

/** @typeParam S the service that handlers of the API are given */
export class McpServer<S> {
  readonly id: string;
  /** By their names for clients, in the order of the list. */
  readonly tools: ReadonlyMap<string, Exposed>;
  readonly #manifest: McpServerManifest;
  #endpoint: Promise<McpEndpoint<S>> | null = null;

  constructor(id: string, manifest: McpServerManifest, tools: readonly Exposed[]) {
    this.id = id;
    this.#manifest = manifest;
    this.tools = new Map(tools.map((tool) => [tool.name, tool]));
  }

  /** As the API shows it. */
  get record(): McpServerRecord {
    const { name, version, description } = this.#manifest;
    return { id: this.id, name, version, description, capabilities: { tools: {} }, tools: this.tools.size };
  }

  /**
   * Created by the first call; later calls get the same one, whatever their arguments are.
   *
   * @param run how its tools are run
   * @param lists tells clients that they have changed
   * @param keepAlive milliseconds between two heartbeats of a silent stream
   */
  endpoint(...how: [run: RunTool<S>, lists: ListChanges, keepAlive: number]): Promise<McpEndpoint<S>> {
    this.#endpoint ??= import("./endpoint.ts").then(({ createEndpoint }) => createEndpoint(this, ...how));
    return this.#endpoint;
  }
}

/** Names that do not exist are skipped: the check of references reports them. */
export function createMcpServers<S>(
  { mcp, agents, workflows }: Pick<Manifest, "mcp" | "agents" | "workflows">,
  tools: ReadonlyMap<string, Tool>,
): Map<string, McpServer<S>> {
  const servers = Object.entries(mcp.servers).map(([id, server]) => {
    const exposed = [
      ...server.tools.flatMap((name) => tools.get(name) ?? []).map(exposeTool),
      ...known(server.agents, agents).map(([id, agent]) => exposeAgent(id, agent)),
      ...known(server.workflows, workflows).flatMap(([id, workflow]) => exposeWorkflow(id, workflow)),
    ];
    return [id, new McpServer<S>(id, server, exposed)] as const;
  });
  return new Map(servers);
}

const known = <T>(ids: readonly string[], all: Readonly<Record<string, T>>): [string, T][] =>
  ids.flatMap((id) => (Object.hasOwn(all, id) ? [[id, all[id]!]] : []));
