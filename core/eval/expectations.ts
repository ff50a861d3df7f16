/** Compares the outcome of a case with its expectations. */
import type { EvalTool } from "../../generated/types.ts";
import { messageOf } from "../lib/errors.ts";
import { isObject } from "../lib/is-object.ts";
import type { Eval } from "./load.ts";

/** An expectation that was not met. */
export interface FailedExpectation {
  /** Its key in `expect`, or `answer` when there was no answer at all. */
  readonly expectation: string;
  readonly expected: string;
  readonly got: string;
}

/** The answer of an agent, or the result of a workflow. */
export interface CaseOutcome {
  /** The answer as text; for a workflow its result as JSON. */
  readonly text: string;
  /** Undefined for an agent that was not asked for JSON: its text is parsed if it has to match a schema. */
  readonly value: unknown;
  readonly tools: readonly { readonly name: string; readonly input: unknown }[];
  /** Null when no tokens were counted. */
  readonly tokens: number | null;
  /** The status, for a workflow. */
  readonly status?: string;
}

/** Checks every expectation except the judge's question. */
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

/** The problems of a value; a schema that takes too much work counts as one. */
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

/** Maps may have additional keys; everything else must be equal. */
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
