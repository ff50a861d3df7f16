/**
 * Which parameters a model accepts: what is known about common models by their name, what the manifest says, and what the provider
 * has refused.
 */
import { isObject } from "../../lib/is-object.ts";
import type { ModelSettings } from "../../plugin/plugin.ts";
import { DETAILS, THOUGHTS } from "./carried.ts";
import { validationDetails } from "./refused-call.ts";
import type { Body } from "./request-body.ts";

type Message = Body["messages"][number];

export interface ParameterRules {
  readonly omit: ReadonlySet<string>;
  readonly rename: ReadonlyMap<string, string>;
}

/** OpenAI's reasoning models, also after the name of a vendor: `openai/gpt-5-mini`. */
const REASONING_MODELS = /(?:^|\/)(?:gpt-5|o1|o3|o4)[^/]*$/;
const SAMPLING = ["temperature", "top_p", "frequency_penalty", "presence_penalty"];
const LIMIT = "max_tokens";
const NEW_LIMIT = "max_completion_tokens";
const OTHER_LIMIT: ReadonlyMap<string, string> = new Map([
  [LIMIT, NEW_LIMIT],
  [NEW_LIMIT, LIMIT],
]);

/** Parameters that no rule removes. */
const ESSENTIAL: ReadonlySet<string> = new Set([
  "model",
  "messages",
  "stream",
  "tools",
  "tool_choice",
  "response_format",
]);

/** Keys of messages to which rules apply as well: not every provider accepts the reasoning of its model back. */
const MESSAGE_KEYS = [...THOUGHTS, DETAILS];

/** @param given rules of the manifest; a parameter that it renames, even to itself, is sent */
export function rulesFor(modelId: string, given: ModelSettings["parameters"]): ParameterRules {
  const rename = new Map(Object.entries(given.rename));
  const omit = new Set(given.omit);
  if (REASONING_MODELS.test(modelId)) {
    for (const name of SAMPLING) if (!rename.has(name)) omit.add(name);
    if (!rename.has(LIMIT)) rename.set(LIMIT, NEW_LIMIT);
  }
  return { omit, rename };
}

/** Applies the rules to the body. A value that the body has under the new name already takes precedence. */
export function applyRules(body: Body, { omit, rename }: ParameterRules): void {
  for (const name of omit) if (body[name] !== undefined && !ESSENTIAL.has(name)) body[name] = undefined;
  for (const [name, other] of rename) {
    const value = body[name];
    if (value === undefined || name === other || ESSENTIAL.has(name) || ESSENTIAL.has(other)) continue;
    body[name] = undefined;
    body[other] ??= value;
  }
  for (const key of MESSAGE_KEYS) {
    // What is said of thoughts under their common name holds for them under the other too.
    const names = key === "reasoning" ? [key, THOUGHTS[0]] : [key];
    const spelling = names.map((name) => rename.get(name)).find((name) => name !== undefined);
    if (names.some((name) => omit.has(name)))
      body.messages = body.messages.map((message) => renamed(key, null, message));
    else if (spelling !== undefined && spelling !== key)
      body.messages = body.messages.map((message) => renamed(key, spelling, message));
  }
}

/** @param name the new key; null removes it */
function renamed(key: string, name: string | null, message: Message): Message {
  if (message[key] === undefined) return message;
  const { [key]: value, ...rest } = message;
  return name === null ? rest : { ...rest, [name]: value };
}

/** The parameters that a model has refused so far. */
export class LearnedRules implements ParameterRules {
  readonly omit = new Set<string>();
  readonly rename = new Map<string, string>();

  /**
   * Returns the name under which the parameter is sent from now on, or null if it is left out. A token limit is never left out, because
   * it bounds the cost of a call: it is tried under its other name.
   */
  refuse(parameter: string): string | null {
    const other = OTHER_LIMIT.get(parameter) ?? null;
    if (other === null) this.omit.add(parameter);
    else this.rename.set(parameter, other);
    return other;
  }

  add({ omit, rename }: ParameterRules): void {
    for (const name of omit) this.omit.add(name);
    // A rename whose new name is itself renamed would undo that one.
    for (const [name, other] of rename) if (!this.rename.has(other)) this.rename.set(name, other);
  }
}

/** A provider's error about a request, in a form that can be searched. */
interface Complaint {
  readonly code: string;
  /** The parameter at fault, if the provider names it in a separate field. */
  readonly param: string;
  readonly words: string;
}

const MAX_WORDS = 4000;

/** Reads OpenAI's `{error: {code, param, message}}`, and the first of FastAPI's `{detail: [{loc, msg}]}`. */
export function readComplaint(data: unknown, text: string): Complaint {
  const root = isObject(data) ? data : {};
  const error = isObject(root.error) ? root.error : root;
  const [detail] = validationDetails(data);
  if (detail !== undefined)
    return { code: detail.type, param: detail.place.at(-1) ?? "", words: detail.message.slice(0, MAX_WORDS) };
  const words = [error.message, root.error, error.detail].find((each) => typeof each === "string") ?? text;
  return { code: asText(error.code), param: asText(error.param), words: asText(words).slice(0, MAX_WORDS) };
}

const asText = (value: unknown): string => (typeof value === "string" ? value : "");

/** Words which say that a parameter is not supported at all, as opposed to a value that is out of range. */
const NOT_TAKEN =
  /unsupported|not (?:be )?(?:supported|permitted|allowed|enabled|recogni[sz]ed)|(?:does not|doesn't|don't) (?:support|allow)|unrecogni[sz]ed|unknown|unexpected|extra[ _](?:inputs|fields|forbidden)|deprecated|cannot both be|cannot find field/i;

/** The parameter of the body that the provider does not support, or null. */
export function refusedParameter(complaint: Complaint, body: Body): string | null {
  const sent = Object.keys(body).filter((name) => body[name] !== undefined && !ESSENTIAL.has(name));
  sent.push(...MESSAGE_KEYS.filter((key) => body.messages.some((message) => message[key] !== undefined)));
  const { code, param, words } = complaint;
  // Another value might be accepted; but sampling parameters may have been sent without being asked for.
  if (code === "unsupported_value" && !SAMPLING.includes(param)) return null;
  if (!NOT_TAKEN.test(`${code} ${words}`)) return null;
  if (sent.includes(param)) return param;
  // If the provider refuses a combination of two, the less important one is left out.
  const order = ["frequency_penalty", "presence_penalty", "top_p", ...sent];
  return order.find((name) => sent.includes(name) && names(words, name)) ?? null;
}

const QUOTES = ['"', "'", "`"];

/** Whether the words name the parameter. One that is also an English word counts only in quotes. */
function names(words: string, parameter: string): boolean {
  const camel = parameter.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
  const spellings = [parameter, camel];
  const distinct = parameter !== camel || parameter === "temperature" || parameter === "seed";
  if (distinct) return words.split(/\W+/).some((word) => spellings.includes(word));
  return spellings.some((name) => QUOTES.some((quote) => words.includes(`${quote}${name}${quote}`)));
}
