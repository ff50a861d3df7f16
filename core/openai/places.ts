/**
 * Maps parts of the agent's input to their places in the request. The lists differ: in the agent's input instructions come first, items
 * become parts of one message, and empty answers are left out.
 */

import type { Fields } from "../lib/is-object.ts";

/** A part of a message, for the input of an agent. */
export type InputPart = Fields & { readonly type: string };

/** A message in the form that agents read. */
export interface InputMessage {
  readonly role: "system" | "user" | "assistant" | "tool";
  readonly content: string | readonly InputPart[];
}

const PLACES = new WeakMap<object, string>();

/** Records the place of a message, or of the field from which a part was made. */
export function placed<T extends object>(value: T, path: string): T {
  PLACES.set(value, path);
  return value;
}

/** A place in the agent's input, such as `messages[2].content[1].image`. */
const PLACE = /^(?:messages|input)\[(\d+)\](?:\.content\[(\d+)\](?:\.\w+)?)?/;

/** Replaces the place in a message about a problem with that of the request. */
export function inPlaces(problem: string, messages: readonly InputMessage[]): string {
  const found = PLACE.exec(problem);
  const message = found === null ? undefined : messages[Number(found[1])];
  if (found === null || message === undefined) return problem;
  const whole = found[2] === undefined ? message : message.content[Number(found[2])];
  const place = typeof whole === "object" ? PLACES.get(whole) : undefined;
  return place === undefined ? problem : place + problem.slice(found[0].length);
}
