/** Converts an OpenAPI 3 document to HTTP tools of a manifest: one per operation, and a line for each that cannot be converted. */
import { isObject } from "../lib/is-object.ts";
import type { JsonSchema } from "../lib/json-schema.ts";

// Schemas of an OpenAPI 3 document as standalone JSON Schemas: references are resolved, and keywords for documentation are left out.

/** Why an operation cannot be a tool. */
class Unmapped extends Error {}

/** Escapes a text of the document for a manifest, where it must not refer to the environment. */
const literal = (text: string): string => text.split("${").join("$${");

const MAPS = ["properties", "patternProperties"];
const LISTS = ["allOf", "anyOf", "oneOf", "prefixItems"];
const SINGLES = ["items", "additionalProperties", "not"];
const PLAIN = [
  ...["type", "enum", "const", "default", "title", "required", "pattern", "minLength", "maxLength", "multipleOf"],
  ...["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems", "uniqueItems"],
  ...["minProperties", "maxProperties"],
];
/** Formats that are validated. Others, such as `int64`, say nothing about the text. */
const FORMATS = ["date-time", "date", "time", "email", "uri", "uuid", "ipv4", "ipv6", "hostname"];
const MAX_DEPTH = 12;
const MAX_SCHEMA_DESCRIPTION = 500;

/** Resolves a `$ref` within this document; returns any other value unchanged. */
function resolvePointer(document: JsonSchema, value: unknown): unknown {
  let found = value;
  for (let steps = 0; isObject(found) && typeof found.$ref === "string"; steps++) {
    const reference = found.$ref;
    if (!reference.startsWith("#/")) throw new Unmapped(`${reference} is in another file: bundle the document first`);
    if (steps === MAX_DEPTH) throw new Unmapped(`${reference} refers to itself`);
    const parts = reference.slice(2).split("/");
    found = parts.reduce<unknown>((node, part) => {
      const key = decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~");
      return isObject(node) && Object.hasOwn(node, key) ? node[key] : undefined;
    }, document);
    if (found === undefined) throw new Unmapped(`${reference} leads to nothing`);
  }
  return found;
}

function toJsonSchema(document: JsonSchema, value: unknown, depth = 0): unknown {
  if (depth > MAX_DEPTH) throw new Unmapped("a schema of it refers to itself, or is very deep");
  const schema = resolvePointer(document, value);
  if (!isObject(schema)) return typeof schema === "boolean" ? schema : {};
  const inner = (each: unknown) => toJsonSchema(document, each, depth + 1);
  const result: JsonSchema = {};
  if (typeof schema.description === "string")
    result.description = literal(schema.description.slice(0, MAX_SCHEMA_DESCRIPTION));
  for (const [key, content] of Object.entries(schema)) {
    if (PLAIN.includes(key)) result[key] = escaped(content);
    else if (SINGLES.includes(key)) result[key] = inner(content);
    else if (LISTS.includes(key) && Array.isArray(content)) result[key] = content.map(inner);
    else if (MAPS.includes(key) && isObject(content)) result[key] = mapped(content, inner);
    else if (key === "format" && FORMATS.includes(String(content))) result.format = content;
  }
  if (isObject(result.properties) && isObject(schema.properties) && Array.isArray(result.required)) {
    const left = Object.keys(schema.properties).filter((name) => !Object.hasOwn(result.properties as object, name));
    result.required = result.required.filter((name) => !left.includes(name));
  }
  // Keywords that OpenAPI 3.0 defines differently from JSON Schema.
  if (schema.nullable === true) {
    if (result.type !== undefined) result.type = [result.type, "null"].flat();
    if (Array.isArray(result.enum)) result.enum = [...new Set([...result.enum, null])];
  }
  for (const [exclusive, bound] of [
    ["exclusiveMinimum", "minimum"],
    ["exclusiveMaximum", "maximum"],
  ] as const) {
    if (typeof result[exclusive] !== "boolean") continue;
    if (result[exclusive] === true) result[exclusive] = result[bound];
    else delete result[exclusive];
    if (schema[exclusive] === true) delete result[bound];
  }
  return result;
}

