/** Checks tools, providers and memories: their plugins exist, their schemas and expressions compile. */
import { messageOf } from "../lib/errors.ts";
import { isObject } from "../lib/is-object.ts";
import type { SchemaCompiler } from "../lib/json-schema.ts";
import { type CheckContext, checkName, checkTemplate, type Json, mapOf, mapsOf } from "./check.ts";
import { checkModelName } from "./check-agents.ts";
import { isTemplate, SCOPES } from "./expression.ts";
import { type Path, suggest } from "./manifest.ts";
import { keywordNotices } from "./unknown-keywords.ts";

export function checkTools(check: CheckContext, schemas: SchemaCompiler): void {
  for (const [name, tool] of mapsOf(check.document.tools)) {
    const path = ["tools", name];
    checkName(check, [...path, "use"], "tool plugin", tool.use, check.plugins.tool);
    checkSchema(check, [...path, "parameters"], tool.parameters, schemas);
    if (isObject(tool.http)) checkHttp(check, [...path, "http"], tool.http);
    checkTemplate(check, [...path, "approval"], tool.approval, SCOPES.httpTool);
    checkTemplate(check, [...path, "output"], tool.output, SCOPES.httpToolOutput);
  }
}

function checkHttp(check: CheckContext, path: Path, http: Json): void {
  for (const key of ["url", "headers", "query", "body"]) {
    checkTemplate(check, [...path, key], http[key], SCOPES.httpTool);
  }
  const { url } = http;
  if (typeof url === "string" && url !== "" && !/^(https?:\/\/|\{\{)/.test(url)) {
    check.report([...path, "url"], "must begin with http://, https:// or an expression");
  }
  const [braced, name] = (typeof url === "string" && /(?<![{$])\{(\w+)\}(?!\})/.exec(url)) || [];
  if (braced !== undefined)
    check.report([...path, "url"], `${braced} is sent as it is: write {{ input.${name} }} for a value`, "warning");
}

/** Reports a JSON Schema that does not compile, and unknown keywords in it. */
export function checkSchema(check: CheckContext, path: Path, schema: unknown, schemas: SchemaCompiler): void {
  if (!isObject(schema)) return;
  try {
    schemas.compile(schema);
  } catch (error) {
    check.report(path, `not a JSON Schema: ${messageOf(error)}`);
  }
  for (const { path: within, message } of keywordNotices(schema))
    check.report([...path, ...within], message, "warning");
}

/** Checks providers. A name that is not a plugin may be an npm package, which is located only when one of its models is needed. */
export function checkProviders(check: CheckContext): void {
  const known = check.plugins.provider;
  for (const [name, provider] of mapsOf(check.document.providers)) {
    if (typeof provider.use !== "string" || known.includes(provider.use)) continue;
    const near = suggest(provider.use, known);
    if (near === undefined) continue;
    check.report(["providers", name, "use"], `unknown provider plugin "${provider.use}", did you mean "${near}"?`);
  }
}

const LOCAL_EMBEDDINGS = ["local/use", "local/hash"];

export function checkMemories(check: CheckContext, schemas: SchemaCompiler): void {
  for (const [name, memory] of mapsOf(check.document.memory)) {
    const path = ["memory", name];
    checkSchema(check, [...path, "workingMemory", "schema"], mapOf(memory.workingMemory).schema, schemas);
    const { model } = mapOf(memory.summary);
    if (typeof model === "string") checkModelName(check, [...path, "summary", "model"], model);
    if (!isObject(memory.semantic)) continue;
    const { embedding, vectors } = memory.semantic;
    const at = [...path, "semantic", "embedding"];
    if (isObject(embedding))
      checkName(check, [...at, "use"], "embedding plugin", embedding.use, check.plugins.embedding);
    else if (typeof embedding === "string" && !check.plugins.embedding.includes(embedding)) {
      if (embedding.startsWith("local/")) checkName(check, at, "embedding", embedding, LOCAL_EMBEDDINGS);
      else if (!isTemplate(embedding)) checkModelName(check, at, embedding);
    }
    const index = isObject(vectors) ? vectors.use : vectors;
    checkName(check, [...path, "semantic", "vectors"], "vectors plugin", index, ["exact", ...check.plugins.vectors]);
  }
}
