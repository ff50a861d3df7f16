/** Stage: the runs of agents that are kept. Executions begin to be recovered after it, so that theirs are found. */
import { KeptRuns } from "../../runs/kept-runs.ts";
import type { Stage } from "./stage.ts";

export const runs: Stage<"engine" | "agents" | "keepRuns", "runs"> = ({ engine, agents, keepRuns }) => {
  const runs = new KeptRuns(
    engine,
    [...agents.values()].map(({ kept }) => kept),
  );
  keepRuns(runs);
  return { parts: { runs } };
};
