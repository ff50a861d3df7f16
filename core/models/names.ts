/** Finds the models that a manifest names, and where it names them. */
import type { Manifest } from "../manifest/manifest.ts";

interface NamedModel {
  /** `provider/model` */
  name: string;
  kind: "language" | "embedding";
  path: readonly (string | number)[];
}

/** `demo/echo` -> provider `demo`, model `echo`. The name of the model may contain slashes. */
export function splitModelName(name: string): { provider: string; model: string } {
  const slash = name.indexOf("/");
  return slash < 0 ? { provider: name, model: "" } : { provider: name.slice(0, slash), model: name.slice(slash + 1) };
}

/** All models that a manifest names. `dynamic` is true when an agent computes its model from the request. */
export function namedModels(manifest: Manifest): { names: NamedModel[]; dynamic: boolean } {
  const names: NamedModel[] = [];
  let dynamic = false;
  for (const [id, { model }] of Object.entries(manifest.agents)) {
    const list =
      typeof model === "string"
        ? [{ name: model, path: ["agents", id, "model"] }]
        : model.map((name, index) => ({ name, path: ["agents", id, "model", index] }));
    for (const { name, path } of list) {
      if (name.includes("{{")) dynamic = true;
      else names.push({ name, kind: "language", path });
    }
  }
  for (const [id, { semantic, summary }] of Object.entries(manifest.memory)) {
    if (summary !== undefined)
      names.push({ name: summary.model, kind: "language", path: ["memory", id, "summary", "model"] });
    const embedding = semantic?.embedding;
    if (typeof embedding !== "string" || !Object.hasOwn(manifest.providers, splitModelName(embedding).provider))
      continue;
    names.push({ name: embedding, kind: "embedding", path: ["memory", id, "semantic", "embedding"] });
  }
  return { names, dynamic };
}
