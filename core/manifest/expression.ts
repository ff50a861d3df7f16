/**
 * `{{ expression }}` in any JSON value. Expressions are CEL over JSON numbers: every number is a double as input and
 * output, so that `data.n + 1`, `10 / 4` and `size(list) / 2` give the expected results.
 */
import { type ASTNode, Environment, type ParseResult } from "@marcbachmann/cel-js";
import { messageOf } from "../lib/errors.ts";
import { type Advice, adviceForCall, adviceForName, habitIn, lengthsIn, withRemark } from "./expression-habits.ts";
import { exactNumber, plainJson, valueAsText, withMaps } from "./expression-values.ts";
import { hint, type Path } from "./manifest.ts";
import { hasTemplate, splitTemplate } from "./template-text.ts";

/*
 * Makes CEL calculate with JSON numbers. CEL has integers (BigInt) and doubles, and refuses to mix them. Here literals are doubles,
 * like JSON numbers, and the remaining integers, such as the result of `size()`, may be combined with doubles.
 */

type Numeric = number | bigint;

const ARITHMETIC: Readonly<Record<string, (a: Numeric, b: Numeric) => number>> = {
  "+": (a, b) => Number(a) + Number(b),
  "-": (a, b) => Number(a) - Number(b),
  "*": (a, b) => Number(a) * Number(b),
  "/": (a, b) => Number(a) / Number(b),
  "%": (a, b) => Number(a) % Number(b),
};

/** Overloads with doubles for functions that take integers: the signature, and the call with integers. */
const INDEXING: readonly (readonly [signature: string, call: string])[] = [
  ["string.substring(double): string", "a.substring(b)"],
  ["string.substring(double, double): string", "a.substring(b, c)"],
  ["string.substring(int, double): string", "a.substring(b, c)"],
  ["string.substring(double, int): string", "a.substring(b, c)"],
  ["string.indexOf(string, double): int", "a.indexOf(b, c)"],
  ["string.lastIndexOf(string, double): int", "a.lastIndexOf(b, c)"],
  ["string.split(string, double): list<string>", "a.split(b, c)"],
  ["timestamp(double): google.protobuf.Timestamp", "timestamp(a)"],
];

/** Creates an environment in which `names` are known and numbers are JSON numbers. */
function createEnvironment(names: readonly string[]): Environment {
  const environment = new Environment({ homogeneousAggregateLiterals: false });
  for (const name of names) environment.registerVariable(name, "dyn");
  for (const [operator, apply] of Object.entries(ARITHMETIC)) {
    environment.registerOperator(`int ${operator} double: double`, apply);
    environment.registerOperator(`double ${operator} int: double`, apply);
  }
  environment.registerOperator("double % double: double", ARITHMETIC["%"]!);
  environment.registerOperator("int == double: bool", (a: Numeric, b: Numeric) => Number(a) === Number(b));
  for (const [signature, call] of INDEXING) {
    let parsed: ParseResult | undefined;
    environment.registerFunction(signature, (...values: unknown[]) => {
      parsed ??= new Environment({ unlistedVariablesAreDyn: true }).parse(call);
      const [a, b, c] = values.map((value) => (typeof value === "number" ? BigInt(value) : value));
      return parsed({ a, b, c });
    });
  }
  return environment;
}

type Node = Omit<ASTNode, "args"> & { args: unknown };

const isNode = (value: unknown): value is Node => typeof (value as Node | null)?.op === "string";

/**
 * Turns the literals of an expression into doubles, and lets the branches of `a ? b : c` differ in type. Changes the tree in
 * place, which must not have been type-checked yet.
 */
function useJsonNumbers(node: unknown, environment: Environment): void {
  if (Array.isArray(node)) for (const item of node) useJsonNumbers(item, environment);
  if (!isNode(node)) return;
  const { op, args } = node;
  if (op === "value") {
    if (typeof args === "bigint") node.args = exactNumber(args);
    return;
  }
  useJsonNumbers(args, environment);
  for (const at of MIXED[op]?.(args as Node[]) ?? []) {
    const parts = args as Node[];
    parts[at] = anyType(parts[at]!, environment);
  }
}

/** Operands that may have any type: branches, items of a list, and a list that is indexed (its type demands integers). */
const MIXED: Readonly<Record<string, (parts: readonly Node[]) => number[]>> = {
  "?:": () => [1, 2],
  list: (parts) => [...parts.keys()],
  "[]": ([list]) => (list!.op === "list" || list!.op === "rcall" ? [0] : []),
};

