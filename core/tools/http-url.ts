/** The URL of an HTTP tool: text with expressions, each value encoded for its place, none in the host. */
import { compileExpression, type Evaluate, SCOPES, type Scope } from "../manifest/expression.ts";
import { splitTemplate } from "../manifest/template-text.ts";
import { encode, scalarText } from "./http-values.ts";

type CompiledUrl = { build: (scope: Scope) => URL } | { problem: string };

interface Placeholder {
  source: string;
  evaluate: Evaluate;
  /** Where the value goes: before the `?` it is a part of a path segment. */
  place: "path" | "query";
}

/** Stands for the value of an expression when the URL is checked. */
const SAMPLE = "x";
/** `.` and `..`, encoded or not: they would lead to another path than the one in the manifest. */
const DOT_SEGMENT = /^(?:\.|%2e){1,2}$/i;

export function compileUrl(text: string): CompiledUrl {
  const split = splitTemplate(text);
  if ("problem" in split) return { problem: split.problem };
  const parts: (string | Placeholder)[] = [];
  let before = "";
  for (const piece of split.pieces) {
    if (typeof piece === "string") {
      parts.push(piece);
      before += piece;
      continue;
    }
    const source = `{{ ${piece.source.trim()} }}`;
    if (before.includes("#")) return { problem: `${source} comes after #, which is never sent` };
    if (!/^https?:\/\/[^/?]+[/?]/i.test(before))
      return { problem: `${source}: scheme, host and port must not come from an expression` };
    const compiled = compileExpression(piece.source, SCOPES.httpTool);
    if ("problem" in compiled) return { problem: compiled.problem };
    parts.push({ source, evaluate: compiled.evaluate, place: before.includes("?") ? "query" : "path" });
    before += SAMPLE;
  }
  const problem = addressProblem(before);
  return problem === null ? { build: (scope) => build(parts, scope) } : { problem };
}

function addressProblem(address: string): string | null {
  if (!URL.canParse(address)) return "is not an address: write https://HOST/PATH";
  const { protocol, username, password } = new URL(address);
  if (protocol !== "http:" && protocol !== "https:") return `must begin with http:// or https://, not ${protocol}`;
  return username === "" && password === ""
    ? null
    : "must not contain a user name or password: send them in headers.authorization";
}

function build(parts: readonly (string | Placeholder)[], scope: Scope): URL {
  let address = "";
  /** The last placeholder in the path segment at the end of `address`. */
  let lastPlaceholder: Placeholder | null = null;
  for (const part of parts) {
    if (typeof part === "string") {
      const end = part.search(/[/?#]/);
      if (lastPlaceholder !== null && end !== -1) {
        refuseMisleading(address + part.slice(0, end), lastPlaceholder);
        lastPlaceholder = null;
      }
      address += part;
      continue;
    }
    const value = part.evaluate(scope);
    address += encode(scalarText(value, () => `url: ${part.source}`));
    if (part.place === "path") lastPlaceholder = part;
  }
  if (lastPlaceholder !== null) refuseMisleading(address, lastPlaceholder);
  return new URL(address);
}

/** Refuses an empty segment or a dot segment, which would reach another resource than the manifest means. */
function refuseMisleading(address: string, { source }: Placeholder): void {
  const segment = address.slice(address.lastIndexOf("/") + 1);
  if (segment === "" || DOT_SEGMENT.test(segment))
    throw new Error(`url: ${source} must not be ${JSON.stringify(decodeURIComponent(segment))}`);
}
