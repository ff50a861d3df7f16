/** The working memory of a run: its section in the system prompt, and the tool that updates it. */
import type { WorkingMemoryManifest } from "../../../generated/types.ts";
import { invalid } from "../../lib/errors.ts";
import { isObject } from "../../lib/is-object.ts";
import { type AgentTool, functionTool, type ToolSet, toolSet } from "../run/tool-set.ts";

export const UPDATE_WORKING_MEMORY = "update_working_memory";

/**
 * The section of the system prompt.
 *
 * @param content null when nothing is stored yet
 * @param writable whether the model has the tool
 */
export function workingMemorySection(
  settings: WorkingMemoryManifest,
  content: string | null,
  writable: boolean,
): string {
  const { format, template, schema, scope } = settings;
  const lines = [
    "# Working memory",
    `What you have noted about this ${scope === "user" ? "user" : "conversation"} so far${format === "json" ? ", as JSON" : ""}. Rely on it where it helps, and do not speak of it.`,
  ];
  if (writable) {
    lines.push(
      `When you learn something that will matter later, write it down with the tool \`${UPDATE_WORKING_MEMORY}\` before you answer.`,
    );
    if (schema !== undefined) lines.push(`The note must conform to this JSON Schema: ${JSON.stringify(schema)}`);
    else if (template !== undefined && content !== null)
      lines.push(`Keep to the form of this template:\n<template>\n${template}\n</template>`);
  }
  lines.push(`<working_memory>\n${content ?? template ?? ""}\n</working_memory>`);
  return lines.join("\n");
}

/** The agent's tools and the one that updates the working memory. */
export function withWorkingMemory(tools: ToolSet, tool: AgentTool): ToolSet {
  return toolSet([...tools.byName.values(), tool]);
}

export function workingMemoryTool(settings: WorkingMemoryManifest): AgentTool {
  const json = settings.format === "json";
  const content = json
    ? { ...jsonContent(settings), description: "The note; with mode `append` only what is new in it." }
    : { type: "string", description: "The note as markdown; with mode `append` only what is new in it." };
  const mode = {
    type: "string",
    enum: ["replace", "append"],
    description: `\`replace\` (default) puts the content in place of the note, \`append\` ${json ? "merges it into" : "adds it to"} the note.`,
  };
  const parameters = {
    type: "object",
    properties: { content, mode },
    required: ["content"],
    additionalProperties: false,
  };
  const description = `Writes down what is worth remembering about this ${settings.scope}.`;
  return {
    name: UPDATE_WORKING_MEMORY,
    definition: functionTool(UPDATE_WORKING_MEMORY, description, parameters),
    async run(input, { turn, span }) {
      const args = (typeof input === "object" && input !== null ? input : {}) as { content?: unknown; mode?: unknown };
      const mode = args.mode ?? "replace";
      if (mode !== "replace" && mode !== "append") throw invalid('input.mode must be one of "replace", "append"');
      if (turn === null) throw invalid("this run has no conversation to remember");
      await turn.updateWorkingMemory(readContent(args.content, json), mode, span);
      return { updated: true };
    },
  };
}

/** The schema becomes part of the tool's, where a `$ref` into it would not resolve: it is left out then. */
function jsonContent({ schema }: WorkingMemoryManifest): object {
  if (schema === undefined || JSON.stringify(schema).includes('"$ref"')) return { type: "object" };
  return withoutRequired(schema as Record<string, unknown>);
}

/** An update need not have all that is required: the store validates the merged result. */
function withoutRequired({ required: _, $schema: __, $id: ___, ...schema }: Record<string, unknown>): object {
  return schema;
}

function readContent(content: unknown, json: boolean): string | Record<string, unknown> {
  if (!json) {
    if (typeof content !== "string") throw invalid("input.content must be string");
    return content;
  }
  // Models often write JSON as text.
  const value = typeof content === "string" ? tryParse(content) : content;
  if (!isObject(value)) throw invalid("input.content must be object");
  return value;
}

function tryParse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
