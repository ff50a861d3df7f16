/** The rules of a scripted model: which one applies to a call, and what the model says then. */
import {
  compilePluginTemplate,
  type LanguageModelV3CallOptions,
  type LanguageModelV3Prompt,
  type Template,
} from "../../plugin/plugin.ts";
import type { Saying } from "./answer.ts";
import { scriptedFailure } from "./failure.ts";
import { fitSchema } from "./fit.ts";

export interface CallConfig {
  tool: string;
  input?: unknown;
}

/** A rule as it stands in the manifest. */
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
  /** One call has its output as `result`, several have a list. */
  single: boolean;
  next: Template | undefined;
  error: string | undefined;
}

/** What a model says to a call. Throws when a template of the rule fails on this input. */
export type Respond = (options: LanguageModelV3CallOptions) => Saying;

const SCOPE = ["input", "match"];
const KINDS = ["text", "call", "object", "error"] as const;

/** Throws an Error that names the rule (`replies[2]: ...`) and what is wrong with it. */
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
  const given = KINDS.filter((kind) => reply[kind] !== undefined);
  const pair = given.length === 2 && given[0] === "text" && given[1] === "error";
  if (given.length !== 1 && !pair)
    throw new Error(`: exactly one of ${KINDS.join(", ")} is needed (error may follow a text)`);
  if (reply.then !== undefined && reply.call === undefined) throw new Error(".then: only a rule with call has one");
  const calls = reply.call === undefined ? undefined : [reply.call].flat();
  const spoken = reply.text ?? reply.object;
  return {
    when: attempt(".when", () => new RegExp(reply.when ?? "", "i")),
    text:
      spoken === undefined
        ? undefined
        : attempt(reply.text === undefined ? ".object" : ".text", () => compilePluginTemplate(spoken, SCOPE)),
    calls: calls?.map(({ tool, input }) => ({
      tool,
      input: attempt(".call.input", () => compilePluginTemplate(input ?? {}, SCOPE)),
    })),
    single: !Array.isArray(reply.call),
    next:
      reply.then === undefined
        ? undefined
        : attempt(".then", () => compilePluginTemplate(reply.then, [...SCOPE, "result"])),
    error: reply.error,
  };
}

function attempt<T>(field: string, make: () => T): T {
  try {
    return make();
  } catch (error) {
    throw new Error(`${field}: ${(error as Error).message}`);
  }
}

function respond(rules: readonly Rule[], options: LanguageModelV3CallOptions): Saying {
  const input = lastUserText(options.prompt);
  for (const rule of rules) {
    const match = rule.when.exec(input);
    if (match === null) continue;
    const scope: Record<string, unknown> = { input, match: Array.from(match, (group) => group ?? "") };
    if (rule.calls === undefined) {
      const saying: Saying = {};
      if (rule.text !== undefined) saying.text = asText(rule.text(scope));
      if (rule.error !== undefined) saying.failure = scriptedFailure(rule.error);
      return saying;
    }
    const results = toolResults(options.prompt);
    if (results.length > 0) return { text: afterCall(rule, scope, results, options) };
    // A model that was offered no tools calls none.
    if (options.toolChoice?.type === "none" || !options.tools?.length) continue;
    return { calls: rule.calls.map((call) => ({ tool: call.tool, input: call.input(scope) })) };
  }
  return { text: wantsJson(options) ? jsonFor(options, parseObject(input), input) : input };
}

function afterCall(
  rule: Rule,
  scope: Record<string, unknown>,
  results: unknown[],
  options: LanguageModelV3CallOptions,
) {
  const result = rule.single ? results.at(-1) : results;
  if (rule.next !== undefined) return asText(rule.next({ ...scope, result }));
  return wantsJson(options) ? jsonFor(options, result, String(scope.input)) : JSON.stringify(result);
}

const wantsJson = (options: LanguageModelV3CallOptions) => options.responseFormat?.type === "json";

function jsonFor(options: LanguageModelV3CallOptions, hint: unknown, text: string): string {
  const schema = options.responseFormat?.type === "json" ? options.responseFormat.schema : undefined;
  return JSON.stringify(schema === undefined ? (hint ?? { text }) : fitSchema(schema, hint, text));
}

const asText = (value: unknown): string => (typeof value === "string" ? value : (JSON.stringify(value) ?? ""));

function parseObject(text: string): unknown {
  if (!/^\s*[{[]/.test(text)) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The text of the last message of the user; an empty string when there is none. */
export function lastUserText(prompt: LanguageModelV3Prompt): string {
  for (let index = prompt.length - 1; index >= 0; index--) {
    const message = prompt[index]!;
    if (message.role !== "user") continue;
    const [first] = message.content;
    if (message.content.length === 1 && first?.type === "text") return first.text;
    return message.content.map((part) => (part.type === "text" ? part.text : "")).join("");
  }
  return "";
}

/** The outputs of the tools that ran since the model spoke last, in order. */
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
