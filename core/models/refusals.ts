/**
 * What a provider has refused in requests for one model, and what is sent in its place. It is learned from the words of the refusal, as
 * only some providers refuse it, and remembered until the process ends once the provider has taken the changed request.
 */
import { createHash } from "node:crypto";
import {
  APICallError,
  type LanguageModelV3FilePart,
  type LanguageModelV3Message,
  type LanguageModelV3ToolResultOutput,
} from "@ai-sdk/provider";
import { causesText } from "./causes-text.ts";
import { isSignatureError, type ModelRequest, refusedTools, withPlain } from "./failure.ts";

type Prompt = LanguageModelV3Message[];
type Content<R extends LanguageModelV3Message["role"]> = Extract<LanguageModelV3Message, { role: R }>["content"];
type Part = (Content<"user"> | Content<"assistant"> | Content<"tool">)[number];
type Call = Extract<Part, { type: "tool-call" }>;

interface Refusal {
  readonly error: unknown;
  readonly words: string;
  /** What of this kind is known, and the request without it. */
  readonly known: ReadonlySet<string>;
  readonly sent: ModelRequest;
  /** The request with all of this kind. */
  readonly before: ModelRequest;
}

/** One kind of what providers refuse. */
interface Remedy {
  readonly name: string;
  /** What of this kind is refused: types of files, names of tools. Nothing where the refusal is about something else. */
  find(refusal: Refusal): readonly string[];
  /** Gives the same request when there is nothing to change. */
  rewrite(request: ModelRequest, refused: ReadonlySet<string>): ModelRequest;
  /** Whether it is about this request alone: a broken image says nothing of others. */
  readonly isPassing?: true;
}

/** What one model does not take, by its kind. */
export type Refused = Map<Remedy, Set<string>>;

/** Most of one kind that is remembered: clients choose the types of their files and the names of their tools. */
const MAX_REMEMBERED = 1_000;
const MAX_WORDS = 4_000;
const MAX_NAMED = 8;
/** The only one of its kind. */
const ALL = ["all"];

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
const LISTS_TAKEN = /formats?\b|should be|one of/i;
/** Said by servers for which a message is one text. */
const TEXTS_ONLY = /content.{0,3} (?:must|should) be (?:a )?(?:valid )?string/i;

/** Whether a refusal of a type is about all such files: one whose type is listed as taken is broken. */
function isAboutAll(words: string, type: string): boolean {
  if (TEXTS_ONLY.test(words)) return true;
  return UNSUPPORTED.test(words) && !BROKEN.test(words) && !(LISTS_TAKEN.test(words) && isNamed(words, type));
}

const isNamed = (words: string, type: string) => words.includes(type.split("/")[1]!);

const ANSWERS: Remedy = { name: "answers", find: refusedAnswers, rewrite: changed(withPlainAnswers) };
const TOOLS: Remedy = { name: "tools", find: refusedTools, rewrite: withPlain };

/** In the order in which requests are rewritten: messages are joined last, as files of the last one stay. */
const DIALECTS: readonly Remedy[] = [
  {
    name: "files",
    find: ({ words, sent }) => refusedTypes(words, sent.prompt).filter((type) => isAboutAll(words, type)),
    rewrite: changed(withoutFiles),
  },
  {
    name: "files of this request",
    isPassing: true,
    find: ({ words, sent }) => refusedTypes(words, sent.prompt).filter((type) => !isAboutAll(words, type)),
    rewrite: changed(withoutFiles),
  },
  // Mistral.
  said("ids of calls", /tool call id .{1,200} must be .{1,80} length of 9/i, withIds(/^[a-zA-Z0-9]{9}$/)),
  said(
    "odd ids of calls",
    /(?:tool_?(?:use|call)s?\S{0,20}id|call_id|toolUseId).{0,120}(?:pattern|length|too long|invalid)/i,
    withIds(/^[a-zA-Z0-9_-]{1,40}$/),
  ),
  said(
    "blank texts",
    /non-?(?:empty|whitespace)|is blank|(?:text|content)\b.{0,60} (?:is|are|be) empty/i,
    withoutBlanks,
  ),
  // Templates of local models, and Gemini of calls behind another answer.
  said(
    "messages of one role in a row",
    /must alternate|immediately after a user turn|system message must be/i,
    withJoined,
  ),
];
/** Asked in this order what a refusal is about. */
const REMEDIES = [...DIALECTS, ANSWERS, TOOLS];
/** Answers are known by what they were before anything else was changed. */
const REWRITING = [ANSWERS, TOOLS, ...DIALECTS];

