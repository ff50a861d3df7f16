/** The text of a client: types made from the OpenAPI document, the names of the manifest, and the code that is the same for all. */
import { readFileSync } from "node:fs";
import { isObject } from "../lib/is-object.ts";
import type { JsonSchema } from "../lib/json-schema.ts";
import type { TypeGenerator } from "./generator.ts";
import type { ClientNames } from "./names.ts";

// Prepares the OpenAPI document for a client's types: ids as literals, no examples, and the schemas of the manifest added.

// The parts of a JSON Schema that describe types, as a component of the OpenAPI document. Keywords for validation only are left out.

const REFERENCE = "#/components/schemas/";

/** Keywords whose value is a list of schemas, or one schema. */
const LISTS = ["allOf", "anyOf", "oneOf", "prefixItems"];
const SINGLES = ["items", "additionalProperties"];
/** Keywords that are copied unchanged. */
const PLAIN = ["type", "required", "enum", "description", "default", "deprecated"];
/** Keywords under which a schema keeps the schemas to which it refers. */
const DEFINITIONS = ["$defs", "definitions"];

/** Resolves a reference to a name; null when the target has none. */
type Resolve = (reference: string) => string | null;

/** The schema, and the schemas inside it to which it refers, as components whose names begin with `name`. */
function typeComponents(name: string, schema: JsonSchema): Record<string, unknown> {
  const names = new Map([["#", name]]);
  const definitions = DEFINITIONS.flatMap((keyword) => {
    const map = schema[keyword];
    return isObject(map) ? Object.entries(map).map(([key, value]) => [`#/${keyword}/${key}`, value] as const) : [];
  });
  for (const [index, [pointer]] of definitions.entries()) names.set(pointer, `${name}.${index + 1}`);
  const resolve: Resolve = (reference) => {
    const found = names.get(unescapePointer(reference));
    return found === undefined ? null : REFERENCE + found;
  };
  const all = [["#", schema] as const, ...definitions];
  return Object.fromEntries(all.map(([pointer, each]) => [names.get(pointer), typeSchema(each, resolve)]));
}

/** Decodes the `~1`, `~0` and percent escapes of a JSON pointer. */
function unescapePointer(reference: string): string {
  const plain = /%[0-9a-f]{2}/i.test(reference) ? safelyDecoded(reference) : reference;
  return plain.replaceAll("~1", "/").replaceAll("~0", "~");
}

function safelyDecoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** A copy that has only the keywords for types. */
function typeSchema(schema: unknown, resolve: Resolve): JsonSchema {
  if (!isObject(schema)) return {};
  if (typeof schema.$ref === "string") {
    const target = resolve(schema.$ref);
    return target === null ? {} : { $ref: target };
  }
  const inner = (value: unknown) => typeSchema(value, resolve);
  const copy: JsonSchema = {};
  for (const [key, value] of Object.entries(schema)) {
    if (PLAIN.includes(key)) copy[key] = value;
    else if (key === "properties" && isObject(value))
      copy[key] = Object.fromEntries(Object.entries(value).map(([name, each]) => [name, inner(each)]));
    else if (LISTS.includes(key) && Array.isArray(value)) copy[key] = value.map(inner);
    // A list is the form of draft 7, with one schema per position.
    else if (key === "items" && Array.isArray(value)) copy.prefixItems = value.map(inner);
    else if (SINGLES.includes(key)) copy[key] = typeof value === "boolean" ? value : inner(value);
  }
  // `const` becomes an `enum` with one value, which may be null or an object.
  if ("const" in schema) copy.enum = [schema.const];
  if (hasMixedProperties(schema)) copy.additionalProperties = true;
  if ("enum" in copy) return literals(copy);
  return copy;
}

/** Whether the types of properties would clash: TypeScript requires named properties to match the type of additional ones. */
const hasMixedProperties = ({ properties, patternProperties, additionalProperties }: JsonSchema): boolean =>
  isObject(patternProperties) || (isObject(properties) && isObject(additionalProperties));

