/** Stages: the turns of conversations, the histories of agents, and the agents. */
import { compileAgents } from "../../agents/compile.ts";
import { openTurns } from "../../agents/conversation/turns.ts";
import { openHistories } from "../../agents/history/open.ts";
import type { Stage } from "./stage.ts";

type LastingNeeds = "manifest" | "store" | "membership" | "options";

export const turns: Stage<LastingNeeds, "turns"> = ({ manifest, options: { logger }, ...parts }) => {
  const turns = openTurns(manifest, { ...parts, logger });
  return { parts: { turns }, begin: turns.start, end: turns.close };
};

export const histories: Stage<LastingNeeds, "histories"> = ({ manifest, options: { logger }, ...parts }) => {
  const histories = openHistories(manifest, { ...parts, logger });
  return { parts: { histories }, begin: () => histories.start(), end: () => histories.close() };
};

type AgentNeeds =
  | "manifest"
  | "tools"
  | "models"
  | "memories"
  | "turns"
  | "histories"
  | "store"
  | "meters"
  | "uses"
  | "options";

export const agents: Stage<AgentNeeds, "agents" | "keepRuns"> = ({ manifest, options: { logger }, ...parts }) => {
  const { agents, problems, whenIdle, keepRuns } = compileAgents(manifest, { ...parts, logger });
  return { parts: { agents, keepRuns }, problems, end: whenIdle };
};