function changed(change: (prompt: Prompt, refused: ReadonlySet<string>) => Prompt): Remedy["rewrite"] {
  return (request, refused) => {
    if (refused.size === 0) return request;
    const prompt = change(request.prompt, refused);
    return prompt === request.prompt ? request : { ...request, prompt };
  };
}

/** What is known by the words of the refusal alone. */
function said(name: string, about: RegExp, change: (prompt: Prompt) => Prompt): Remedy {
  return { name, find: ({ words }) => (about.test(words) ? ALL : []), rewrite: changed(change) };
}

export function rewritten(request: ModelRequest, refused: Refused): ModelRequest {
  let current = request;
  for (const remedy of REWRITING) current = remedy.rewrite(current, refused.get(remedy) ?? NOTHING);
  return current;
}

/** What is refused, with what a refusal is about; null when nothing else can be sent for that. */
export function withRefusal(refused: Refused, error: unknown, request: ModelRequest): Refused | null {
  const words = wordsOf(error);
  let before = request;
  const learned = new Map<Remedy, Set<string>>();
  for (const remedy of REWRITING) {
    const known = refused.get(remedy) ?? NOTHING;
    const sent = remedy.rewrite(before, known);
    const found = remedy.find({ error, words, known, sent, before }).filter((each) => !known.has(each));
    if (found.length > 0 && remedy.rewrite(before, new Set(found)) !== before)
      learned.set(remedy, new Set([...known, ...found]));
    before = sent;
  }
  const first = REMEDIES.find((remedy) => learned.has(remedy));
  return first === undefined ? null : new Map([...refused, [first, learned.get(first)!]]);
}

const NOTHING: ReadonlySet<string> = new Set();

