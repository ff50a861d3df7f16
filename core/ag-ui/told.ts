/** The context of the client's application, for the model. */
import type { AgUiContext } from "../../generated/types.ts";
import { isObject } from "../lib/is-object.ts";

/** Makes a system message, or null when there is no context. @param state null when the agent keeps the state itself */
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
