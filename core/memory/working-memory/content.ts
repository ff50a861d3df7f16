/** What a working memory may contain, and how content is appended to it. */
import type { ValidateFunction } from "ajv";
import { isTooDeep, MAX_JSON_DEPTH } from "../../http/decode.ts";
import { canonicalJson } from "../../lib/canonical-json.ts";
import { invalid } from "../../lib/errors.ts";
import { isObject } from "../../lib/is-object.ts";
import { describeProblems, type SchemaCompiler } from "../../lib/json-schema.ts";
import { parseExactly } from "../../lib/large-integers.ts";
import type { MemoryManifest } from "../../manifest/manifest.ts";

type WorkingMemorySettings = NonNullable<MemoryManifest["workingMemory"]>;
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** Bounded, because it becomes part of every prompt. */
const MAX_CHARACTERS = 256 * 1024;

/** The rules of the working memory of one memory. Its content is markdown, or a JSON object. */
export interface WorkingMemoryRules {
  readonly settings: WorkingMemorySettings;
  /**
   * The new content as JSON text, as it is stored; for markdown it is the JSON text of a string.
   *
   * @param stored the JSON text that is stored now; undefined when there is none, or when it is to be replaced
   * @throws ServiceError `invalid_input` for content of the wrong kind, that does not match the schema, or that is too large
   */
  next(content: string | Record<string, unknown>, stored: string | undefined): string;
  /** The stored content for the API: markdown, or JSON text. */
  toApi(stored: string): string;
}

/** @throws Error when the schema does not compile */
export function createWorkingMemoryRules(
  settings: WorkingMemorySettings,
  compiler: SchemaCompiler,
): WorkingMemoryRules {
  if (settings.format === "markdown") {
    return {
      settings,
      next(content, stored) {
        if (typeof content !== "string") throw invalid("content must be a string: this working memory is markdown");
        checkSize(content);
        return checkSize(JSON.stringify(stored === undefined ? content : `${JSON.parse(stored)}\n\n${content}`));
      },
      toApi: (stored) => JSON.parse(stored) as string,
    };
  }
  const validate = settings.schema === undefined ? undefined : compiler.compile(settings.schema);
  return {
    settings,
    next(content, stored) {
      const value = parseObject(content);
      const merged = stored === undefined ? value : merge(JSON.parse(stored) as Json, value);
      check(validate, merged);
      return checkSize(JSON.stringify(merged));
    },
    toApi: (stored) => stored,
  };
}

/** @throws ServiceError `invalid_input` unless it is a JSON object that is neither too large nor nested too deeply */
function parseObject(content: string | Record<string, unknown>): Json {
  const text = typeof content === "string" ? content : stringifyContent(content);
  if (isTooDeep(Buffer.from(checkSize(text)))) throw tooDeepError();
  const value = typeof content === "string" ? parseOrNull(content) : (content as Json);
  if (isObject(value)) return value;
  throw invalid("content must be a JSON object: this working memory is JSON");
}

function stringifyContent(content: Record<string, unknown>): string {
  try {
    return JSON.stringify(content);
  } catch {
    // The arguments of a model's tool call may be nested so deeply that the stack overflows.
    throw tooDeepError();
  }
}

function parseOrNull(text: string): Json {
  try {
    return parseExactly(text) as Json;
  } catch {
    return null;
  }
}

const tooDeepError = () => invalid(`content is nested deeper than ${MAX_JSON_DEPTH} levels`);

function check(validate: ValidateFunction | undefined, value: Json): void {
  if (validate !== undefined && !validate(value)) throw invalid(describeProblems(validate.errors, "content"));
}

function checkSize(text: string): string {
  if (text.length > MAX_CHARACTERS)
    throw invalid(`content: a working memory may have at most ${MAX_CHARACTERS} characters`);
  return text;
}

/** Merges objects key by key and joins lists without duplicates; anything else is replaced. */
export function merge(old: Json, added: Json): Json {
  if (Array.isArray(old) && Array.isArray(added)) return union(old, added);
  if (!isObject(old) || !isObject(added)) return added;
  // `fromEntries` creates own properties for all keys, even for `__proto__`.
  const members = new Map(Object.entries(old));
  for (const [key, value] of Object.entries(added)) {
    const before = members.get(key);
    members.set(key, before === undefined ? value : merge(before, value));
  }
  return Object.fromEntries(members);
}

function union(old: readonly Json[], added: readonly Json[]): Json[] {
  const known = new Set(old.map(canonicalJson));
  const joined = [...old];
  for (const item of added) {
    const text = canonicalJson(item);
    if (known.has(text)) continue;
    known.add(text);
    joined.push(item);
  }
  return joined;
}
