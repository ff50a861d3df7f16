/** Stages: the tools of the manifest, the models of its providers, and all tools with those of MCP servers. */
import { McpClients } from "../../mcp/clients.ts";
import { ToolDirectory } from "../../mcp/tool-directory.ts";
import { createModels } from "../../models/models.ts";
import { compileTools } from "../../tools/compile.ts";
import type { Stage } from "./stage.ts";

export const declaredTools: Stage<"manifest" | "registry" | "host" | "meters", "declaredTools"> = ({
  manifest,
  registry,
  host,
  meters,
}) => {
  const { tools, problems } = compileTools(manifest, registry, host, meters.tools);
  return { parts: { declaredTools: tools }, problems };
};

export const models: Stage<"manifest" | "registry" | "host" | "loaded" | "meters", "models"> = async ({
  manifest,
  registry,
  host,
  loaded: { folder, variableOf },
  meters,
}) => {
  const options = { folder, variableOf, meters: meters.models };
  const { models, problems } = await createModels(manifest, registry, host, options);
  return { parts: { models }, problems };
};

/** Connections to MCP servers, which generations share as long as their settings stay. */
export const mcpClients: Stage<"loaded" | "options", "mcpClients"> = ({ loaded: { folder }, options: { logger } }) => ({
  parts: { mcpClients: new McpClients({ folder, logger }) },
});

export const tools: Stage<"manifest" | "declaredTools" | "mcpClients" | "meters", "tools"> = ({
  manifest,
  declaredTools,
  mcpClients,
  meters,
}) => {
  const tools = new ToolDirectory(declaredTools, manifest, { clients: mcpClients, meters: meters.tools });
  return { parts: { tools }, begin: () => tools.begin(), end: () => tools.close() };
};
