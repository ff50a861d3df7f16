/** Finds keywords that JSON Schema does not know, anywhere in a schema: validation ignores them, whatever was meant. */
import { isObject } from "./is-object.ts";

/** Keywords of drafts 4 to 2020-12 whose values are not schemas. */
const ASSERTIONS =
  "$anchor $comment $dynamicAnchor $dynamicRef $id $recursiveAnchor $recursiveRef $ref $schema $vocabulary const contentEncoding contentMediaType default dependentRequired deprecated description enum examples exclusiveMaximum exclusiveMinimum format id maxContains maxItems maxLength maxProperties maximum minContains minItems minLength minProperties minimum multipleOf pattern readOnly required title type uniqueItems writeOnly";
/** Of OpenAPI, Ajv, editors and providers: they are for others, and do no harm here. */
const ANNOTATIONS =
  "defaultSnippets deprecationMessage discriminator doNotSuggest enumDescriptions enumNames errorMessage example externalDocs formatExclusiveMaximum formatExclusiveMinimum formatMaximum formatMinimum markdownDescription markdownEnumDescriptions nullable patternErrorMessage propertyOrdering strict xml";
/** Keywords with one schema, or with a list of them. */
const SCHEMAS =
  "additionalItems additionalProperties allOf anyOf contains contentSchema else if items not oneOf prefixItems propertyNames then unevaluatedItems unevaluatedProperties";
/** Keywords with schemas by name. */
const MAPS = "$defs definitions dependencies dependentSchemas patternProperties properties";

const words = (text: string): ReadonlySet<string> => new Set(text.split(" "));
const schemas = words(SCHEMAS);
const maps = words(MAPS);
const known = words(`${ASSERTIONS} ${ANNOTATIONS} ${SCHEMAS} ${MAPS}`);

/** Those that a misspelt one may mean. */
export const SCHEMA_KEYWORDS: readonly string[] = `${ASSERTIONS} ${SCHEMAS} ${MAPS}`.split(" ");

interface UnknownKeyword {
  /** Of the keyword, from the root of the schema. */
  path: readonly (string | number)[];
  keyword: string;
  value: unknown;
}

/** Names that begin with `x-` are free. */
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
  // `dependencies` may have lists of names.
  return Object.entries(value).flatMap(([name, item]) =>
    isObject(item) ? unknownKeywords(item, [...path, name]) : [],
  );
}
