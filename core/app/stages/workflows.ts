/** Stage: the workflows, and the engine that runs them. */
import { createSchemaCompiler } from "../../lib/json-schema.ts";
import { openWorkflows } from "../../workflows/open.ts";
import type { Parts } from "./parts.ts";
import type { Stage } from "./stage.ts";

type WorkflowNeeds =
  | "manifest"
  | "loaded"
  | "store"
  | "membership"
  | "tools"
  | "agents"
  | "registry"
  | "meters"
  | "tracer"
  | "uses"
  | "options";

export const workflows: Stage<WorkflowNeeds, "workflows" | "engine"> = async (parts) => {
  const { manifest, loaded, store, membership, options } = parts;
  const { limits } = parts.meters;
  const { engine, workflows, problems, start, idle, close, adopt } = await openWorkflows(manifest, loaded, {
    store,
    membership,
    logger: options.logger,
    refused: limits.count,
    ...linked(parts),
  });
  limits.measure("server.limits.executions", () => engine.live.size);
  return {
    parts: { workflows, engine },
    problems,
    begin: start,
    idle,
    end: close,
    adopt: (next) => adopt(next.manifest, next.loaded, linked(next)),
  };
};

/** The parts with which definitions are compiled. */
const linked = ({
  loaded,
  tools,
  agents,
  registry,
  meters,
  tracer,
  uses,
  options: { env },
}: Pick<Parts, WorkflowNeeds>) => ({
  tools,
  agents,
  registry,
  schemas: createSchemaCompiler(),
  configs: createSchemaCompiler({ defaults: true }),
  env,
  folder: loaded.folder,
  meters: meters.workflows,
  trace: tracer ?? undefined,
  uses,
});
