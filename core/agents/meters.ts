/** The metrics of agents, models, tools and workflows: their label values are only the names in the manifest. */
import type { Manifest } from "../manifest/manifest.ts";
import { namedModels } from "../models/names.ts";
import { type MeterNames, Meters } from "../observability/metrics/meters.ts";

export const createMeters = (manifest: Manifest): Meters => new Meters(meteredNames(manifest));

export function meteredNames(manifest: Manifest): MeterNames {
  const models = namedModels(manifest).names.filter(({ kind }) => kind === "language");
  return {
    models: models.map(({ name }) => name),
    agents: Object.keys(manifest.agents),
    tools: Object.keys(manifest.tools),
    workflows: Object.keys(manifest.workflows),
  };
}
