/** Names of tools, agents and workflows as tools of an MCP server, in characters that clients and models accept. */

/** Replaces the other characters of an id with `_`. */
export const exposedName = (name: string): string => name.replace(/[^A-Za-z0-9_-]/g, "_");

export const agentToolName = (id: string): string => exposedName(`agent_${id}`);
export const workflowToolName = (id: string): string => exposedName(`workflow_${id}`);
export const resumeToolName = (id: string): string => exposedName(`workflow_${id}_resume`);

/** The MCP client to which a tool belongs: tools of clients are named `CLIENT_TOOL`. */
export const clientOf = (tool: string, clients: readonly string[]): string | undefined =>
  clients.find((client) => tool.startsWith(`${client}_`) && tool.length > client.length + 1);
