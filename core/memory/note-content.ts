/** What a working memory may hold, and how something is appended to it. */
import { isDeepStrictEqual } from "node:util";
import type { ValidateFunction } from "ajv";
import { invalid } from "../errors.ts";
import { describeProblems, type SchemaCompiler } from "../json-schema.ts";
import type { MemoryManifest } from "../manifest/manifest.ts";

export type WorkingMemorySettings = NonNullable<MemoryManifest["workingMemory"]>;
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** Characters of a note: it goes into every prompt. */
const LARGEST = 256 * 1024;

/** The rules of one memory's notes. Notes are markdown, or JSON objects. */
export interface NoteRules {
  readonly settings: WorkingMemorySettings;
  /**
   * The JSON text of the note to be stored: that of a string for markdown.
   *
   * @param stored JSON text of the note so far; undefined: there is none, or it is replaced
   * @throws ServiceError `invalid_input` for content of the wrong kind, that fails the schema, or is too large
   */
  next(content: string | Record<string, unknown>, stored: string | undefined): string;
  /** The note as the API gives it: markdown, or JSON text. */
  shown(stored: string): string;
}

/** @throws Error when the schema does not compile */
export function createNoteRules(settings: WorkingMemorySettings, compiler: SchemaCompiler): NoteRules {
  if (settings.format === "markdown") {
    return {
      settings,
      next(content, stored) {
        if (typeof content !== "string") throw invalid("content must be a string: this working memory is markdown");
        return bounded(JSON.stringify(stored === undefined ? content : `${JSON.parse(stored)}\n\n${content}`));
      },
      shown: (stored) => JSON.parse(stored) as string,
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
    shown: (stored) => stored,
  };
}

function objectOf(content: string | Record<string, unknown>): Json {
  let value: unknown = content;
  if (typeof content === "string") {
    try {
      value = JSON.parse(content);
    } catch {
      throw invalid("content must be a JSON object: this working memory is JSON");
    }
  }
  if (isObject(value as Json)) return value as Json;
  throw invalid("content must be a JSON object: this working memory is JSON");
}

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
  const plain = new Set<Json>(old.filter((item) => !isComposite(item)));
  const composite = old.filter(isComposite);
  const joined = [...old];
  for (const item of added) {
    if (isComposite(item)) {
      if (composite.some((one) => isDeepStrictEqual(one, item))) continue;
      composite.push(item);
    } else {
      if (plain.has(item)) continue;
      plain.add(item);
    }
    joined.push(item);
  }
  return joined;
}

const isComposite = (value: Json): boolean => typeof value === "object" && value !== null;

function isObject(value: Json): value is { [key: string]: Json } {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
