/** The rules of a scripted model: which one applies to a call, and what the model replies. */

import { APICallError } from "@ai-sdk/provider";
import {
  compilePluginTemplate,
  type LanguageModelV3CallOptions,
  type LanguageModelV3Prompt,
  type Template,
} from "../../plugin/plugin.ts";
import type { ScriptedReply } from "./answer.ts";
import { fitSchema } from "./fit.ts";

// The failures of scripted models, in the form of a real provider's failures.

/** The HTTP status that a real provider sends for each reason in error messages. */
const STATUSES: Readonly<Record<string, number>> = {
  "rate limited": 429,
  "timed out": 504,
  overloaded: 503,
  unavailable: 500,
  "refused the request": 400,
};

/** @param error one of the reasons above; any other text is the message of an `unavailable` */
function scriptedFailure(error: string): Error {
  const statusCode = Object.hasOwn(STATUSES, error) ? STATUSES[error]! : 500;
  return new APICallError({ message: error, url: "scripted:", requestBodyValues: {}, statusCode });
}

interface CallConfig {
  tool: string;
  input?: unknown;
}

/** A rule in the manifest. */
export interface ReplyConfig {
  when?: string;
  text?: string;
  call?: CallConfig | CallConfig[];
  object?: unknown;
  error?: string;
  then?: unknown;
}

interface Rule {
  when: RegExp;
  text: Template | undefined;
  calls: readonly { tool: string; input: Template }[] | undefined;
  /** Whether `call` is a single call: then `result` is its output, and otherwise a list of outputs. */
  single: boolean;
  next: Template | undefined;
  error: string | undefined;
}

/** Computes the reply to a call. Throws when a template of the rule fails for this input. */
type Respond = (options: LanguageModelV3CallOptions) => ScriptedReply;

const SCOPE = ["input", "match"];
const ACTIONS = ["text", "call", "object", "error"] as const;

/** @throws Error that names the rule (`replies[2]: ...`) and what is wrong with it */
export function compileReplies(replies: readonly ReplyConfig[], at: string): Respond {
  const rules = replies.map((reply, index) => {
    try {
      return compileRule(reply);
    } catch (error) {
      throw new Error(`${at}[${index}]${(error as Error).message}`);
    }
  });
  return (options) => respond(rules, options);
}

function compileRule(reply: ReplyConfig): Rule {
  const given = ACTIONS.filter((kind) => reply[kind] !== undefined);
  const pair = given.length === 2 && given[0] === "text" && given[1] === "error";
  if (given.length !== 1 && !pair)
    throw new Error(`: exactly one of ${ACTIONS.join(", ")} is needed (error may follow a text)`);
  if (reply.then !== undefined && reply.call === undefined) throw new Error(".then: only a rule with call has one");
  const calls = reply.call === undefined ? undefined : [reply.call].flat();
  const content = reply.text ?? reply.object;
  return {
    when: withField(".when", () => new RegExp(reply.when ?? "", "i")),
    text:
      content === undefined
        ? undefined
        : withField(reply.text === undefined ? ".object" : ".text", () => compilePluginTemplate(content, SCOPE)),
    calls: calls?.map(({ tool, input }) => ({
      tool,
      input: withField(".call.input", () => compilePluginTemplate(input ?? {}, SCOPE)),
    })),
    single: !Array.isArray(reply.call),
    next:
      reply.then === undefined
        ? undefined
        : withField(".then", () => compilePluginTemplate(reply.then, [...SCOPE, "result"])),
    error: reply.error,
  };
}

function withField<T>(field: string, make: () => T): T {
  try {
    return make();
  } catch (error) {
    throw new Error(`${field}: ${(error as Error).message}`);
  }
}

function respond(rules: readonly Rule[], options: LanguageModelV3CallOptions): ScriptedReply {
  const input = lastUserText(options.prompt);
  for (const rule of rules) {
    const match = rule.when.exec(input);
    if (match === null) continue;
    const scope: Record<string, unknown> = { input, match: Array.from(match, (group) => group ?? "") };
    if (rule.calls === undefined) {
      const reply: ScriptedReply = {};
      if (rule.text !== undefined) reply.text = toText(rule.text(scope));
      if (rule.error !== undefined) reply.failure = scriptedFailure(rule.error);
      return reply;
    }
    const results = toolResults(options.prompt);
    if (results.length > 0) return { text: replyAfterCall(rule, scope, results, options) };
    // Without tools the rule cannot apply.
    if (options.toolChoice?.type === "none" || !options.tools?.length) continue;
    return { calls: rule.calls.map((call) => ({ tool: call.tool, input: call.input(scope) })) };
  }
  return { text: wantsJson(options) ? jsonFor(options, parseObject(input), input) : input };
}

function replyAfterCall(
  rule: Rule,
  scope: Record<string, unknown>,
  results: unknown[],
  options: LanguageModelV3CallOptions,
) {
  const result = rule.single ? results.at(-1) : results;
  if (rule.next !== undefined) return toText(rule.next({ ...scope, result }));
  return wantsJson(options) ? jsonFor(options, result, String(scope.input)) : JSON.stringify(result);
}

const wantsJson = (options: LanguageModelV3CallOptions) => options.responseFormat?.type === "json";

function jsonFor(options: LanguageModelV3CallOptions, hint: unknown, text: string): string {
  const schema = options.responseFormat?.type === "json" ? options.responseFormat.schema : undefined;
  return JSON.stringify(schema === undefined ? (hint ?? { text }) : fitSchema(schema, hint, text));
}

const toText = (value: unknown): string => (typeof value === "string" ? value : (JSON.stringify(value) ?? ""));

function parseObject(text: string): unknown {
  if (!/^\s*[{[]/.test(text)) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The text of the last user message; an empty string when there is none. */
function lastUserText(prompt: LanguageModelV3Prompt): string {
  for (let index = prompt.length - 1; index >= 0; index--) {
    const message = prompt[index]!;
    if (message.role !== "user") continue;
    const [first] = message.content;
    if (message.content.length === 1 && first?.type === "text") return first.text;
    return message.content.map((part) => (part.type === "text" ? part.text : "")).join("");
  }
  return "";
}

/** The outputs of the tools that ran after the last message of the model, in order. */
function toolResults(prompt: LanguageModelV3Prompt): unknown[] {
  const results: unknown[] = [];
  for (let index = prompt.length - 1; index >= 0; index--) {
    const message = prompt[index]!;
    if (message.role !== "tool") break;
    const outputs: unknown[] = [];
    for (const part of message.content) {
      if (part.type !== "tool-result") continue;
      const { output } = part;
      outputs.push(output.type === "execution-denied" ? (output.reason ?? "denied") : output.value);
    }
    results.unshift(...outputs);
  }
  return results;
}
