/** Stages: agents over A2A and OpenAI's Responses, and the MCP servers of the manifest. */
import { A2a } from "../../a2a/a2a.ts";
import { ListChanges } from "../../mcp/list-changes.ts";
import { createMcpServers } from "../../mcp/servers.ts";
import { Responses } from "../../openai/responses.ts";
import type { Service } from "../service.ts";
import type { Parts } from "./parts.ts";
import type { Stage } from "./stage.ts";

type TaskNeeds = "manifest" | "store" | "membership" | "agents" | "approvals" | "runs" | "engine" | "options";

export const a2a: Stage<TaskNeeds | "meters", "a2a"> = ({ manifest, options: { logger }, meters, ...parts }) => {
  const a2a = new A2a(manifest, { ...parts, logger, refused: meters.limits.count });
  return {
    parts: { a2a },
    begin: () => a2a.start(),
    adopt: ({ agents }) => ({ apply: () => a2a.adopt(agents) }),
    end: () => a2a.close(),
  };
};

export const responses: Stage<"manifest" | "store" | "runs" | "options", "responses"> = ({
  options: { logger },
  ...parts
}) => {
  const responses = new Responses(parts.manifest, { ...parts, logger });
  return {
    parts: { responses },
    begin: () => responses.start(),
    idle: (timeout) => responses.idle(timeout),
    end: () => responses.close(),
  };
};

export const mcpServers: Stage<"manifest" | "tools", "mcpServers"> = ({ manifest, tools }) => ({
  parts: { mcpServers: createMcpServers<Service>(manifest, tools) },
});

export const mcpLists: Stage<"tools" | "mcpServers", "mcpLists"> = (first) => {
  const mcpLists = new ListChanges();
  const use = ({ tools, mcpServers }: Pick<Parts, "tools" | "mcpServers">) => {
    tools.onChange(() => mcpLists.check());
    mcpLists.use(mcpServers);
  };
  use(first);
  return { parts: { mcpLists }, idle: async () => mcpLists.close(), adopt: (next) => ({ apply: () => use(next) }) };
};
