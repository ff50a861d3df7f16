/** Recognises what people write in expressions out of habit, above all from JavaScript, and suggests the CEL for it. */
import type { ASTNode } from "@marcbachmann/cel-js";
import { suggest } from "./manifest.ts";

export interface Advice {
  message: string;
  /** Characters from the start of the expression. */
  offset: number;
}

/** What to write instead: a text, or one made from the operands on both sides. */
type Instead = string | ((before: string, after: string) => string);

/** `data.x?.y` -> `has(data.x) && has(data.x.y) ? data.x.y : null`. For a call or an index, checks what is before it. */
function optionalField(before: string, after: string): string {
  const isField = /^\w[\w.?]*$/.test(after);
  const whole = isField || after.endsWith("()") ? `${before}.${after.replaceAll("?.", ".")}` : before + after;
  const fields = (isField ? whole : before).replaceAll("?.", ".").split(".");
  const asked = fields.slice(1).map((_, index) => `has(${fields.slice(0, index + 2).join(".")})`);
  return `write ${asked.join(" && ") || `${before} != null`} ? ${whole} : null`;
}

/** Tokens that CEL never has, in the order in which they are tried at one place. Used only when an expression does not parse. */
const TOKENS: readonly [pattern: string, name: string, instead: Instead][] = [
  ["\\?\\.(?!\\d)", '"?."', optionalField],
  ["\\?\\?=?", '"??"', (before, after) => `write has(${before}) && ${before} != null ? ${before} : ${after}`],
  ["===", '"==="', "write =="],
  ["!==", '"!=="', "write !="],
  ["<>", '"<>"', "write !="],
  ["`", "template strings", 'write "Order " + string(data.id), or text with {{ data.id }} in it'],
  ["=>", "arrow functions", "name the item first, list.map(x, x.id), list.filter(x, x.ok), list.exists(x, x.ok)"],
  ["\\.\\.\\.", '"..."', "lists are joined with +, list + [1]"],
  ["\\*\\*", '"**"', "write a product, x * x"],
  ["\\+\\+|--|[-+*/%|&]=", "assignments", "an expression only gives a value, data.n + 1"],
  ["(?<![=!<>])=(?!=)", "assignments", "to compare write =="],
  ["(?<!\\|)\\|(?!\\|)", '"|"', "write || between conditions; a filter is a function, name.lowerAscii()"],
  ["(?<!&)&(?!&)", '"&"', "write && between conditions"],
  [";", '";"', "an expression ends without it"],
  ["\\/[^/\\s]+\\/[a-z]*\\.(?:test|exec)\\b", "regular expressions of this form", 'write text.matches("^a.*")'],
  [
    "(?<![\\w.])typeof\\b",
    '"typeof"',
    "write type(data.x) == string; types are string, double, bool, list, map, null_type",
  ],
  [
    "(?<![\\w.])instanceof\\b",
    '"instanceof"',
    "write type(data.x) == list; types are string, double, bool, list, map, null_type",
  ],
  ["(?<![\\w.])and\\b", '"and"', "write &&"],
  ["(?<![\\w.])or\\b", '"or"', "write ||"],
  ["(?<![\\w.])not\\b", '"not"', "write !"],
  ["(?<![\\w.])is\\b", '"is"', "write =="],
  ["(?<![\\w.])new\\b", '"new"', 'a time is timestamp("2026-11-23T10:00:00Z")'],
  ["(?<![\\w.])(?:if|then|else)\\b", '"if"', "write condition ? a : b"],
  ["(?<![\\w.])(?:function|return|const|let|var|await|async|void|delete)\\b", "statements", "write one expression"],
];

const TOKEN = new RegExp(TOKENS.map(([pattern]) => `(${pattern})`).join("|"));

/** The operand before a token: a path of names, or a literal. */
const OPERAND_BEFORE = /(?<![\w.])[A-Za-z_][\w.]*$/;
const OPERAND_AFTER = /^\s*([A-Za-z_][\w.]*(?:\?\.[A-Za-z_][\w.]*)*(?:\(\))?|"[^"]*"|'[^']*'|[\d.]+|\[\w*\]|\{\})/;

/** The first habit in an expression that does not parse. */
export function habitIn(source: string): Advice | null {
  const code = withoutLiterals(source);
  const found = TOKEN.exec(code);
  if (found === null) return null;
  const row = found.slice(1).findIndex((group) => group !== undefined);
  const [, name, instead] = TOKENS[row]!;
  const offset = found.index;
  if (typeof instead === "string") return { message: `CEL has no ${name}: ${instead}`, offset };
  const before = OPERAND_BEFORE.exec(source.slice(0, offset).trimEnd())?.[0] ?? "data.x";
  const after = OPERAND_AFTER.exec(source.slice(offset + found[0].length))?.[1] ?? "y";
  return { message: `CEL has no ${name}: ${instead(before, after)}`, offset };
}