/** Keeps what a provider has accepted. @returns what is new, for the log */
export function remember(
  refused: Refused,
  accepted: Refused,
): { readonly refused: string; readonly named: string[] }[] {
  const added: { refused: string; named: string[] }[] = [];
  for (const [remedy, found] of accepted) {
    if (remedy.isPassing) continue;
    const own = refused.get(remedy) ?? new Set();
    const others = [...found].filter((each) => !own.has(each));
    if (others.length === 0) continue;
    added.push({ refused: remedy.name, named: others.slice(0, MAX_NAMED) });
    refused.set(remedy, new Set([...own, ...others].slice(-MAX_REMEMBERED)));
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
  const named = types.filter((type) => isNamed(words, type));
  if (named.length === 0 || named.length === types.length) return types;
  return LISTS_TAKEN.test(words) ? types.filter((type) => !named.includes(type)) : named;
}

/** The files of a part: itself, or those in the result of a tool. */
function filesIn(part: Part): { mediaType: string; filename?: string | undefined }[] {
  if (part.type === "file") return [part];
  if (part.type !== "tool-result" || part.output.type !== "content") return [];
  // A client may have posted one without its type.
  return part.output.value.flatMap((item) => ("data" in item && item.mediaType ? [item] : []));
}

const fileNote = ({ mediaType, filename }: Pick<LanguageModelV3FilePart, "mediaType" | "filename">) =>
  ({ type: "text", text: `[A file was here, which this model does not take: ${filename ?? mediaType}]` }) as const;

/** Notes in place of files of earlier messages, and of tools. What the user sends now is not left out. */
function withoutFiles(prompt: Prompt, types: ReadonlySet<string>): Prompt {
  const spoken = prompt.findLastIndex(({ role }) => role === "user");
  return mapParts(prompt, (part, index) => {
    if (index === spoken || !filesIn(part).some(({ mediaType }) => types.has(mediaType))) return part;
    if (part.type !== "tool-result" || part.output.type !== "content") return fileNote(part as LanguageModelV3FilePart);
    const value = part.output.value.map((item) =>
      "data" in item && types.has(item.mediaType) ? fileNote(item) : item,
    );
    return { ...part, output: { ...part.output, value } };
  });
}

/** Equal ids stay equal in every call, so that results still belong to their calls. */
function withIds(taken: RegExp): (prompt: Prompt) => Prompt {
  const idOf = (id: string) => createHash("sha256").update(id).digest("hex").slice(0, 9);
  return (prompt) =>
    mapParts(prompt, (part) =>
      "toolCallId" in part && !taken.test(part.toolCallId) ? { ...part, toolCallId: idOf(part.toolCallId) } : part,
    );
}

function withoutBlanks(prompt: Prompt): Prompt {
  return mapParts(prompt, (part) => {
    if (part.type === "text") return /\S/.test(part.text) ? part : null;
    if (part.type !== "tool-result" || (part.output.type !== "text" && part.output.type !== "error-text")) return part;
    return /\S/.test(part.output.value) ? part : { ...part, output: { ...part.output, value: "(nothing)" } };
  });
}

function withJoined(prompt: Prompt): Prompt {
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
  let isChanged = false;
  const all = prompt.flatMap((message, index) => {
    if (message.role === "system") return [message];
    const parts: readonly Part[] = message.content;
    const content = parts.flatMap((part) => change(part, index) ?? []);
    if (content.length === parts.length && content.every((part, at) => part === parts[at])) return [message];
    isChanged = true;
    return content.length === 0 ? [] : [{ ...message, content } as LanguageModelV3Message];
  });
  return isChanged ? all : prompt;
}

/*
 * Answers. Some providers refuse a call without the thought that led to it, while its turn goes on or for ever, and what other models have
 * signed. What is remembered is that such calls are refused, and digests of the answers with what others have signed.
 */
const BARE_CALLS = "calls without thoughts";
/** Before the digest of an answer whose calls are told in words, and of one without what others have signed. */
const [IN_WORDS, UNSIGNED] = ["w", "u"];

/** What has not been tried: calls without thoughts, all that is signed with the calls of the turn, and at last all calls. */
function refusedAnswers({ error, before: { prompt }, known }: Refusal): readonly string[] {
  if (!isSignatureError(error)) return [];
  const spoken = beginOfTurn(prompt);
  const answers = prompt.flatMap(({ role, content }, index) =>
    role === "assistant" ? [{ content, isOfTurn: index > spoken }] : [],
  );
  if (!known.has(BARE_CALLS) && answers.some(({ content }) => isBare(content))) return [BARE_CALLS];
  const inWords = (calls: typeof answers) =>
    calls.filter(({ content }) => content.some(isCall)).map(({ content }) => keyOf(IN_WORDS, content));
  const signed = answers.filter(({ content }) => content.some(isOfProvider) || content.some(isSigned));
  const found = [
    ...signed.map(({ content }) => keyOf(UNSIGNED, content)),
    ...inWords(answers.filter(({ isOfTurn }) => isOfTurn)),
  ];
  return found.some((key) => !known.has(key)) ? found : inWords(answers);
}

/** Forgets that calls without thoughts are refused, since the model has made some itself. */
export function forgetBareCalls(refused: Refused, answer: Content<"assistant">): void {
  const own = refused.get(ANSWERS);
  if (own === undefined || !isBare(answer)) return;
  own.delete(BARE_CALLS);
  if (own.size === 0) refused.delete(ANSWERS);
}

/** The index of the user's message that the turn answers: what the user says right behind results is one message with them for Anthropic. */
function beginOfTurn(prompt: Prompt): number {
  let before: LanguageModelV3Message["role"] = "system";
  let begin = -1;
  for (const [index, { role }] of prompt.entries()) {
    if (role === "user" && before !== "tool") begin = index;
    if (role !== "user") before = role;
  }
  return begin;
}

function withPlainAnswers(prompt: Prompt, known: ReadonlySet<string>): Prompt {
  const isBareRefused = known.has(BARE_CALLS);
  const hasDigests = known.size > (isBareRefused ? 1 : 0);
  const isKnown = (kind: string, content: Content<"assistant">) => hasDigests && known.has(keyOf(kind, content));
  let calls: Map<string, Call> | null = null;
  let isChanged = false;
  const plain = prompt.flatMap((message): Prompt => {
    if (message.role === "tool" && calls !== null) {
      const told = calls;
      return [{ role: "user", content: message.content.flatMap((part) => resultText(part, told)) }];
    }
    calls = null;
    if (message.role !== "assistant") return [message];
    const { content } = message;
    const isInWords = isKnown(IN_WORDS, content) || (isBareRefused && isBare(content));
    if (!isInWords && !isKnown(UNSIGNED, content)) return [message];
    isChanged = true;
    if (isInWords) calls = new Map(content.filter(isCall).map((call) => [call.toolCallId, call]));
    const kept = content.filter((part) => !isOfProvider(part) && !(isInWords && isCall(part)));
    if (kept.length === 0) return [];
    return [
      { role: "assistant", content: kept.map(({ providerOptions: _, ...part }) => part as (typeof kept)[number]) },
    ];
  });
  return isChanged ? plain : prompt;
}

const keyOf = (kind: string, content: Content<"assistant">): string =>
  kind + createHash("sha256").update(JSON.stringify(content)).digest("base64url").slice(0, 22);
const isCall = (part: Part): part is Call => part.type === "tool-call";
const isSigned = (part: Part): boolean => part.type !== "tool-approval-response" && part.providerOptions !== undefined;
const isBare = (content: Content<"assistant">): boolean =>
  content.some(isCall) && !content.some((part) => part.type === "reasoning" || isSigned(part));

/** Whether a part is reasoning, or a call that the provider has run: other providers refuse both. */
const isOfProvider = (part: Part): boolean =>
  part.type === "reasoning" ||
  part.type === "tool-result" ||
  (part.type === "tool-call" && part.providerExecuted === true);

/** A tool result as words of the user. If they were the assistant's, models would imitate them instead of calling tools. */
function resultText(part: Content<"tool">[number], calls: ReadonlyMap<string, Call>): Content<"user"> {
  if (part.type !== "tool-result") return [];
  const input = JSON.stringify(calls.get(part.toolCallId)?.input ?? {});
  const text = `(The result of your call of the tool ${part.toolName} with ${input}. It is not said by the user.)\n${outputText(part.output)}`;
  return [{ type: "text", text }];
}

function outputText(output: LanguageModelV3ToolResultOutput): string {
  switch (output.type) {
    case "execution-denied":
      return output.reason ?? "The call was denied.";
    case "content":
      return output.value.map((item) => (item.type === "text" ? item.text : "(a file)")).join("\n");
    default:
      return typeof output.value === "string" ? output.value : JSON.stringify(output.value);
  }
}

// What is learned of a model from its answers, for as long as the process lives.

export interface LearnedModel {
  /** Actual tokens per estimated token. */
  ratio: number;
  /** The limit that the provider named when it refused a prompt. */
  window: number | undefined;
  /** What its provider has refused in requests. */
  readonly refused: Refused;
}

export const learnedNothing = (): LearnedModel => ({ ratio: 1, window: undefined, refused: new Map() });

/** The weight of the last call in the average. */
const WEIGHT = 0.3;
/** For shorter prompts the count reflects what providers add to every call more than the text. */
const LEAST_TOKENS = 100;
const [LEAST_RATIO, MOST_RATIO] = [0.5, 8];

/** Adjusts the scale after a call. @param estimated tokens of the prompt before any correction @param counted by the provider */
export function learnTokens(scale: LearnedModel, estimated: number, counted: number): void {
  if (counted <= 0 || estimated < LEAST_TOKENS) return;
  const ratio = scale.ratio + WEIGHT * (counted / estimated - scale.ratio);
  scale.ratio = Math.min(MOST_RATIO, Math.max(LEAST_RATIO, ratio));
}

const MAXIMUM = /maximum[^.\d]{0,60}(\d[\d,]{0,15})|(\d[\d,]{0,15})\s{0,2}maximum/i;
const NUMBERS = /\d[\d,]{2,}/g;
const MAX_CHARACTERS = 16 * 1024;
const toNumber = (digits: string) => Number(digits.replaceAll(",", ""));

/**
 * The limit and the length of the prompt, in tokens, that a provider's error names; null when it does not.
 *
 * @param isQuoted whether a text of the error is not the provider's own
 */
export function statedLimit(
  error: unknown,
  isQuoted: (words: string) => boolean = () => false,
): { limit: number; used: number } | null {
  const text = causesText(error).slice(0, MAX_CHARACTERS);
  const match = MAXIMUM.exec(text);
  if (match === null || isQuoted(match[0])) return null;
  const limit = toNumber(match[1] ?? match[2]!);
  const used = Math.max(...[...text.matchAll(NUMBERS)].map(([digits]) => toNumber(digits)));
  return limit > 0 && used > limit && Number.isSafeInteger(used) ? { limit, used } : null;
}
