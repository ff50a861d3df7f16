/** Stage: the agent runs that are kept. It precedes the recovery of executions, which needs their definitions. */
import { KeptRuns } from "../../runs/kept-runs.ts";
import type { Parts } from "./parts.ts";
import type { Stage } from "./stage.ts";

type RunNeeds = "engine" | "agents" | "keepRuns" | "uses";

export const runs: Stage<RunNeeds | "approvals", "runs"> = ({ engine, approvals, ...first }) => {
  const runs = new KeptRuns(engine, approvals);
  const adopt = ({ agents, keepRuns, uses }: Omit<Pick<Parts, RunNeeds>, "engine">) => {
    runs.adopt(
      [...agents.values()].map(({ kept }) => kept),
      uses,
    );
    keepRuns(runs);
  };
  adopt(first);
  return { parts: { runs }, adopt: (next) => ({ apply: () => adopt(next) }) };
};