/** Wraps a node of the tree in `dyn(node)`. */
function anyType(node: Node, environment: Environment): Node {
  const call = environment.parse("dyn(null)").ast as Node;
  (call.args as [string, unknown[]])[1][0] = node;
  return call;
}

/** Operators whose result is a boolean or text, whatever the operands. */
const SAFE_OPERATORS = ["==", "!=", "<", "<=", ">", ">=", "in", "&&", "||", "!_"];
const SAFE_FUNCTIONS =
  /^(has|string|bool|contains|startsWith|endsWith|matches|exists|exists_one|all|substring|split|join|trim|lowerAscii|upperAscii)$/;
/** Functions whose result consists of their arguments. */
const TRANSPARENT_FUNCTIONS = /^(dyn|map|filter)$/;

/** Operators whose result may be infinite or NaN, which JSON does not have; like that of `double()`. */
const ARITHMETIC_OPERATORS = Object.keys(ARITHMETIC);

/** Whether the result is always JSON if the scope is: then it need not be copied, however large `{{ data }}` is. */
function givesJson(node: unknown): boolean {
  if (Array.isArray(node)) return node.every(givesJson);
  if (!isNode(node)) return true;
  if (SAFE_OPERATORS.includes(node.op)) return true;
  if (ARITHMETIC_OPERATORS.includes(node.op)) return false;
  if (node.op === "value")
    return typeof node.args !== "bigint" && (node.args === null || typeof node.args !== "object");
  if (node.op === "[]" || node.op === ".") return givesJson((node.args as Node[])[0]);
  if (node.op !== "call" && node.op !== "rcall") return givesJson(node.args);
  const [name, ...rest] = node.args as [string, ...unknown[]];
  return SAFE_FUNCTIONS.test(name) || (TRANSPARENT_FUNCTIONS.test(name) && givesJson(rest));
}

/** The variables that expressions may use, by their place in the manifest. */
export const SCOPES = {
  agent: ["context", "user"],
  httpTool: ["input", "context", "user"],
  httpToolOutput: ["input", "context", "user", "status", "headers", "body"],
  workflow: ["data", "input", "state", "context", "user", "steps", "resume"],
  workflowError: ["data", "input", "state", "context", "user", "steps", "resume", "error"],
} as const;

/** JSON values by variable; every declared variable should be present, with null for no value. */
export type Scope = Readonly<Record<string, unknown>>;
/** Evaluates a compiled expression or template. Throws `ExpressionError`. */
export type Evaluate = (scope: Scope) => unknown;

/** An expression failed because of a missing field or a wrong type: the message names the expression. */
export class ExpressionError extends Error {
  override readonly name = "ExpressionError";
  readonly expression: string;

  constructor(expression: string, message: string) {
    super(`{{ ${expression} }}: ${message}`);
    this.expression = expression;
  }
}

interface ExpressionProblem {
  problem: string;
  /** Path of the text inside the value. */
  path: Path;
  /** Characters from the start of that text. */
  offset: number;
}

interface Compiled {
  evaluate: Evaluate;
  /** Ids of the steps to which it refers: `steps.total.x` -> `total`. */
  steps: readonly string[];
  /** The CEL type of the result: `bool`, or `dyn` when it is unknown; null for text and for plain values. */
  type: string | null;
  /** Expressions that compile, but probably do not mean what was intended. */
  warnings?: readonly ExpressionProblem[];
}

export type CompileResult = Compiled | ExpressionProblem;

/** Whether any string inside a JSON value contains `{{`. */
export function isTemplate(value: unknown): boolean {
  if (typeof value === "string") return hasTemplate(value);
  if (typeof value !== "object" || value === null) return false;
  return Object.values(value).some(isTemplate);
}

/**
 * Compiles a JSON value with `{{ }}` inside its strings. A string that is a single expression keeps the value's type; otherwise
 * the results are joined as text by `toText`, which may encode them for their place.
 */
