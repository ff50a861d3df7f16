/** What is said of a keyword that JSON Schema does not know. */
import { isObject } from "../lib/is-object.ts";
import type { Path } from "../lib/problem.ts";
import { SCHEMA_KEYWORDS, unknownKeywords } from "../lib/schema-keywords.ts";
import { suggest } from "./issues.ts";

interface KeywordNotice {
  /** Of the keyword, from the root of the schema. */
  path: Path;
  message: string;
}

/** Whether a field stands where a keyword should. */
const isSchema = (value: unknown): boolean =>
  isObject(value) && ("type" in value || "$ref" in value || "enum" in value);

/** Each is a warning: JSON Schema leaves what it does not know to others, so that a schema from elsewhere may hold it on purpose. */
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
