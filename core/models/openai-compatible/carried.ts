/**
 * What a provider sends with an answer and wants back: thoughts under the name under which they came, their details, and extras of the
 * message or of a call. It is in the metadata of the parts of the answer: of a call `extra_content`, and of one part of the message
 * `message`, of thoughts their `name`.
 */
import type { SharedV3ProviderMetadata } from "@ai-sdk/provider";
import { isObject } from "../../lib/is-object.ts";
import type { WireDelta } from "./wire.ts";

type Fields = Record<string, unknown>;
type Carrier = { readonly providerOptions?: SharedV3ProviderMetadata | undefined };

export const THOUGHTS = ["reasoning_content", "reasoning"] as const;
export type ThoughtName = (typeof THOUGHTS)[number];
export const DETAILS = "reasoning_details";
const EXTRAS = "extra_content";

/** Collects it from the deltas of one answer. */
export class Carried {
  #name: ThoughtName = "reasoning_content";
  #thought = "";
  #details: Fields[] = [];
  #extras: unknown;

  get name(): ThoughtName {
    return this.#name;
  }

  thought(name: ThoughtName, text: string): void {
    this.#name = name;
    this.#thought += text;
  }

  add({ [DETAILS]: details, [EXTRAS]: extras }: WireDelta): void {
    if (Array.isArray(details)) for (const detail of details) if (isObject(detail)) this.#addDetail(detail);
    if (isObject(extras)) this.#extras = isObject(this.#extras) ? { ...this.#extras, ...extras } : extras;
  }

  /** The metadata of thoughts; undefined for those under the common name. */
  ofThoughts(): Fields | undefined {
    return this.#name === "reasoning_content" ? undefined : { name: this.#name };
  }

  /** That of the last part of the answer. @param withThoughts a call has the thoughts too: not every client has their parts */
  ofMessage(withThoughts: boolean): Fields | undefined {
    const message: Fields = {};
    if (this.#details.length > 0) message[DETAILS] = this.#details;
    else if (withThoughts && this.#thought !== "") message[this.#name] = this.#thought;
    if (this.#extras !== undefined) message[EXTRAS] = this.#extras;
    return Object.keys(message).length === 0 ? undefined : { message };
  }

  /** Texts of one detail come in pieces, with its index; what comes whole has an id of its own. */
  #addDetail(piece: Fields): void {
    const { type, index, id } = piece;
    const isSame = (each: Fields) =>
      each.type === type && each.index === index && (each.id == null || id == null || each.id === id);
    const known = index == null ? this.#details.slice(-1).find(isSame) : this.#details.findLast(isSame);
    if (known === undefined || (index == null && "data" in piece)) {
      this.#details.push({ ...piece });
      return;
    }
    for (const [key, value] of Object.entries(piece)) {
      const grows = GROWING.has(key) && typeof value === "string" && typeof known[key] === "string";
      if (value !== null) known[key] = grows ? `${known[key]}${value}` : value;
    }
  }
}

const GROWING: ReadonlySet<string> = new Set(["text", "summary", "data"]);

/** What the parts of an answer carry for their message. @param name of the thoughts, unless they say theirs */
export function carriedBy(
  parts: readonly Carrier[],
  keys: readonly string[],
  thought: string,
  name: ThoughtName,
): Fields {
  let own = name;
  const carried: Fields = {};
  for (const part of parts)
    for (const { name: given, message } of valuesOf(part, keys)) {
      own = THOUGHTS.find((each) => each === given) ?? own;
      if (!isObject(message)) continue;
      const details = message[DETAILS];
      if (Array.isArray(details))
        carried[DETAILS] = [...((carried[DETAILS] as unknown[] | undefined) ?? []), ...details];
      if (isObject(message[EXTRAS])) carried[EXTRAS] = message[EXTRAS];
      for (const key of THOUGHTS) if (thought === "" && typeof message[key] === "string") carried[key] = message[key];
    }
  return thought === "" ? carried : { [own]: thought, ...carried };
}

/** The extras of a call. Gemini's own package, and older releases, have its signature alone. */
export function extrasOf(call: Carrier, keys: readonly string[]): unknown {
  const values = valuesOf(call, keys);
  const extras = values.find((each) => isObject(each[EXTRAS]))?.[EXTRAS];
  if (extras !== undefined) return extras;
  const signature = [...values, ...valuesOf(call, ["google"])].find((each) => each.thoughtSignature)?.thoughtSignature;
  return signature && { google: { thought_signature: String(signature) } };
}

const valuesOf = ({ providerOptions }: Carrier, keys: readonly string[]): Fields[] =>
  providerOptions === undefined
    ? []
    : keys.flatMap((key): Fields[] => (isObject(providerOptions[key]) ? [providerOptions[key]] : []));
