/**
 * What a provider has refused in the prompts for one model, and what is sent in its place. It is learned from the words of the refusal,
 * as only some providers refuse it, and remembered until the process ends once the provider has taken the changed prompt.
 */
import { createHash } from "node:crypto";
import { APICallError, type LanguageModelV3FilePart, type LanguageModelV3Message } from "@ai-sdk/provider";
import { causesText } from "./causes-text.ts";

type Prompt = LanguageModelV3Message[];
type Part = Exclude<LanguageModelV3Message["content"], string>[number];

interface Rule {
  /** Gives the same prompt when there is nothing to change. */
  rewrite(prompt: Prompt): Prompt;
  /** Whether it is about all such prompts: a broken image says nothing of others. */
  readonly lasts: boolean;
}

/** The rules for one model, by what they are about. */
export type PromptRules = Map<string, Rule>;

/** Most rules for one model: clients choose the types of their files. */
const MAX_RULES = 100;
/** Most rules that one call learns: each is another try. */
const MAX_TRIED = 8;
const MAX_WORDS = 4000;

/** Kinds of files by how their media types begin, and how providers call them. */
const KINDS: readonly (readonly [prefix: string, words: RegExp])[] = [
  ["image/", /image|vision|picture|mmproj|multi-?modal/i],
  ["audio/", /audio/i],
  ["video/", /video/i],
  ["application/", /pdf|document|\bfiles?\b/i],
];
/** That a model takes no such files, rather than that one of them is broken or too large. */
const UNSUPPORTED =
  /unsupported|(?:not|n't|only|cannot) (?:be )?(?:\w+ )?(?:support|accept|allow|enabled|available)|no endpoints|unknown variant|at most 0|invalid content type|mmproj|not a multi-?modal|should be/i;
/** That it is about this one file. */
const BROKEN = /image is valid|corrupt|decode|damaged|too large|exceeds?\b|could not (?:process|parse|read)/i;
/** That the types which an error names are those that are taken. */
const LISTS_TAKEN = /formats?\b|should be|one of|only/i;
/** Said by servers for which a message is one text. */
const TEXTS_ONLY = /content.{0,3} (?:must|should) be (?:a )?(?:valid )?string/i;

/** What refusals are about, how they are known by their words, and what is changed then. */
const REMEDIES: readonly (readonly [name: string, words: RegExp, rewrite: Rule["rewrite"]])[] = [
  // Mistral.
  ["ids of calls", /tool call id .{1,200} must be .{1,80} length of 9/i, withIds(/^[a-zA-Z0-9]{9}$/)],
  [
    "odd ids of calls",
    /(?:tool_?(?:use|call)s?\S{0,20}id|call_id|toolUseId).{0,120}(?:pattern|length|too long|invalid)/i,
    withIds(/^[a-zA-Z0-9_-]{1,40}$/),
  ],
  // Templates of local models, and Gemini of calls behind another answer.
  ["messages of one role in a row", /must alternate|immediately after a user turn|system message must be/i, joined],
  ["blank texts", /non-?(?:empty|whitespace)|is blank|(?:text|content)\b.{0,20} (?:is|are|be) empty/i, withoutBlanks],
];

export function rewritten(prompt: Prompt, rules: PromptRules): Prompt {
  let current = prompt;
  for (const { rewrite } of rules.values()) current = rewrite(current);
  return current;
}

/** Adds the rules that a refusal asks for and that change the prompt. @returns whether there are any */
export function learnRules(error: unknown, prompt: Prompt, tried: PromptRules): boolean {
  const words = wordsOf(error);
  const before = tried.size;
  const learn = (name: string, rule: Rule) => {
    if (!tried.has(name) && rule.rewrite(prompt) !== prompt) tried.set(name, rule);
  };
  if (before >= MAX_TRIED) return false;
  const lasts = (UNSUPPORTED.test(words) && !BROKEN.test(words)) || TEXTS_ONLY.test(words);
  for (const type of refusedTypes(words, prompt))
    learn(`files of type ${type}`, { rewrite: withoutFiles(type), lasts });
  for (const [name, about, rewrite] of REMEDIES) if (about.test(words)) learn(name, { rewrite, lasts: true });
  return tried.size > before;
}

/** Keeps what a provider has accepted. @returns what is new */
export function keepRules(rules: PromptRules, tried: PromptRules): string[] {
  const added: string[] = [];
  for (const [name, rule] of tried) {
    if (!rule.lasts || rules.has(name) || rules.size >= MAX_RULES) continue;
    rules.set(name, rule);
    added.push(name);
  }
  return added;
}

/** The first file of the last message that a refusal is about: its number among the parts, and its type. Null for none. */
export function refusedFile(error: unknown, prompt: Prompt): { part: number; mediaType: string } | null {
  const last = prompt.findLast(({ role }) => role === "user");
  if (last?.role !== "user") return null;
  const types = refusedTypes(wordsOf(error), [last]);
  for (const [index, part] of last.content.entries())
    if (part.type === "file" && types.includes(part.mediaType)) return { part: index + 1, mediaType: part.mediaType };
  return null;
}

function wordsOf(error: unknown): string {
  const body = APICallError.isInstance(error) ? `\n${error.responseBody}` : "";
  return `${causesText(error)}${body}`.slice(0, MAX_WORDS);
}

function refusedTypes(words: string, prompt: Prompt): string[] {
  const all = new Set<string>();
  mapParts(prompt, (part) => {
    for (const { mediaType } of filesIn(part)) all.add(mediaType);
    return part;
  });
  if (TEXTS_ONLY.test(words)) return [...all];
  const kinds = KINDS.filter(([, about]) => about.test(words)).map(([prefix]) => prefix);
  const types = [...all].filter((type) => words.includes(type) || kinds.some((prefix) => type.startsWith(prefix)));
  const named = types.filter((type) => words.includes(type.split("/")[1]!));
  if (named.length === 0 || named.length === types.length) return types;
  return LISTS_TAKEN.test(words) ? types.filter((type) => !named.includes(type)) : named;
}

/** The files of a part: itself, or those in the result of a tool. */
function filesIn(part: Part): { mediaType: string; filename?: string | undefined }[] {
  if (part.type === "file") return [part];
  if (part.type !== "tool-result" || part.output.type !== "content") return [];
  return part.output.value.flatMap((item) => ("data" in item ? [item] : []));
}

const fileNote = ({ mediaType, filename }: Pick<LanguageModelV3FilePart, "mediaType" | "filename">) =>
  ({ type: "text", text: `[A file was here, which this model does not take: ${filename ?? mediaType}]` }) as const;

/** Notes in place of files of earlier messages, and of tools. What the user sends now is not left out. */
function withoutFiles(type: string): Rule["rewrite"] {
  return (prompt) => {
    const spoken = prompt.findLastIndex(({ role }) => role === "user");
    return mapParts(prompt, (part, index) => {
      if (index === spoken || !filesIn(part).some(({ mediaType }) => mediaType === type)) return part;
      if (part.type !== "tool-result" || part.output.type !== "content")
        return fileNote(part as LanguageModelV3FilePart);
      const value = part.output.value.map((item) =>
        "data" in item && item.mediaType === type ? fileNote(item) : item,
      );
      return { ...part, output: { ...part.output, value } };
    });
  };
}

/** Equal ids stay equal in every call, so that results still belong to their calls. */
function withIds(taken: RegExp): Rule["rewrite"] {
  const idOf = (id: string) => createHash("sha256").update(id).digest("hex").slice(0, 9);
  return (prompt) =>
    mapParts(prompt, (part) =>
      "toolCallId" in part && !taken.test(part.toolCallId) ? { ...part, toolCallId: idOf(part.toolCallId) } : part,
    );
}

function withoutBlanks(prompt: Prompt): Prompt {
  return mapParts(prompt, (part) => {
    if (part.type === "text") return /\S/.test(part.text) ? part : null;
    const isNothing = part.type === "tool-result" && part.output.type === "text" && !/\S/.test(part.output.value);
    return isNothing ? { ...part, output: { type: "text", value: "(nothing)" } } : part;
  });
}

function joined(prompt: Prompt): Prompt {
  const all: Prompt = [];
  for (const message of prompt) {
    const last = all.at(-1);
    if (last?.role !== message.role) all.push(message);
    else if (last.role === "system")
      all[all.length - 1] = { ...last, content: `${last.content}\n\n${message.content}` };
    else all[all.length - 1] = { ...last, content: [...last.content, ...message.content] } as LanguageModelV3Message;
  }
  return all.length === prompt.length ? prompt : all;
}

/** @param change of a part in the message of that index; null leaves it out */
function mapParts(prompt: Prompt, change: (part: Part, message: number) => Part | null): Prompt {
  let changed = false;
  const all = prompt.flatMap((message, index) => {
    if (message.role === "system") return [message];
    const parts: readonly Part[] = message.content;
    const content = parts.flatMap((part) => change(part, index) ?? []);
    if (content.length === parts.length && content.every((part, at) => part === parts[at])) return [message];
    changed = true;
    return content.length === 0 ? [] : [{ ...message, content } as LanguageModelV3Message];
  });
  return changed ? all : prompt;
}
