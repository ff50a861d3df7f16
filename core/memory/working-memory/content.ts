/** What a working memory may hold, and how something is appended to it. */

import type { ValidateFunction } from "ajv";
import { DEEPEST, tooDeep } from "../../http/decode.ts";
import { invalid } from "../../lib/errors.ts";
import { isObject } from "../../lib/is-object.ts";
import { describeProblems, type SchemaCompiler } from "../../lib/json-schema.ts";
import type { MemoryManifest } from "../../manifest/manifest.ts";

type WorkingMemorySettings = NonNullable<MemoryManifest["workingMemory"]>;
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** Characters of a note: it goes into every prompt. */
const LARGEST = 256 * 1024;

/** The rules of one memory's notes. Notes are markdown, or JSON objects. */
export interface WorkingMemoryRules {
  readonly settings: WorkingMemorySettings;
  /**
   * The JSON text of the note to be stored: that of a string for markdown.
   *
   * @param stored JSON text of the note so far; undefined: there is none, or it is replaced
   * @throws ServiceError `invalid_input` for content of the wrong kind, that fails the schema, or is too large
   */
  next(content: string | Record<string, unknown>, stored: string | undefined): string;
  /** The note as the API gives it: markdown, or JSON text. */
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
        bounded(content);
        return bounded(JSON.stringify(stored === undefined ? content : `${JSON.parse(stored)}\n\n${content}`));
      },
      toApi: (stored) => JSON.parse(stored) as string,
    };
  }
  const validate = settings.schema === undefined ? undefined : compiler.compile(settings.schema);
  return {
    settings,
    next(content, stored) {
      const value = objectOf(content);
      const merged = stored === undefined ? value : merge(JSON.parse(stored) as Json, value);
      check(validate, merged);
      return bounded(JSON.stringify(merged));
    },
    toApi: (stored) => stored,
  };
}

/** @throws ServiceError `invalid_input` unless it is a JSON object that may be merged: neither too large nor too deep */
function objectOf(content: string | Record<string, unknown>): Json {
  const text = typeof content === "string" ? content : textOf(content);
  if (tooDeep(Buffer.from(bounded(text)))) throw nested();
  const value = typeof content === "string" ? parsed(content) : (content as Json);
  if (isObject(value)) return value;
  throw invalid("content must be a JSON object: this working memory is JSON");
}

function textOf(content: Record<string, unknown>): string {
  try {
    return JSON.stringify(content);
  } catch {
    // What comes from a model may be deeper than a body, and than the stack.
    throw nested();
  }
}

function parsed(text: string): Json {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return null;
  }
}

const nested = () => invalid(`content is nested deeper than ${DEEPEST} levels`);

function check(validate: ValidateFunction | undefined, value: Json): void {
  if (validate !== undefined && !validate(value)) throw invalid(describeProblems(validate.errors, "content"));
}

function bounded(text: string): string {
  if (text.length > LARGEST) throw invalid(`content: a working memory may have at most ${LARGEST} characters`);
  return text;
}

/** Objects are merged key by key, lists joined without duplicates; anything else is replaced. */
export function merge(old: Json, added: Json): Json {
  if (Array.isArray(old) && Array.isArray(added)) return union(old, added);
  if (!isObject(old) || !isObject(added)) return added;
  // `fromEntries` makes own members of everything, `__proto__` too.
  const members = new Map(Object.entries(old));
  for (const [key, value] of Object.entries(added)) {
    const before = members.get(key);
    members.set(key, before === undefined ? value : merge(before, value));
  }
  return Object.fromEntries(members);
}

function union(old: readonly Json[], added: readonly Json[]): Json[] {
  const known = new Set(old.map(canonical));
  const joined = [...old];
  for (const item of added) {
    const text = canonical(item);
    if (known.has(text)) continue;
    known.add(text);
    joined.push(item);
  }
  return joined;
}

/** The same text for equal values, and different text for different ones. */
function canonical(value: Json): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
  // The mark before the others: V8 hashes texts of digits by their value, which whoever sends them can choose.
  if (!isObject(value)) return `=${JSON.stringify(value)}`;
  const members = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${members.map(([key, member]) => `${JSON.stringify(key)}:${canonical(member)}`).join()}}`;
}
