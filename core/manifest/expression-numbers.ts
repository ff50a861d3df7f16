/**
 * Makes CEL calculate with JSON numbers. CEL has integers (BigInt) and doubles, and refuses to mix them. Here literals are doubles,
 * like JSON numbers, and the remaining integers, such as the result of `size()`, may be combined with doubles.
 */
import { type ASTNode, Environment, type ParseResult } from "@marcbachmann/cel-js";
import { exactNumber } from "./expression-values.ts";

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
export function createEnvironment(names: readonly string[]): Environment {
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
export function useJsonNumbers(node: unknown, environment: Environment): void {
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
export function givesJson(node: unknown): boolean {
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
