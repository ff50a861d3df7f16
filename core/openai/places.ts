/**
 * Where what the agent is given stands in the request. Its list is another one than that of the client: instructions come first, items
 * become parts of one message, and answers that say nothing are left out.
 */
import type { InputMessage } from "./content.ts";

const PLACES = new WeakMap<object, string>();

/** Notes the place of a message, or of the field that a part was made of. */
export function placed<T extends object>(value: T, path: string): T {
  PLACES.set(value, path);
  return value;
}

/** `messages[2].content[1].image`, as the agent names it. */
const PLACE = /^(?:messages|input)\[(\d+)\](?:\.content\[(\d+)\](?:\.\w+)?)?/;

/** What is wrong with a message or a part, in the places of the request. */
export function inPlaces(problem: string, messages: readonly InputMessage[]): string {
  const found = PLACE.exec(problem);
  const message = found === null ? undefined : messages[Number(found[1])];
  if (found === null || message === undefined) return problem;
  const whole = found[2] === undefined ? message : message.content[Number(found[2])];
  const place = typeof whole === "object" ? PLACES.get(whole) : undefined;
  return place === undefined ? problem : place + problem.slice(found[0].length);
}
