/**
 * Assembles the tool calls of an answer from their deltas. Servers omit many fields: the index, the id, the name in all deltas but
 * one. A delta belongs to the call with its index; without an index to the call with its id, or to the last call that was started.
 */
import { InvalidResponseDataError, type JSONObject } from "@ai-sdk/provider";
import { isObject } from "../../lib/is-object.ts";
import type { LanguageModelV3StreamPart } from "../../plugin/plugin.ts";
import type { WireToolCall } from "./wire.ts";

interface Call {
  readonly index: number | null;
  readonly wireId: string | null;
  /** Set when the name has arrived, and with it the first part. */
  id: string;
  name: string;
  input: string;
  /** Nesting of the input so far. Kept up to date, because parsing it again with every delta would take quadratic time. */
  readonly nesting: Nesting;
  extras: unknown;
}

/** How deeply JSON text is nested at its end, and whether it ends inside a string, or after a backslash in one. */
interface Nesting {
  depth: number;
  inText: boolean;
  escaped: boolean;
}

export class ToolCalls {
  readonly #calls: Call[] = [];
  readonly #byIndex = new Map<number, Call>();
  readonly #byId = new Map<string, Call>();
  readonly #ids = new Set<string>();

  add(delta: WireToolCall, parts: LanguageModelV3StreamPart[]): void {
    const index = typeof delta.index === "number" ? delta.index : null;
    const wireId = nonBlank(delta.id);
    const name = nonBlank(delta.function?.name);
    const piece = inputText(delta.function?.arguments);
    const call = this.#find(index, wireId, name, piece) ?? this.#begin(index, wireId);
    call.extras ??= delta.extra_content;
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

  /** Ends all calls, because the answer is complete. @param carried the metadata of the message, which the first call has */
  finish(parts: LanguageModelV3StreamPart[], metadataKey: string, carried: object | undefined): void {
    const calls = this.#calls.every(({ index }) => index !== null)
      ? this.#calls.toSorted((left, right) => left.index! - right.index!)
      : this.#calls;
    for (const [index, { id, name, input, extras }] of calls.entries()) {
      if (name === "") throw new InvalidResponseDataError({ data: input, message: "a tool call has no name" });
      parts.push({ type: "tool-input-end", id });
      const call = { type: "tool-call", toolCallId: id, toolName: name, input } as const;
      const own = { ...(isObject(extras) && { extra_content: extras }), ...(index === 0 && carried) };
      const providerMetadata = { [metadataKey]: own as JSONObject };
      parts.push(Object.keys(own).length === 0 ? call : { ...call, providerMetadata });
    }
  }

  #find(index: number | null, wireId: string | null, name: string | null, piece: string): Call | undefined {
    const call = this.#candidate(index, wireId, name);
    if (call === undefined || name === null || call.name === "") return call;
    // A server that gives every call the same index or id marks a new call by its name.
    if (call.name !== name || (wireId !== null && call.wireId !== null && call.wireId !== wireId)) return undefined;
    return piece.startsWith("{") && isComplete(call) ? undefined : call;
  }

  #candidate(index: number | null, wireId: string | null, name: string | null): Call | undefined {
    if (index !== null) return this.#byIndex.get(index);
    if (wireId !== null) return this.#byId.get(wireId);
    return name === null ? this.#calls.at(-1) : undefined;
  }

  #begin(index: number | null, wireId: string | null): Call {
    const call: Call = {
      index,
      wireId,
      id: "",
      name: "",
      input: "",
      nesting: { depth: 0, inText: false, escaped: false },
      extras: null,
    };
    this.#calls.push(call);
    if (index !== null) this.#byIndex.set(index, call);
    if (wireId !== null) this.#byId.set(wireId, call);
    return call;
  }

  /** The provider's id if it is there and unique within the answer; else a new one. */
  #ownId(wireId: string | null): string {
    const id = wireId !== null && !this.#ids.has(wireId) ? wireId : `call_${crypto.randomUUID()}`;
    this.#ids.add(id);
    return id;
  }
}

const nonBlank = (value: unknown): string | null => (typeof value === "string" && value.trim() !== "" ? value : null);

/** Returns the arguments as text; some servers send them as an object. */
function inputText(value: unknown): string {
  if (typeof value === "string") return value;
  return value === null || value === undefined ? "" : JSON.stringify(value);
}

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
