/**
 * Puts the tool calls of an answer together from their deltas. Servers leave out what they like: the index, the id, the name in
 * all deltas but one. A delta belongs to the call of its index; without one to that of its id, or to the last that was begun.
 */
import { InvalidResponseDataError } from "@ai-sdk/provider";
import type { LanguageModelV3StreamPart } from "../../plugin/plugin.ts";
import type { WireToolCall } from "./wire.ts";

interface Call {
  readonly index: number | null;
  readonly wireId: string | null;
  /** Set when the name has come, and with it the first part. */
  id: string;
  name: string;
  input: string;
  /** Of the input so far. Kept up to date, since parsing it with every delta would take the square of its length. */
  readonly nesting: Nesting;
  signature: string | null;
}

/** How deep JSON text is nested where it ends, and whether that is in a text, or behind a backslash in it. */
interface Nesting {
  depth: number;
  inText: boolean;
  escaped: boolean;
}

export class ToolCalls {
  readonly #metadataKey: string;
  readonly #calls: Call[] = [];
  readonly #byIndex = new Map<number, Call>();
  readonly #byId = new Map<string, Call>();
  readonly #ids = new Set<string>();

  /** @param metadataKey where a signature of Gemini stands in the provider's metadata of a call */
  constructor(metadataKey: string) {
    this.#metadataKey = metadataKey;
  }

  add(delta: WireToolCall, parts: LanguageModelV3StreamPart[]): void {
    const index = typeof delta.index === "number" ? delta.index : null;
    const wireId = nonBlank(delta.id);
    const name = nonBlank(delta.function?.name);
    const piece = inputText(delta.function?.arguments);
    const call = this.#find(index, wireId, name, piece) ?? this.#begin(index, wireId);
    call.signature ??= nonBlank(delta.extra_content?.google?.thought_signature);
    if (call.name === "" && name !== null) {
      call.name = name;
      call.id = this.#ownId(wireId ?? call.wireId);
      parts.push({ type: "tool-input-start", id: call.id, toolName: name });
      append(call, piece);
      if (call.input !== "") parts.push({ type: "tool-input-delta", id: call.id, delta: call.input });
      return;
    }
    append(call, piece);
    if (call.name !== "" && piece !== "") parts.push({ type: "tool-input-delta", id: call.id, delta: piece });
  }

  /** The answer is complete, and so are its calls. */
  finish(parts: LanguageModelV3StreamPart[]): void {
    const calls = this.#calls.every(({ index }) => index !== null)
      ? this.#calls.toSorted((left, right) => left.index! - right.index!)
      : this.#calls;
    for (const { id, name, input, signature } of calls) {
      if (name === "") throw new InvalidResponseDataError({ data: input, message: "a tool call has no name" });
      parts.push({ type: "tool-input-end", id });
      const call = { type: "tool-call", toolCallId: id, toolName: name, input } as const;
      const providerMetadata = { [this.#metadataKey]: { thoughtSignature: signature } };
      parts.push(signature === null ? call : { ...call, providerMetadata });
    }
  }

  #find(index: number | null, wireId: string | null, name: string | null, piece: string): Call | undefined {
    const call = this.#candidate(index, wireId, name);
    if (call === undefined || name === null || call.name === "") return call;
    // A server that gives every call the same index or id begins the next one with its name.
    if (call.name !== name || (wireId !== null && call.wireId !== null && call.wireId !== wireId)) return undefined;
    return piece.startsWith("{") && isComplete(call) ? undefined : call;
  }

  #candidate(index: number | null, wireId: string | null, name: string | null): Call | undefined {
    if (index !== null) return this.#byIndex.get(index);
    if (wireId !== null) return this.#byId.get(wireId);
    return name === null ? this.#calls.at(-1) : undefined;
  }

  #begin(index: number | null, wireId: string | null): Call {
    const call: Call = { index, wireId, id: "", name: "", input: "", nesting: newNesting(), signature: null };
    this.#calls.push(call);
    if (index !== null) this.#byIndex.set(index, call);
    if (wireId !== null) this.#byId.set(wireId, call);
    return call;
  }

  /** The provider's id, unless it has given it before or not at all: two calls of an answer never have the same. */
  #ownId(wireId: string | null): string {
    const id = wireId !== null && !this.#ids.has(wireId) ? wireId : `call_${crypto.randomUUID()}`;
    this.#ids.add(id);
    return id;
  }
}

const nonBlank = (value: unknown): string | null => (typeof value === "string" && value.trim() !== "" ? value : null);

/** Some servers send the arguments as the object that they stand for. */
function inputText(value: unknown): string {
  if (typeof value === "string") return value;
  return value === null || value === undefined ? "" : JSON.stringify(value);
}

const newNesting = (): Nesting => ({ depth: 0, inText: false, escaped: false });

function append(call: Call, piece: string): void {
  call.input += piece;
  const { nesting } = call;
  for (let index = 0; index < piece.length; index++) {
    const character = piece[index];
    if (nesting.escaped) nesting.escaped = false;
    else if (character === '"') nesting.inText = !nesting.inText;
    else if (nesting.inText) nesting.escaped = character === "\\";
    else if (character === "{" || character === "[") nesting.depth++;
    else if (character === "}" || character === "]") nesting.depth--;
  }
}

/** Whether the input is a whole object. */
const isComplete = ({ input, nesting: { depth, inText } }: Call): boolean => depth === 0 && !inText && input !== "";
