/** Stands in for the loading of a manifest: what one process has read, the next ones read as well. What comes of it is never changed. */
import { readFile } from "node:fs/promises";
import { type LoadedManifest, type loadManifest as load, parseManifest } from "../../../core/manifest/load.ts";

export * from "../../../core/manifest/load.ts";

export async function loadManifest(...[file, env]: Parameters<typeof load>): Promise<LoadedManifest> {
  const text = await readFile(file, "utf8");
  let parsed = simulated.parsed.get(text);
  if (parsed === undefined) {
    parsed = parseManifest(text, { file, env });
    simulated.parsed.set(text, parsed);
  }
  return parsed;
}
