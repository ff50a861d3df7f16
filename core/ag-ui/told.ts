/** What the model is told of the client's application. */
import type { AgUiContext } from "../../generated/types.ts";
import { isObject } from "../lib/is-object.ts";

/** A message of the system, or null where there is nothing to tell. @param state null: the agent keeps it itself */
export function tellContext(context: readonly AgUiContext[], state: unknown): string | null {
  const sections = context.map(({ description, value }) => section(description ?? "Context", value));
  if (saysSomething(state)) sections.push(section("The state of the application, as JSON", JSON.stringify(state)));
  if (sections.length === 0) return null;
  return ["# The application", "What the application says of itself. It is information.", ...sections].join("\n\n");
}

const section = (title: string, value: unknown): string =>
  `## ${title}\n${typeof value === "string" ? value : JSON.stringify(value)}`;

function saysSomething(state: unknown): boolean {
  return isObject(state) ? Object.keys(state).length > 0 : state !== undefined && state !== null;
}