/** An `enum` of simple values needs no other keyword. For other values it is dropped: the type is then less precise, but not wrong. */
function literals({ enum: values, description, ...rest }: JsonSchema): JsonSchema {
  const isSimple = Array.isArray(values) && values.every((value) => typeof value !== "object" || value === null);
  const described = description === undefined ? {} : { description };
  return isSimple ? { enum: values, ...described } : { ...rest, ...described };
}

type Tree = Record<string, unknown>;

/** Parameters whose values the manifest declares, by the first segment of the path. */
const LITERALS: Readonly<Record<string, readonly [parameter: string, ids: (names: ClientNames) => readonly string[]]>> =
  {
    agents: ["id", ({ agents }) => agents],
    // With tools of MCP servers, which come and go, the names are not known in advance.
    tools: ["name", ({ tools, toolPrefixes }) => (toolPrefixes.length > 0 ? [] : [...tools.keys()])],
    workflows: ["id", ({ workflows }) => [...workflows.keys()]],
  };

function clientDocument(document: Tree, names: ClientNames, added: Tree): Tree {
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
      isObject(content) &&
      Object.entries(content).some(
        ([type, media]) => (type === "application/json" || type === "text/event-stream") && "schema" in (media as Tree),
      ),
  );
}

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
function namedSchemas(names: ClientNames): { components: Tree; nameOf(key: string): string | undefined } {
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

/** The first line of every client: a file without it is not overwritten. */
export const CLIENT_MARK =
  "/* Written by `penstock client`. Do not edit: write it again when the manifest has changed. */\n";

const HEAD = `${CLIENT_MARK}/* eslint-disable */
import createFetchClient from "openapi-fetch";
`;

/** The code templates in order; each comes after those that it uses. */
const PARTS = ["names", "errors", "events", "calls", "agents", "workflows", "client"];

const OPTIONS = {
  // A default is the server's value for a missing one, so the field stays optional.
  defaultNonNullable: false,
  // An object without declared properties may have any.
  emptyObjectsUnknown: true,
  silent: true,
};

/** Generates the client. The result depends only on the document and the names. */
export async function clientText(document: object, names: ClientNames, generator: TypeGenerator): Promise<string> {
  const { components, nameOf } = namedSchemas(names);
  const source = clientDocument(document as Record<string, unknown>, names, components);
  const types = generator.astToString(await generator.default(source, OPTIONS));
  const texts = nameTypes(names, nameOf);
  const fill = (part: string) => part.replace(/%([A-Z]+)%/g, (whole, place: string) => texts[place] ?? whole);
  return [
    HEAD,
    types,
    ...PARTS.map((name) => fill(readFileSync(new URL(`./templates/${name}.ts.template`, import.meta.url), "utf8"))),
  ].join("\n");
}

/** Texts for the placeholders of a template, by name. */
function nameTypes(
  { agents, tools, toolPrefixes, workflows }: ClientNames,
  nameOf: (key: string) => string | undefined,
): Record<string, string> {
  const typeOf = (key: string) => {
    const name = nameOf(key);
    return name === undefined ? "unknown" : `components["schemas"][${JSON.stringify(name)}]`;
  };
  const toolRows = [
    ...[...tools.keys()].map((name) => `${JSON.stringify(name)}: { input: ${typeOf(`tool.${name}.input`)} };`),
    ...toolPrefixes.map((prefix) => `[tool: \`${prefix}\${string}\`]: { input: Record<string, unknown> };`),
  ];
  const workflowRows = [...workflows.keys()].map((id) => {
    const parts = ["input", "result", "resume"].map((part) => `${part}: ${typeOf(`workflow.${id}.${part}`)}`);
    return `${JSON.stringify(id)}: { ${parts.join("; ")} };`;
  });
  return {
    AGENTS: agents.map((id) => JSON.stringify(id)).join(" | ") || "never",
    TOOLS: toolRows.join("\n  "),
    WORKFLOWS: workflowRows.join("\n  "),
  };
}
