/** Warnings about keywords that JSON Schema does not know. */

import type { Path } from "../lib/errors.ts";
import { isObject } from "../lib/is-object.ts";
import { suggest } from "./manifest.ts";

// Finds keywords that JSON Schema does not know, anywhere in a schema: validation ignores them, although they may be misspelt.

/** Keywords of drafts 4 to 2020-12 whose values are not schemas. */
const ASSERTIONS =
  "$anchor $comment $dynamicAnchor $dynamicRef $id $recursiveAnchor $recursiveRef $ref $schema $vocabulary const contentEncoding contentMediaType default dependentRequired deprecated description enum examples exclusiveMaximum exclusiveMinimum format id maxContains maxItems maxLength maxProperties maximum minContains minItems minLength minProperties minimum multipleOf pattern readOnly required title type uniqueItems writeOnly";
/** Keywords of OpenAPI, Ajv, editors and providers: they have a meaning elsewhere, and do no harm here. */
const ANNOTATIONS =
  "defaultSnippets deprecationMessage discriminator doNotSuggest enumDescriptions enumNames errorMessage example externalDocs formatExclusiveMaximum formatExclusiveMinimum formatMaximum formatMinimum markdownDescription markdownEnumDescriptions nullable patternErrorMessage propertyOrdering strict xml";
/** Keywords whose value is a schema, or a list of schemas. */
const SCHEMAS =
  "additionalItems additionalProperties allOf anyOf contains contentSchema else if items not oneOf prefixItems propertyNames then unevaluatedItems unevaluatedProperties";
/** Keywords whose value is a map of schemas. */
const MAPS = "$defs definitions dependencies dependentSchemas patternProperties properties";

const words = (text: string): ReadonlySet<string> => new Set(text.split(" "));
const schemas = words(SCHEMAS);
const maps = words(MAPS);
const known = words(`${ASSERTIONS} ${ANNOTATIONS} ${SCHEMAS} ${MAPS}`);

/** Keywords that can be suggested for a misspelt one. */
const SCHEMA_KEYWORDS: readonly string[] = `${ASSERTIONS} ${SCHEMAS} ${MAPS}`.split(" ");

interface UnknownKeyword {
  /** Path of the keyword from the root of the schema. */
  path: readonly (string | number)[];
  keyword: string;
  value: unknown;
}

/** Lists unknown keywords, except names that begin with `x-`. */
export function unknownKeywords(schema: unknown, path: UnknownKeyword["path"] = []): UnknownKeyword[] {
  if (Array.isArray(schema)) return schema.flatMap((item, index) => unknownKeywords(item, [...path, index]));
  if (!isObject(schema)) return [];
  return Object.entries(schema).flatMap(([keyword, value]) => {
    const here = [...path, keyword];
    if (schemas.has(keyword)) return unknownKeywords(value, here);
    if (maps.has(keyword)) return inMap(value, here);
    return known.has(keyword) || keyword.startsWith("x-") ? [] : [{ path: here, keyword, value }];
  });
}

function inMap(value: unknown, path: UnknownKeyword["path"]): UnknownKeyword[] {
  if (!isObject(value)) return [];
  // The values of `dependencies` may be lists of names.
  return Object.entries(value).flatMap(([name, item]) =>
    isObject(item) ? unknownKeywords(item, [...path, name]) : [],
  );
}

interface KeywordNotice {
  /** Path of the keyword from the root of the schema. */
  path: Path;
  message: string;
}

/** Whether a field looks like a property that was written where a keyword belongs. */
const isSchema = (value: unknown): boolean =>
  isObject(value) && ("type" in value || "$ref" in value || "enum" in value);

/** Only warnings, because JSON Schema permits unknown keywords: a schema from elsewhere may have them on purpose. */
export function keywordNotices(schema: unknown): KeywordNotice[] {
  return unknownKeywords(schema).map(({ path, keyword, value }) => {
    const near = suggest(keyword, SCHEMA_KEYWORDS) ?? suggest(`${keyword}s`, SCHEMA_KEYWORDS);
    const meant =
      near !== undefined
        ? `did you mean "${near}"?`
        : isSchema(value)
          ? 'write a field below "properties"'
          : "a keyword of your own begins with x-";
    return { path, message: `is not a keyword of JSON Schema and has no effect: ${meant}` };
  });
}
