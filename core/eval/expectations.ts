/** Compares what came of a case with what is expected of it. */
import type { EvalTool } from "../../generated/types.ts";
import { messageOf } from "../lib/errors.ts";
import { isObject } from "../lib/is-object.ts";
import type { Eval } from "./load.ts";

/** One expectation that does not hold. */
export interface FailedExpectation {
  /** Its key below `expect`, or `answer` where there was none at all. */
  readonly expectation: string;
  readonly expected: string;
  readonly got: string;
}

/** What an agent answered, or how a workflow came to rest. */
export interface CaseOutcome {
  /** The answer as text: of a workflow its result as JSON. */
  readonly text: string;
  /** Undefined of an agent that was not asked for JSON: its text is parsed where a schema is to be checked. */
  readonly value: unknown;
  readonly tools: readonly { readonly name: string; readonly input: unknown }[];
  /** Null where nobody counts them. */
  readonly tokens: number | null;
  /** Of a workflow. */
  readonly status?: string;
}

/** Everything but the judge's question. */
export function failuresOf(wanted: Eval, outcome: CaseOutcome): FailedExpectation[] {
  return CHECKS.flatMap((check) => check(wanted, outcome) ?? []);
}

type Check = (wanted: Eval, outcome: CaseOutcome) => FailedExpectation | FailedExpectation[] | null;

const CHECKS: readonly Check[] = [
  ({ target, expect: { status: expected = "completed" } }, { status = "", text }) =>
    target.kind === "workflow" && status !== expected
      ? { expectation: "status", expected, got: text === "null" ? status : `${status}: ${text}` }
      : null,
  ({ expect: { tools } }, outcome) => (tools === undefined ? null : toolFailures(tools, outcome.tools)),
  ({ expect: { contains = [] } }, { text }) =>
    [contains]
      .flat()
      .filter((part) => !text.includes(part))
      .map((part) => ({ expectation: "contains", expected: JSON.stringify(part), got: JSON.stringify(text) })),
  ({ pattern, expect }, { text }) => {
    const problem = pattern === null ? null : problemsOf(pattern, text);
    if (problem === null) return null;
    return { expectation: "pattern", expected: `/${expect.pattern}/`, got: JSON.stringify(text) };
  },
  ({ schema }, outcome) => {
    if (schema === null) return null;
    const read = readValue(outcome);
    const got = "problem" in read ? read.problem : problemsOf(schema, read.value);
    return got === null ? null : { expectation: "schema", expected: "an answer of this schema", got };
  },
  ({ expect }, { value }) =>
    expect.result === undefined || holds(expect.result, value)
      ? null
      : { expectation: "result", expected: JSON.stringify(expect.result), got: JSON.stringify(value) },
  ({ expect: { maxTokens = Number.POSITIVE_INFINITY } }, { tokens }) =>
    tokens !== null && tokens > maxTokens
      ? { expectation: "maxTokens", expected: `at most ${maxTokens}`, got: String(tokens) }
      : null,
];

/** What is wrong with a value; too much work for its schema is wrong too. */
function problemsOf(schema: NonNullable<Eval["schema"]>, value: unknown): string | null {
  try {
    return schema.problems(value);
  } catch (error) {
    return messageOf(error);
  }
}

function readValue({ text, value }: CaseOutcome): { value: unknown } | { problem: string } {
  if (value !== undefined) return { value };
  try {
    return { value: JSON.parse(text) };
  } catch {
    return { problem: `no JSON: ${JSON.stringify(text)}` };
  }
}

function toolFailures(wanted: readonly EvalTool[], called: CaseOutcome["tools"]): FailedExpectation[] {
  const calls = wanted.map((tool) => (typeof tool === "string" ? { name: tool } : tool));
  const list = (tools: readonly { name: string }[]) => tools.map(({ name }) => name).join(", ") || "none";
  const [expected, got] = [list(calls), list(called)];
  if (expected !== got) return [{ expectation: "tools", expected, got }];
  return calls.flatMap(({ name, input }, index) => {
    const given = called[index]!.input;
    if (input === undefined || holds(input, given)) return [];
    return [
      {
        expectation: `tools[${index}].input`,
        expected: `${name} ${JSON.stringify(input)}`,
        got: JSON.stringify(given),
      },
    ];
  });
}

/** Maps may have more keys than are expected; everything else is equal. */
function holds(expected: unknown, value: unknown): boolean {
  if (Array.isArray(expected))
    return (
      Array.isArray(value) &&
      value.length === expected.length &&
      expected.every((each, index) => holds(each, value[index]))
    );
  if (!isObject(expected)) return expected === value;
  return (
    isObject(value) &&
    Object.entries(expected).every(([key, each]) => Object.hasOwn(value, key) && holds(each, value[key]))
  );
}