export function compileTemplate(
  value: unknown,
  names: readonly string[],
  toText: (value: unknown) => string = valueAsText,
): CompileResult {
  if (!isTemplate(value)) return { evaluate: () => value, steps: [], type: null };
  if (typeof value === "string") return compileText(value, names, toText);
  const entries: [string, Evaluate][] = [];
  const steps: string[] = [];
  for (const [key, item] of Object.entries(value as object)) {
    const compiled = compileTemplate(item, names, toText);
    const part = Array.isArray(value) ? Number(key) : key;
    if ("problem" in compiled) return { ...compiled, path: [part, ...compiled.path] };
    entries.push([key, compiled.evaluate]);
    steps.push(...compiled.steps);
  }
  if (Array.isArray(value)) {
    const items = entries.map(([, evaluate]) => evaluate);
    return { evaluate: (scope) => items.map((evaluate) => evaluate(scope)), steps, type: null };
  }
  const evaluate: Evaluate = (scope) => {
    const result: Record<string, unknown> = {};
    for (const [key, item] of entries) result[key] = item(scope);
    return result;
  };
  return { evaluate, steps, type: null };
}

function compileText(text: string, names: readonly string[], toText: (value: unknown) => string): CompileResult {
  const split = splitTemplate(text);
  if ("problem" in split) return { ...split, path: [] };
  const { pieces } = split;
  const steps: string[] = [];
  const parts: (string | Evaluate)[] = [];
  const warnings: ExpressionProblem[] = [];
  let type: string | null = null;
  for (const piece of pieces) {
    if (typeof piece === "string") {
      parts.push(piece);
      continue;
    }
    const compiled = compileExpression(piece.source, names);
    if ("problem" in compiled) return { ...compiled, offset: piece.offset + compiled.offset };
    steps.push(...compiled.steps);
    for (const found of compiled.warnings ?? []) warnings.push({ ...found, offset: piece.offset + found.offset });
    type = compiled.type;
    parts.push(compiled.evaluate);
  }
  const [only] = parts;
  if (parts.length === 1 && typeof only === "function") return { evaluate: only, steps, type, warnings };
  const evaluate: Evaluate = (scope) => {
    let result = "";
    for (const part of parts) result += typeof part === "string" ? part : toText(part(scope));
    return result;
  };
  return { evaluate, steps, type: null, warnings };
}

const TYPE_NOUNS: Readonly<Record<string, string>> = {
  int: "a number",
  double: "a number",
  string: "text",
  null: "null",
};

/** Compiles one expression without braces around it (`if:` of a step); braces are accepted too. */
export function compileCondition(text: string, names: readonly string[]): CompileResult {
  const compiled = hasTemplate(text) ? compileTrimmed(text, names) : compileExpression(text, names);
  if ("problem" in compiled || compiled.type === "bool" || compiled.type === "dyn") return compiled;
  const type = compiled.type ?? "string";
  return { problem: `must give true or false, not ${TYPE_NOUNS[type] ?? type}`, path: [], offset: 0 };
}

/** Compiles the trimmed text. Offsets still refer to the whole text. */
function compileTrimmed(text: string, names: readonly string[]): CompileResult {
  const before = text.length - text.trimStart().length;
  const compiled = compileTemplate(text.trim(), names);
  const shifted = (found: ExpressionProblem) => ({ ...found, offset: before + found.offset });
  if ("problem" in compiled) return shifted(compiled);
  return { ...compiled, warnings: compiled.warnings?.map(shifted) ?? [] };
}

/** Compiles one CEL expression. */
export function compileExpression(text: string, names: readonly string[]): CompileResult {
  const source = text.trim();
  const offset = text.indexOf(source);
  if (source === "") return { problem: "the expression is empty", path: [], offset };
  try {
    const environment = createEnvironment(names);
    const parsed = environment.parse(source);
    const steps = stepIds(parsed.ast);
    useJsonNumbers(parsed.ast, environment);
    const { valid, type, error } = parsed.check();
    if (!valid) throw error;
    // `steps` grows while the workflow runs: a result that contains all of it must be copied.
    const isPlain = givesJson(parsed.ast) && !namesWhole(parsed.ast, "steps");
    const evaluateMaps: Evaluate = (scope) => {
      try {
        return plainJson(parsed(scope as Record<string, unknown>));
      } catch (thrown) {
        throw new ExpressionError(source, runtimeMessage(thrown, source));
      }
    };
    const evaluate: Evaluate = (scope) => {
      try {
        const value = parsed(scope as Record<string, unknown>);
        return isPlain ? value : plainJson(value);
      } catch (thrown) {
        const readable = withMaps(scope) as Scope;
        if (readable === scope) throw new ExpressionError(source, runtimeMessage(thrown, source));
        return evaluateMaps(readable);
      }
    };
    const warnings = lengthsIn(parsed.ast, source).map((advice) => placed(advice, source, offset));
    return { evaluate, steps, type: type ?? "dyn", warnings };
  } catch (error) {
    return placed(explain(error, names, source), source, offset);
  }
}

