/** Stages: what is kept of the runs of agents, and the agents. */
import { compileAgents } from "../../agents/compile.ts";
import { openHistories } from "../../agents/history/open.ts";
import type { Stage } from "./stage.ts";

type HistoryNeeds = "manifest" | "store" | "membership" | "options";

export const histories: Stage<HistoryNeeds, "histories"> = ({ manifest, options: { logger }, ...parts }) => {
  const histories = openHistories(manifest, { ...parts, logger });
  return { parts: { histories }, begin: () => histories.start(), end: () => histories.close() };
};

type AgentNeeds = "manifest" | "tools" | "models" | "memories" | "histories" | "store" | "meters" | "uses" | "options";

export const agents: Stage<AgentNeeds, "agents"> = ({ manifest, options: { logger }, ...parts }) => {
  const { agents, problems, whenIdle } = compileAgents(manifest, { ...parts, logger });
  return { parts: { agents }, problems, end: whenIdle };
};
