/**
 * Which parameters a model takes: what is known of common models by their name, what the manifest says, and what the provider
 * has refused.
 */
import { isObject } from "../../lib/is-object.ts";
import type { ModelSettings } from "../../plugin/plugin.ts";
import type { Body } from "./request-body.ts";

export interface ParameterRules {
  readonly omit: ReadonlySet<string>;
  readonly rename: ReadonlyMap<string, string>;
}

/** OpenAI's reasoning models, also behind the name of a vendor: `openai/gpt-5-mini`. */
const REASONING_MODELS = /(?:^|\/)(?:gpt-5|o1|o3|o4)[^/]*$/;
const SAMPLING = ["temperature", "top_p", "frequency_penalty", "presence_penalty"];
const LIMIT = "max_tokens";
const NEW_LIMIT = "max_completion_tokens";

/** What makes a request what it is: no rule takes it out. */
const ESSENTIAL: ReadonlySet<string> = new Set([
  "model",
  "messages",
  "stream",
  "tools",
  "tool_choice",
  "response_format",
]);

/** @param given of the manifest; a parameter that it renames, even to itself, is sent */
export function rulesFor(modelId: string, given: ModelSettings["parameters"]): ParameterRules {
  const rename = new Map(Object.entries(given.rename));
  const omit = new Set(given.omit);
  if (REASONING_MODELS.test(modelId)) {
    for (const name of SAMPLING) if (!rename.has(name)) omit.add(name);
    if (!rename.has(LIMIT)) rename.set(LIMIT, NEW_LIMIT);
  }
  return { omit, rename };
}

/** Changes the body. A value that the body has under the new name already takes precedence. */
export function applyRules(body: Body, { omit, rename }: ParameterRules): void {
  for (const name of omit) if (body[name] !== undefined && !ESSENTIAL.has(name)) body[name] = undefined;
  for (const [name, other] of rename) {
    const value = body[name];
    if (value === undefined || name === other || ESSENTIAL.has(name) || ESSENTIAL.has(other)) continue;
    body[name] = undefined;
    body[other] ??= value;
  }
}

/** What a model refused; it grows. */
export class LearnedRules implements ParameterRules {
  readonly omit = new Set<string>();
  readonly rename = new Map<string, string>();

  /** Remembers a parameter, and returns under which name its value is sent from now on, if at all. */
  refuse(parameter: string, words: string): string | null {
    const other = [LIMIT, NEW_LIMIT].find((name) => name !== parameter && words.includes(name));
    if ((parameter === LIMIT || parameter === NEW_LIMIT) && other !== undefined && !this.rename.has(other)) {
      this.rename.set(parameter, other);
      return other;
    }
    this.omit.add(parameter);
    return null;
  }
}

/** What the provider says of a request that it does not take, in a form that can be searched. */
interface Complaint {
  readonly code: string;
  /** The parameter at fault, where the provider names it in a field of its own. */
  readonly param: string;
  readonly words: string;
}

const MAX_WORDS = 4000;

/** Of OpenAI's `{error: {code, param, message}}`, and of FastAPI's `{detail: [{loc, msg}]}`, of which the first counts. */
export function readComplaint(data: unknown, text: string): Complaint {
  const root = isObject(data) ? data : {};
  const error = isObject(root.error) ? root.error : root;
  const { detail: details } = isObject(error.message) ? error.message : error;
  const [detail] = Array.isArray(details) ? details : [];
  if (isObject(detail)) {
    const loc = Array.isArray(detail.loc) ? detail.loc : [];
    return { code: asText(detail.type), param: asText(loc.at(-1)), words: asText(detail.msg).slice(0, MAX_WORDS) };
  }
  const words = [error.message, root.error, error.detail].find((each) => typeof each === "string") ?? text;
  return { code: asText(error.code), param: asText(error.param), words: asText(words).slice(0, MAX_WORDS) };
}

const asText = (value: unknown): string => (typeof value === "string" ? value : "");

/** Words that say that a parameter is not taken at all, as against a value that is out of range. */
const NOT_TAKEN =
  /unsupported|not (?:be )?(?:supported|permitted|allowed|enabled|recogni[sz]ed)|(?:does not|doesn't|don't) (?:support|allow)|unrecogni[sz]ed|unknown|unexpected|extra[ _](?:inputs|fields|forbidden)|deprecated|cannot both be|cannot find field/i;

/** The parameter of the body that the provider does not take, or null. */
export function refusedParameter(complaint: Complaint, body: Body): string | null {
  const sent = Object.keys(body).filter((name) => body[name] !== undefined && !ESSENTIAL.has(name));
  const { code, param, words } = complaint;
  // Another value might be taken, except of those that are sent without having been asked for.
  if (code === "unsupported_value" && !SAMPLING.includes(param)) return null;
  if (!NOT_TAKEN.test(`${code} ${words}`)) return null;
  if (sent.includes(param)) return param;
  // Where two are refused together, the one that matters less goes.
  const order = ["frequency_penalty", "presence_penalty", "top_p", ...sent];
  return order.find((name) => sent.includes(name) && names(words, name)) ?? null;
}

/** A name that is also an English word counts only in quotes. */
function names(words: string, parameter: string): boolean {
  const camel = parameter.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
  const plain = `\\b(?:${quoted(parameter)}|${quoted(camel)})\\b`;
  const distinct = parameter !== camel || parameter === "temperature" || parameter === "seed";
  return new RegExp(distinct ? plain : `["'\`]${plain}["'\`]`).test(words);
}

const quoted = (text: string): string => text.replace(/[^\w]/g, "\\$&");
