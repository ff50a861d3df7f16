/** Prepares the OpenAPI document for a client's types: ids as literals, no examples, and the schemas of the manifest added. */
import { isObject } from "../lib/is-object.ts";
import type { ClientNames } from "./names.ts";
import { typeComponents, typeSchema } from "./type-schema.ts";

type Tree = Record<string, unknown>;

/** Parameters whose values the manifest declares, by the first segment of the path. */
const LITERALS: Readonly<Record<string, readonly [parameter: string, ids: (names: ClientNames) => readonly string[]]>> =
  {
    agents: ["id", ({ agents }) => agents],
    // With tools of MCP servers, which come and go, the names are not known in advance.
    tools: ["name", ({ tools, toolPrefixes }) => (toolPrefixes.length > 0 ? [] : [...tools.keys()])],
    workflows: ["id", ({ workflows }) => [...workflows.keys()]],
  };

export function clientDocument(document: Tree, names: ClientNames, added: Tree): Tree {
  const { openapi, info, components } = document as { openapi: string; info: Tree; components: Tree };
  const paths = Object.entries(document.paths as Record<string, Record<string, Tree>>).flatMap(([path, methods]) => {
    const kept = Object.entries(methods).filter(([, operation]) => hasSchema(operation));
    if (kept.length === 0) return [];
    return [[path, Object.fromEntries(kept.map(([method, each]) => [method, clientOperation(path, each, names)]))]];
  });
  const schemas = Object.entries(components.schemas as Tree).map(([name, schema]) => [name, plain(schema)]);
  const responses = Object.entries(components.responses as Record<string, Tree>).map(([name, reply]) => [
    name,
    clientReply(reply),
  ]);
  return {
    openapi,
    info: { title: info.title, version: info.version },
    paths: Object.fromEntries(paths),
    components: { schemas: { ...Object.fromEntries(schemas), ...added }, responses: Object.fromEntries(responses) },
  };
}

const plain = (schema: unknown) => typeSchema(schema, (reference) => reference);

/** Whether an operation has a schema. Pages have none, nor do protocols with clients of their own. */
function hasSchema({ responses }: Tree): boolean {
  const contents = Object.values(responses as Record<string, Tree>).map(({ content }) => content);
  return contents.some(
    (content) =>
      isObject(content) && Object.entries(content).some(([type, media]) => isData(type) && "schema" in (media as Tree)),
  );
}

const isData = (type: string) => type === "application/json" || type === "text/event-stream";

function clientOperation(path: string, operation: Tree, names: ClientNames): Tree {
  const { operationId, summary, description, parameters, requestBody, responses } = operation;
  // In a plugin's route, `id` may have any meaning.
  const isOurs = !String(operationId).startsWith("custom.");
  const [parameter, idsOf] = (isOurs ? LITERALS[path.split("/")[1]!] : undefined) ?? [];
  const ids = idsOf?.(names) ?? [];
  const literal = (each: Tree) => each.in === "path" && each.name === parameter && ids.length > 0;
  return {
    operationId,
    summary,
    ...(description !== undefined && { description }),
    ...(parameters !== undefined && {
      parameters: (parameters as Tree[]).map(({ example: _, ...each }) => ({
        ...each,
        schema: literal(each) ? { enum: ids } : plain(each.schema),
      })),
    }),
    ...(isObject(requestBody) && { requestBody: { ...requestBody, content: clientContent(requestBody.content) } }),
    responses: Object.fromEntries(
      Object.entries(responses as Record<string, Tree>).map(([status, reply]) => [status, clientReply(reply)]),
    ),
  };
}

/** Removes the headers of replies: only the client's own code reads them. */
function clientReply({ headers: _, content, ...reply }: Tree): Tree {
  return content === undefined ? reply : { ...reply, content: clientContent(content) };
}

function clientContent(content: unknown): Tree {
  const types = Object.entries(content as Record<string, Tree>);
  return Object.fromEntries(
    types.map(([type, { schema }]) => [type, schema === undefined ? {} : { schema: plain(schema) }]),
  );
}

/** The schemas of tools and workflows as components, and their names: `tool.refund.input`. */
export function namedSchemas(names: ClientNames): { components: Tree; nameOf(key: string): string | undefined } {
  const components: Tree = {};
  const taken = new Map<string, string>();
  const add = (key: string, schema: Tree | null) => {
    if (schema === null) return;
    // Ids may contain a colon, which names of components may not. Ids that differ only in that still get different names.
    let name = key.replaceAll(":", "_");
    while (name in components) name += "_";
    Object.assign(components, typeComponents(name, schema));
    taken.set(key, name);
  };
  for (const [name, schema] of names.tools) add(`tool.${name}.input`, schema);
  for (const [id, schemas] of names.workflows)
    for (const part of ["input", "result", "resume"] as const) add(`workflow.${id}.${part}`, schemas[part]);
  return { components, nameOf: (key) => taken.get(key) };
}
