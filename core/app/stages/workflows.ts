/** Stage: the workflows, and the engine that runs them. */
import { createSchemaCompiler } from "../../lib/json-schema.ts";
import { openWorkflows } from "../../workflows/open.ts";
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
  | "options";

export const workflows: Stage<WorkflowNeeds, "workflows" | "engine"> = async ({
  manifest,
  loaded,
  store,
  membership,
  tools,
  agents,
  registry,
  meters,
  tracer,
  options: { logger, env },
}) => {
  const { engine, problems, start, idle, close } = await openWorkflows(manifest, loaded, {
    store,
    membership,
    logger,
    tools,
    agents,
    registry,
    schemas: createSchemaCompiler(),
    configs: createSchemaCompiler({ defaults: true }),
    env,
    folder: loaded.folder,
    meters: meters.workflows,
    trace: tracer ?? undefined,
  });
  return { parts: { workflows: engine, engine }, problems, begin: start, idle, end: close };
};
