/** Warnings about keywords that JSON Schema does not know. */
import { isObject } from "../lib/is-object.ts";
import type { Path } from "../lib/problem.ts";
import { SCHEMA_KEYWORDS, unknownKeywords } from "../lib/schema-keywords.ts";
import { suggest } from "./issues.ts";

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
