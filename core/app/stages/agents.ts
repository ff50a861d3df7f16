/** Stage: the agents, and what they keep of their runs. */
import { compileAgents } from "../../agents/compile.ts";
import type { Stage } from "./stage.ts";

type AgentNeeds = "manifest" | "tools" | "models" | "memories" | "store" | "membership" | "meters" | "options";

export const agents: Stage<AgentNeeds, "agents" | "keepRuns"> = ({ manifest, options: { logger }, ...parts }) => {
  const { agents, problems, histories, keepRuns } = compileAgents(manifest, { ...parts, logger });
  return { parts: { agents, keepRuns }, problems, begin: () => histories.start(), end: () => histories.close() };
};