/** Maps the properties, without read-only ones, which a client cannot set. */
const mapped = (schemas: JsonSchema, inner: (each: unknown) => unknown): JsonSchema =>
  Object.fromEntries(
    Object.entries(schemas)
      .filter(([, each]) => !(isObject(each) && each.readOnly === true))
      .map(([name, each]) => [name, inner(each)]),
  );

const escaped = (value: unknown): unknown =>
  JSON.parse(JSON.stringify(value), (_key, each) => (typeof each === "string" ? literal(each) : each));

// The credentials that an operation of an OpenAPI document needs, as headers and query of its tool, with variables as values.

interface Credentials {
  headers: Record<string, string>;
  query: Record<string, string>;
}

/** The first alternative that a tool can send. @throws Unmapped when it can send none of them */
function credentialsOf(document: JsonSchema, operation: JsonSchema, variables: Record<string, string>): Credentials {
  const alternatives = operation.security ?? document.security;
  if (!Array.isArray(alternatives) || alternatives.length === 0) return { headers: {}, query: {} };
  let problem = "";
  for (const alternative of alternatives) {
    try {
      return alternativeOf(document, Object.keys(alternative as object), variables);
    } catch (error) {
      if (!(error instanceof Unmapped)) throw error;
      problem ||= error.message;
    }
  }
  throw new Unmapped(problem);
}

function alternativeOf(document: JsonSchema, names: readonly string[], variables: Record<string, string>): Credentials {
  const credentials: Credentials = { headers: {}, query: {} };
  const used: Record<string, string> = {};
  for (const name of names) {
    const variable = variableOf(name);
    const value = `\${${variable}:-}`;
    const scheme = schemeOf(document, name);
    const kind = [scheme.type, scheme.type === "apiKey" ? scheme.in : String(scheme.scheme ?? "").toLowerCase()].join(
      " ",
    );
    if (kind === "http basic") credentials.headers.authorization = `Basic ${value}`;
    else if (kind === "http bearer" || /^(oauth2|openIdConnect)/.test(kind))
      credentials.headers.authorization = `Bearer ${value}`;
    else if (kind === "apiKey header") credentials.headers[String(scheme.name).toLowerCase()] = value;
    else if (kind === "apiKey query") credentials.query[String(scheme.name)] = value;
    else throw new Unmapped(`its credentials "${name}" (${kind.trim()}) are none that a tool sends`);
    used[variable] = kind === "http basic" ? `"${name}" of the API: USER:PASSWORD in Base64` : `"${name}" of the API`;
  }
  Object.assign(variables, used);
  return credentials;
}

function schemeOf(document: JsonSchema, name: string): JsonSchema {
  const { securitySchemes } = (isObject(document.components) ? document.components : {}) as JsonSchema;
  const scheme = isObject(securitySchemes) ? resolvePointer(document, securitySchemes[name]) : undefined;
  if (!isObject(scheme)) throw new Unmapped(`its credentials "${name}" are not described`);
  return scheme;
}

const variableOf = (name: string): string =>
  `API_${name
    .replace(/([a-z0-9])([A-Z])/g, "$1_$2")
    .replace(/[^A-Za-z0-9]+/g, "_")
    .toUpperCase()}`;

interface HttpTools {
  title: string;
  /** Tools by name, as in `tools` of a manifest. */
  tools: Record<string, object>;
  /** Environment variables to which the tools refer, with their purpose. */
  variables: Record<string, string>;
  /** Lines such as `POST /files: why`. */
  unmapped: string[];
}

interface Parameter extends JsonSchema {
  name: string;
  in: string;
}

const METHODS = ["get", "head", "post", "put", "patch", "delete"];
/** Reserved words of CEL. */
const RESERVED =
  /^(true|false|null|in|as|break|const|continue|else|for|function|if|import|let|loop|package|namespace|return|var|void|while)$/;
