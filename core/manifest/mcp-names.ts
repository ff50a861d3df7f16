/** What tools, agents and workflows are called as tools of an MCP server: names that clients and models take. */

/** Other characters of an id become `_`. */
export const exposedName = (name: string): string => name.replace(/[^A-Za-z0-9_-]/g, "_");

export const agentToolName = (id: string): string => exposedName(`agent_${id}`);
export const workflowToolName = (id: string): string => exposedName(`workflow_${id}`);
export const resumeToolName = (id: string): string => exposedName(`workflow_${id}_resume`);

/** The MCP client whose tool has this name: they are called `CLIENT_TOOL`. */
export const clientOf = (tool: string, clients: readonly string[]): string | undefined =>
  clients.find((client) => tool.startsWith(`${client}_`) && tool.length > client.length + 1);