const placed = ({ message, offset }: Advice, source: string, start: number): ExpressionProblem => ({
  problem: `{{ ${excerpt(source, offset)} }}: ${message}`,
  path: [],
  offset: start + offset,
});

/** Length of the excerpt on either side of a problem. */
const EXCERPT_CHARACTERS = 60;

/** The part of an expression around an offset, within its line. */
function excerpt(source: string, offset: number): string {
  const start = Math.max(0, offset - EXCERPT_CHARACTERS);
  const end = Math.min(source.length, offset + EXCERPT_CHARACTERS);
  const near = source.slice(start, end).replace(/\s+/g, " ");
  return `${start > 0 ? "…" : ""}${near}${end < source.length ? "…" : ""}`;
}

interface CelFailure {
  name?: string;
  summary?: string;
  code?: string;
  range?: { start: number };
}

/** Advice on what to write instead, or else CEL's own message. */
function explain(error: unknown, names: readonly string[], source: string): Advice {
  const { summary = messageOf(error), name, range } = error as CelFailure;
  const offset = range?.start ?? 0;
  const unknown = /^Unknown variable: (.*)$/.exec(summary)?.[1];
  if (unknown !== undefined) return { message: unknownName(unknown, names, source.slice(0, offset)), offset };
  const call = /^found no matching overload for '(.*)'$/.exec(summary)?.[1];
  if (call !== undefined) return adviceForCall(source, call, offset);
  const habit = name === "ParseError" ? habitIn(source) : null;
  if (habit !== null) return habit;
  const message = summary.charAt(0).toLowerCase() + summary.slice(1).replace(/\bEOF$/, "the end");
  return { message: withRemark(message), offset };
}

function unknownName(name: string, names: readonly string[], before: string): string {
  const [, holder, start] = /(?<![\w.])([\w.]+)\.(\w+-)$/.exec(before) ?? [];
  if (holder !== undefined) return `this subtracts; for a name with "-" write ${holder}["${start}${name}"]`;
  return adviceForName(name, before) ?? `unknown name "${name}"${hint(name, names)}`;
}

/** CEL's summary, and for a missing field the object that lacks it. */
function runtimeMessage(thrown: unknown, source: string): string {
  const { summary, code, range } = thrown as CelFailure;
  const key = /^No such key: (.*)$/.exec(summary ?? "")?.[1];
  if (code !== "no_such_key" || key === undefined) return summary ?? messageOf(thrown);
  const holder = /(?<![\w.])[\d.]*([A-Za-z_][\w.]*)\.$/.exec(source.slice(0, range?.start ?? 0))?.[1];
  return `there is no "${key}"${holder === undefined ? "" : ` in ${holder}`}`;
}

/** Whether an expression uses a name as a whole, not only members of it (`name.x`, `name["x"]`). */
function namesWhole(node: unknown, name: string): boolean {
  if (Array.isArray(node)) return node.some((item) => namesWhole(item, name));
  const { op, args } = (node ?? {}) as Partial<ASTNode> & { args?: unknown };
  if (typeof op !== "string") return false;
  if (op === "id") return args === name;
  if (op !== "." && op !== "[]") return namesWhole(args, name);
  const [left, right] = args as [ASTNode, unknown];
  return (left.op !== "id" && namesWhole(left, name)) || (op === "[]" && namesWhole(right, name));
}

/** Ids in `steps.ID` and `steps["ID"]`. */
function stepIds(node: unknown): string[] {
  if (Array.isArray(node)) return node.flatMap(stepIds);
  const { op, args } = (node ?? {}) as Partial<ASTNode> & { args?: unknown };
  if (typeof op !== "string") return [];
  if (op === "." || op === "[]") {
    const [left, right] = args as [ASTNode, unknown];
    const key = op === "." ? right : (right as ASTNode).op === "value" ? (right as ASTNode).args : undefined;
    if (left.op === "id" && left.args === "steps" && typeof key === "string") return [key];
  }
  return stepIds(args);
}
