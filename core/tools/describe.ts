/** A tool as the API shows it. */
import type { Tool as ToolResource } from "../../generated/types.ts";
import type { Tool } from "./tool.ts";

/** @param agents the agents that have the tool, in the order of the manifest */
export function describeTool(tool: Tool, agents: readonly { id: string; name: string }[]): ToolResource {
  const { name, description, tags, parameters, client } = tool;
  return {
    name,
    description,
    tags: [...tags],
    parameters,
    ...(client && { client }),
    status: tool.available === false ? "unavailable" : "ready",
    agents: agents.map((agent) => ({ id: agent.id, name: agent.name })),
  };
}
