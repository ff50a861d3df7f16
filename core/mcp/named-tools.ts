/** The tools that a manifest names. */
import type { Manifest, StepManifest } from "../manifest/manifest.ts";
import { allSteps } from "../workflows/definition/pinned.ts";

/** In agents, steps of workflows and MCP servers. Tools that an expression computes are not among them. */
export function namedTools({ agents, workflows, mcp }: Manifest): Set<string> {
  const ofAgents = Object.values(agents).flatMap(({ tools }) =>
    tools.map((item) => (typeof item === "string" ? item : item.use)),
  );
  const ofSteps = Object.values(workflows).flatMap((workflow) => allSteps(workflow).flatMap(toolsIn));
  const ofServers = Object.values(mcp.servers).flatMap(({ tools }) => tools);
  return new Set([...ofAgents, ...ofSteps, ...ofServers]);
}

const toolsIn = ({ andThen, andTap }: StepManifest): string[] =>
  [andThen, andTap].flatMap((work) => (work !== undefined && "tool" in work ? (work.tool ?? []) : []));