const MAX_NAME = 64;
const MAX_DESCRIPTION = 1_000;

/** @throws Error that says what the document must be */
export function toolsOfOpenApi(document: unknown): HttpTools {
  if (!isObject(document) || typeof document.openapi !== "string" || !document.openapi.startsWith("3."))
    throw new Error('is no OpenAPI 3 document: its "openapi" must be 3.0 or 3.1');
  if (!isObject(document.paths)) throw new Error('"paths" must be an object: there are no operations');
  const found: HttpTools = { title: titleOf(document), tools: {}, variables: {}, unmapped: [] };
  const base = baseOf(document, found);
  for (const [path, item] of Object.entries(document.paths)) {
    if (!isObject(item)) continue;
    for (const [method, operation] of Object.entries(item)) {
      if (!isObject(operation) || ["parameters", "servers"].includes(method) || method.startsWith("x-")) continue;
      const place = `${method.toUpperCase()} ${path}`;
      try {
        if (!METHODS.includes(method)) throw new Unmapped(`the method ${method.toUpperCase()} is none of a tool`);
        const name = freeName(nameOf(operation, method, path), found.tools);
        found.tools[name] = toolOf(document, { base, path, method, item, operation }, found.variables);
      } catch (error) {
        if (!(error instanceof Unmapped)) throw error;
        found.unmapped.push(`${place}: ${error.message}`);
      }
    }
  }
  return found;
}