/** Blanks the content of strings and comments, keeping the length: an unterminated one ends with the expression. */
const withoutLiterals = (source: string): string =>
  source.replace(/"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?|\/\/[^\n]*/g, (text) => " ".repeat(text.length));

/** Names from other languages, and advice. */
const NAMES: Readonly<Record<string, string>> = {
  ...named("undefined nil None NULL Null", "write null"),
  ...named("True TRUE", "write true"),
  ...named("False FALSE", "write false"),
  Math: "write a > b ? a : b for the larger of two",
  JSON: "an expression alone in {{ }} gives the value itself, and within text its JSON",
  Date: 'CEL has no clock: write timestamp("2026-11-23T10:00:00Z") or take the time from the input',
  ...named("Object Array", "write size(x), x.map(key, ...) or type(x) == list"),
  ...named("process env", `a variable of the environment is written \${NAME}, outside of {{ }}`),
};

/** Functions from other languages, and what to write in CEL. */
const FUNCTIONS: Readonly<Record<string, string>> = {
  includes: 'write "a" in list, or text.contains("a")',
  ...named("toUpperCase upper", "write text.upperAscii()"),
  ...named("toLowerCase lower", "write text.lowerAscii()"),
  ...named("slice substr charAt", "write text.substring(0, 3); an item of a list is list[0]"),
  at: "write list[0]; the last one is list[size(list) - 1]",
  ...named("some any", "write list.exists(x, x.ok)"),
  every: "write list.all(x, x.ok)",
  ...named("find first", "write list.filter(x, x.ok)[0]"),
  ...named("forEach reduce sum flat flatMap sort reverse", "do it in a step plugin"),
  ...named("toString String str", "write string(x)"),
  ...named("parseInt parseFloat Number float", "write double(text), or int(text)"),
  Boolean: 'write bool("true"), or compare: x != null',
  ...named("len length count", "write size(x)"),
  ...named("isEmpty empty", "write size(x) == 0"),
  ...named("push concat append", "write list + [x], or text + text"),
  ...named("replace replaceAll toFixed", "do it in a step plugin"),
  ...named("hasOwnProperty has", 'write has(x.name), or "name" in x'),
  get: 'write x["name"]',
  ...named("test match", 'write text.matches("^a.*")'),
  ...named("trimStart trimEnd strip", "write text.trim()"),
  ...named("equals eq", "write =="),
  isArray: "write type(x) == list",
  now: "CEL has no clock: take the time from the input",
  ...named("coalesce default orValue", "write has(data.x) ? data.x : 0"),
};

/** The functions of CEL, without those that only times and bytes have. */
const KNOWN_FUNCTIONS =
  "all bool bytes contains double duration dyn endsWith exists exists_one filter has indexOf int join lastIndexOf lowerAscii map matches size split startsWith string substring timestamp trim type upperAscii".split(
    " ",
  );

function named(names: string, instead: string): Record<string, string> {
  return Object.fromEntries(names.split(" ").map((name) => [name, instead]));
}

const lookup = (table: Readonly<Record<string, string>>, name: string) =>
  Object.hasOwn(table, name) ? table[name] : undefined;

/**
 * Advice about an unknown name, if it is a habit from another language.
 *
 * @param before the text of the expression up to the name
 */
export function adviceForName(name: string, before: string): string | undefined {
  // CEL's own functions accept the name of an item; in an unknown one, such as `list.some(x, x.ok)`, the function is the mistake.
  const caller = /\.([A-Za-z_]\w*)\(\s*$/.exec(before)?.[1];
  const instead = caller === undefined ? undefined : lookup(FUNCTIONS, caller);
  if (instead !== undefined) return `there is no function ${caller}() for this: ${instead}`;
  const meant = lookup(NAMES, name);
  return meant === undefined ? undefined : `unknown name "${name}": ${meant}`;
}

/**
 * Advice about a call of a function that CEL does not have.
 *
 * @param call the call in CEL's message, such as `dyn.includes(string)`
 * @param start of the call in the expression
 */
export function adviceForCall(source: string, call: string, start: number): Advice {
  const name = /(?<!\w)([A-Za-z_]\w*)\(/.exec(call)?.[1] ?? "";
  const offset = Math.max(start, withoutLiterals(source).indexOf(`${name}(`, start));
  const instead = lookup(FUNCTIONS, name);
  if (instead !== undefined) return { message: `there is no function ${name}() for this: ${instead}`, offset };
  if (KNOWN_FUNCTIONS.includes(name)) return { message: `${name}() does not take these values: ${call}`, offset };
  const near = suggest(name, KNOWN_FUNCTIONS);
  const hint = near === undefined ? `CEL has ${KNOWN_FUNCTIONS.join(", ")}` : `did you mean ${near}()?`;
  return { message: `there is no function ${name}(): ${hint}`, offset };
}

/** Other messages of CEL that are caused by habits, and what to write. */
const REMARKS: readonly [RegExp, string][] = [
  [/^logical operator requires bool operands/i, "a default is has(data.x) ? data.x : 0"],
  [/^no such overload: (string \+ \w+|\w+ \+ string)$/, "text is joined to text, string(x)"],
  [/^no such overload: (string \w|\w+ [<>=!]+ string)/, "a number is double(text), a text string(number)"],
  [/^(expected|unexpected) .*COLON, got/i, "write condition ? a : b"],
];

/** CEL's own message, with advice if a known habit is the cause. */
export function withRemark(message: string): string {
  const remark = REMARKS.find(([pattern]) => pattern.test(message))?.[1];
  return remark === undefined ? message : `${message}; ${remark}`;
}

/** Advice for every `.length` of a tree. It may be a field of the data, so this is only a warning. */
export function lengthsIn(node: unknown, source: string): Advice[] {
  if (Array.isArray(node)) return node.flatMap((item) => lengthsIn(item, source));
  const { op, args, end } = (node ?? {}) as Partial<ASTNode> & { args?: unknown; end?: number };
  if (typeof op !== "string") return [];
  const inside = lengthsIn(args, source);
  if (op !== "." || end === undefined) return inside;
  const [left, field] = args as [ASTNode & { start: number; end: number }, unknown];
  if (field !== "length") return inside;
  const holder = source.slice(left.start, left.end);
  const message = `lists and texts have no "length" in CEL: write size(${holder}); a field of this name is ${holder}["length"]`;
  return [...inside, { message, offset: end - "length".length }];
}
