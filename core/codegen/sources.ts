/** Reads `schemas/**`: every `$defs` entry of every file is one named definition. */

import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { isObject } from "../lib/is-object.ts";
import type { JsonSchema } from "../lib/json-schema.ts";

const GROUPS = ["manifest", "evals", "api", "events"] as const;
type SchemaGroup = (typeof GROUPS)[number];

export interface SchemaFile {
  /** The path, such as `schemas/api/agents.json`, always with `/`. */
  path: string;
  group: SchemaGroup;
  id: string;
  document: JsonSchema;
}

export interface SchemaDefinition {
  /** The key in `$defs`; unique over all files. */
  name: string;
  group: SchemaGroup;
  file: string;
  schema: JsonSchema;
  /** The absolute reference: `$id#/$defs/name`. */
  reference: string;
}

/** Whether a definition is for a file that people write: such a file gets defaults when it is read, and messages name known keys. */
export const isWritten = ({ group }: SchemaDefinition): boolean => group === "manifest" || group === "evals";

/** A problem in one schema file. The rest is still generated, so that one broken file does not stop the others. */
export interface SchemaProblem {
  file: string;
  message: string;
}

interface Sources {
  files: SchemaFile[];
  definitions: SchemaDefinition[];
  problems: SchemaProblem[];
}

const IDENTIFIER = /^[A-Z][A-Za-z0-9]*$/;
const ID_BASE = "https://penstock.dev/";

/** Reads every `*.json` below `root/schemas/<group>/`, in a fixed order. Never throws on a bad file. */
export async function readSources(root: string): Promise<Sources> {
  const sources: Sources = { files: [], definitions: [], problems: [] };
  for (const group of GROUPS) {
    const folder = join(root, "schemas", group);
    const names = await readdir(folder).catch(() => []);
    for (const name of names.filter((entry) => entry.endsWith(".json")).sort()) {
      const path = `schemas/${group}/${name}`;
      addFile(sources, group, path, await readFile(join(folder, name), "utf8"));
    }
  }
  return sources;
}

function addFile(sources: Sources, group: SchemaGroup, path: string, text: string): void {
  const problem = (message: string) => sources.problems.push({ file: path, message });
  let document: unknown;
  try {
    document = JSON.parse(text);
  } catch (error) {
    problem(`not JSON: ${(error as Error).message}`);
    return;
  }
  if (!isObject(document) || !isObject(document.$defs)) {
    problem('must be an object with "$defs"');
    return;
  }
  const id = ID_BASE + path;
  if (document.$id !== id) {
    problem(`"$id" must be "${id}"`);
    return;
  }
  sources.files.push({ path, group, id, document });
  for (const [name, schema] of Object.entries(document.$defs)) {
    const twin = sources.definitions.find((other) => other.name === name);
    if (!IDENTIFIER.test(name)) problem(`$defs.${name}: a name must match ${IDENTIFIER.source}`);
    else if (twin) problem(`$defs.${name}: the name is taken by ${twin.file}`);
    else if (!isObject(schema)) problem(`$defs.${name}: must be a schema object`);
    else sources.definitions.push({ name, group, file: path, schema, reference: `${id}#/$defs/${name}` });
  }
}
