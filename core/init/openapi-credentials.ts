/** The credentials that an operation of an OpenAPI document needs, as headers and query of its tool, with variables as values. */
import { isObject } from "../lib/is-object.ts";
import type { JsonSchema } from "../lib/json-schema.ts";
import { resolvePointer, Unmapped } from "./openapi-schema.ts";

interface Credentials {
  headers: Record<string, string>;
  query: Record<string, string>;
}

/** The first alternative that a tool can send. @throws Unmapped when it can send none of them */
export function credentialsOf(
  document: JsonSchema,
  operation: JsonSchema,
  variables: Record<string, string>,
): Credentials {
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
