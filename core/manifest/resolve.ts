/** Resolves a valid document to the manifest: durations and sizes become numbers, missing names are filled in, all is frozen. */

import { parseDuration } from "../lib/duration.ts";
import { isObject } from "../lib/is-object.ts";
import { parseSize } from "../lib/size.ts";
import { readDefinitions } from "./definitions.ts";
import type { Manifest } from "./manifest.ts";

type Schema = Record<string, unknown>;
type Json = Record<string, unknown>;

const DEFINITIONS = "#/$defs/";

/** `document` must have passed validation; it is not changed. */
export function resolveManifest(document: unknown): Manifest {
  const manifest = convert({ $ref: `${DEFINITIONS}Manifest` }, document) as Manifest;
  const { limits } = manifest.server;
  limits.userExecutions ??= Math.ceil(limits.executions / 4);
  for (const [id, agent] of Object.entries(manifest.agents)) {
    agent.name ||= id;
    if (agent.memory === "default" && !Object.hasOwn(manifest.memory, "default")) agent.memory = false;
  }
  for (const [id, workflow] of Object.entries(manifest.workflows)) {
    workflow.name ||= id;
    nameSteps(workflow.steps);
    nameSteps(workflow.onError);
  }
  for (const [id, server] of Object.entries(manifest.mcp.servers)) server.name ||= id;
  return freeze(manifest);
}

function nameSteps(node: unknown): void {
  if (Array.isArray(node)) for (const item of node) nameSteps(item);
  if (!isObject(node)) return;
  if (typeof node.id === "string") node.name ||= node.id;
  const when = node.andWhen as Json | undefined;
  for (const branch of [node.andAll, node.andRace, when?.then, when?.else, node.onError]) nameSteps(branch);
}

/** A copy in which every value whose schema is Duration or Size is a number. */
function convert(schema: Schema, value: unknown): unknown {
  const name = definitionName(schema);
  if (name === "Duration" && typeof value === "string") return parseDuration(value);
  if (name === "Size") return parseSize(value as string | number);
  const target = name === undefined ? schema : definition(name);
  const branch = applicableBranch(target, value);
  if (branch !== undefined) return convert(branch, value);
  if (Array.isArray(value)) return value.map((item) => convert((target.items ?? {}) as Schema, item));
  if (!isObject(value)) return value;
  const properties = (target.properties ?? {}) as Record<string, Schema>;
  const others = isObject(target.additionalProperties) ? target.additionalProperties : {};
  const copy: Json = {};
  for (const key of Object.keys(value)) {
    const own = Object.hasOwn(properties, key) ? properties[key] : undefined;
    copy[key] = convert(isObject(own) ? own : others, value[key]);
  }
  return copy;
}

/** Read when the first one is asked for. */
const known: { definitions?: Readonly<Record<string, Schema>> } = {};

/** A definition of the manifest's schema. */
export function definition(name: string): Schema {
  known.definitions ??= readDefinitions(["manifest"], DEFINITIONS);
  return known.definitions[name]!;
}

export const definitionName = (schema: Schema): string | undefined =>
  typeof schema.$ref === "string" ? schema.$ref.slice(DEFINITIONS.length) : undefined;

/** The subschema of `if: {type: ...}` that applies to a value: `then` or `else`. */
export function applicableBranch(schema: Schema, value: unknown): Schema | undefined {
  const type = (schema.if as Schema | undefined)?.type;
  if (type === undefined) return undefined;
  const actual = Array.isArray(value) ? "array" : typeof value;
  return (type === actual ? schema.then : schema.else) as Schema | undefined;
}

function freeze<T>(value: T): T {
  if (typeof value !== "object" || value === null || Object.isFrozen(value)) return value;
  for (const item of Object.values(value)) freeze(item);
  return Object.freeze(value);
}