const titleOf = ({ info }: JsonSchema): string =>
  isObject(info) && typeof info.title === "string" ? info.title.replace(/["\\{}\s]+/g, " ").slice(0, 100) : "an API";

/** The address of the first server, which an environment variable may override. */
function baseOf(document: JsonSchema, { variables }: HttpTools): string {
  const [server] = Array.isArray(document.servers) ? document.servers : [];
  const { url = "/", variables: named = {} } = (isObject(server) ? server : {}) as JsonSchema;
  const defaults = named as Record<string, { default?: unknown }>;
  const filled = String(url).replace(/\{(\w+)\}/g, (_, name: string) => String(defaults[name]?.default ?? ""));
  const whole = /^https?:\/\/[^/]/.test(filled) ? filled : `http://127.0.0.1:8080${filled}`;
  variables.API_URL = `where the API is, if not at ${whole.replace(/\/$/, "")}`;
  return `\${API_URL:-${whole.replace(/\/$/, "").replace(/[{}$]/g, "")}}`;
}

interface Place {
  base: string;
  path: string;
  method: string;
  item: JsonSchema;
  operation: JsonSchema;
}

function toolOf(document: JsonSchema, place: Place, variables: Record<string, string>): object {
  const { base, path, method, item, operation } = place;
  const inputs: Record<string, unknown> = Object.create(null);
  const required: string[] = [];
  const add = (name: string, location: string, schema: unknown, isRequired: boolean): string => {
    const plainName = name.replace(/[^A-Za-z0-9_]/g, "_").replace(/^(?=\d|$)/, "_");
    const input = RESERVED.test(plainName) || plainName in inputs ? `${location}_${plainName}` : plainName;
    if (input in inputs) throw new Unmapped(`two of its inputs would be called "${input}"`);
    inputs[input] = schema;
    if (isRequired) required.push(input);
    return isRequired ? `{{ input.${input} }}` : `{{ has(input.${input}) ? input.${input} : null }}`;
  };
  const query: Record<string, string> = {};
  const headers: Record<string, string> = {};
  let address = path;
  for (const parameter of parametersOf(document, item, operation)) {
    const { name, in: location } = parameter;
    const isRequired = parameter.required === true || location === "path";
    if (location === "cookie" || location === "header") {
      if (!isRequired) continue;
      if (location === "cookie") throw new Unmapped(`it needs the cookie "${name}"`);
    }
    const value = add(name, location, parameterSchema(document, parameter), isRequired);
    if (location === "query") query[name] = value;
    else if (location === "header") headers[name.toLowerCase()] = value;
    else address = address.replace(`{${name}}`, () => value);
  }
  if (/\{[^{}]*\}/.test(address.replace(/\{\{ [^{}]* \}\}/g, "")))
    throw new Unmapped("its path has a parameter that is not described");
  const body = bodyOf(document, operation, add);
  const credentials = credentialsOf(document, operation, variables);
  const text = [operation.summary, operation.description].find((each) => typeof each === "string" && each !== "");
  return {
    description: literal(String(text ?? `${method.toUpperCase()} ${path}`)).slice(0, MAX_DESCRIPTION),
    parameters: { type: "object", properties: { ...inputs }, required, additionalProperties: false },
    http: {
      ...(method !== "get" && { method: method.toUpperCase() }),
      url: `${base}${literal(address)}`,
      ...present("headers", { ...headers, ...credentials.headers }),
      ...present("query", { ...query, ...credentials.query }),
      ...(body !== undefined && { body }),
    },
  };
}

const present = (key: string, values: object) => (Object.keys(values).length === 0 ? {} : { [key]: values });

/** The parameters of an operation, which override those of its path. */
function parametersOf(document: JsonSchema, item: JsonSchema, operation: JsonSchema): Parameter[] {
  const all = [item.parameters, operation.parameters].flatMap((list) => (Array.isArray(list) ? list : []));
  const resolved = all.map((parameter) => resolvePointer(document, parameter) as Parameter);
  return [...new Map(resolved.map((each) => [`${each.in} ${each.name}`, each])).values()];
}

function parameterSchema(document: JsonSchema, { name, schema, description, style, explode, in: location }: Parameter) {
  if (schema === undefined) throw new Unmapped(`the parameter "${name}" has no schema`);
  const converted = toJsonSchema(document, schema) as JsonSchema;
  const types = [converted.type].flat();
  if (types.includes("object")) throw new Unmapped(`the parameter "${name}" is an object`);
  if (
    types.includes("array") &&
    (location !== "query" || explode === false || ![undefined, "form"].includes(style as string))
  )
    throw new Unmapped(`the parameter "${name}" is a list that does not repeat its name`);
  return typeof description === "string" && converted.description === undefined
    ? { ...converted, description: literal(description).slice(0, MAX_DESCRIPTION) }
    : converted;
}

function bodyOf(
  document: JsonSchema,
  { requestBody }: JsonSchema,
  add: (name: string, location: string, schema: unknown, isRequired: boolean) => string,
): string | undefined {
  if (requestBody === undefined) return undefined;
  const { content, required } = resolvePointer(document, requestBody) as JsonSchema;
  const types = isObject(content) ? Object.keys(content) : [];
  const json = types.find((type) => /^application\/([\w.+-]+\+)?json\b/.test(type));
  if (json === undefined) throw new Unmapped(`its body is ${types.join(" or ") || "not described"}: tools send JSON`);
  const { schema } = (content as Record<string, JsonSchema>)[json]!;
  return add("body", "json", schema === undefined ? {} : toJsonSchema(document, schema), required === true);
}

function nameOf({ operationId }: JsonSchema, method: string, path: string): string {
  const text = typeof operationId === "string" ? operationId : `${method} ${path}`;
  const snake = text
    .replace(/([a-z0-9])([A-Z])/g, "$1_$2")
    .replace(/[^A-Za-z0-9]+/g, "_")
    .toLowerCase()
    .replace(/^_+|_+$/g, "");
  return snake.slice(0, MAX_NAME) || method;
}

function freeName(name: string, taken: object): string {
  for (let count = 1; ; count++) {
    const candidate = count === 1 ? name : `${name.slice(0, MAX_NAME - 4)}_${count}`;
    if (!Object.hasOwn(taken, candidate)) return candidate;
  }
}
