/** Stages: the tools of the manifest, the models of its providers, and all tools with those of MCP servers. */
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

export const tools: Stage<"manifest" | "declaredTools" | "loaded" | "meters" | "options", "tools"> = ({
  manifest,
  declaredTools,
  loaded: { folder },
  meters,
  options: { logger },
}) => {
  const tools = new ToolDirectory(declaredTools, manifest, { folder, logger, meters: meters.tools });
  return { parts: { tools }, begin: () => tools.begin(), end: () => tools.close() };
};
