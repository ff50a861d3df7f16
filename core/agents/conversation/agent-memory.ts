/** The memory of one agent: starts turns, adds the working memory tool, puts what is recalled into the prompt. */

import type { WorkingMemoryManifest } from "../../../generated/types.ts";
import { ANONYMOUS, actingUser, EVERYTHING, type Principal } from "../../identity/principal.ts";
import { invalid } from "../../lib/errors.ts";
import { isObject } from "../../lib/is-object.ts";
import type { Memory } from "../../memory/scoped.ts";
import type { Models } from "../../models/models.ts";
import type { RunCaller } from "../run/caller.ts";
import type { RunRecord } from "../run/journal.ts";
import type { MemorySettings } from "../run/options.ts";
import type { RunPlan } from "../run/run.ts";
import { type AgentTool, functionTool, type ToolSet, toolSet } from "../run/tool-set.ts";
import { createSummarizer, type Summarizer, summarySection } from "./recall.ts";
import { Turn } from "./turn.ts";
import { type TurnQueue, TurnTicket } from "./turn-queue.ts";

// The working memory of a run: its section in the system prompt, and the tool that updates it.

export const UPDATE_WORKING_MEMORY = "update_working_memory";

/**
 * The section of the system prompt.
 *
 * @param content null when nothing is stored yet
 * @param writable whether the model has the tool
 */
function workingMemorySection(settings: WorkingMemoryManifest, content: string | null, writable: boolean): string {
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

function workingMemoryTool(settings: WorkingMemoryManifest): AgentTool {
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

export interface TurnRequest {
  readonly runId: string;
  readonly input: unknown;
  readonly settings: MemorySettings;
  /** Whether the client is sent the id of the assistant's message. */
  readonly clientKnowsMessageId: boolean;
  /** Of a run that outlives its process: what it has stored before a crash is its own. */
  readonly record: RunRecord | null;
  /** The user whose conversation it is, and what the caller may see. */
  readonly principal: Principal;
  /** Whether the run of another agent waits for this one. */
  readonly isDelegated: boolean;
}

export interface AgentMemory {
  /** Most tokens of a prompt; undefined: what the model takes. */
  readonly contextTokens: number | undefined;
  /** Starts a turn. Null for a run without a conversation: nothing is read and nothing is stored. */
  turn(request: TurnRequest, call: RunCaller): Turn | null;
  /** The tools of a run that may write: the agent's, and the one that updates the working memory if there is one. */
  tools(own: ToolSet): ToolSet;
  /** Puts earlier messages and the working memory into the prompt of a run. Rejects like `Turn.recall`. */
  addToPrompt(plan: RunPlan, turn: Turn): Promise<void>;
  /** After the reply: sums up what the prompts have no room for. Undefined for a memory without summaries. */
  readonly summarize: ((turn: Turn) => Promise<void>) | undefined;
}

/** @param models for the one that writes summaries */
export function agentMemory(agentId: string, memory: Memory, models: Models, queue: TurnQueue): AgentMemory {
  const { workingMemory } = memory.settings;
  const tool = workingMemory === undefined ? null : workingMemoryTool(workingMemory);
  const everything = memory.for(EVERYTHING);
  const extended = new WeakMap<ToolSet, ToolSet>();
  return {
    contextTokens: memory.settings.contextTokens,
    summarize: summarizerOf(memory, models),
    turn({ runId, input, settings, clientKnowsMessageId, principal, record, isDelegated }, call) {
      const { conversationId } = settings;
      if (conversationId === undefined) return null;
      const userId = actingUser(principal, settings.userId) ?? ANONYMOUS;
      const place = { memory: memory.name, conversation: conversationId, user: userId };
      // A run that goes on where it was neither fails because others have begun since, nor does it cancel them.
      const isPatient = isDelegated || record?.journal.isRepeated === true;
      const ticket = { ...place, mode: memory.settings.turns, runId, isDelegated: isPatient, record, call };
      return new Turn({
        queue,
        ticket: settings.readOnly ? null : new TurnTicket(ticket),
        memory,
        access: principal === EVERYTHING ? everything : memory.for(principal),
        conversation: { id: conversationId, userId },
        resourceId: agentId,
        settings,
        input,
        messageId: messageIdForRun(runId),
        clientKnowsMessageId,
        record,
        call,
      });
    },
    tools: tool === null ? (own) => own : (own) => extend(own, tool, extended),
    async addToPrompt(plan, turn) {
      const { messages, workingMemory: content, summary } = await turn.recall();
      const { prompt } = plan;
      let position = plan.hasInstructions ? 1 : 0;
      const sections: string[] = [];
      if (content !== undefined)
        sections.push(workingMemorySection(workingMemory!, content, turn.writable && plan.canUpdateWorkingMemory));
      if (summary !== undefined) sections.push(summarySection(summary));
      if (sections.length > 0) {
        const section = sections.join("\n\n");
        const first = prompt[0]!;
        if (plan.hasInstructions && first.role === "system") {
          prompt[0] = { role: "system", content: `${first.content}\n\n${section}` };
        } else {
          prompt.unshift({ role: "system", content: section });
          position = 1;
        }
      }
      prompt.splice(position, 0, ...messages);
    },
  };
}

/** An unknown model was reported when the models were created. */
function summarizerOf({ settings: { summary } }: Memory, models: Models): AgentMemory["summarize"] {
  if (summary === undefined) return undefined;
  let summarizer: Summarizer | undefined;
  return (turn) => {
    summarizer ??= createSummarizer(summary, models.chain([summary.model]));
    return turn.summarize(summarizer);
  };
}

/** Cached: most agents have one set of tools for all requests. */
function extend(own: ToolSet, tool: AgentTool, extended: WeakMap<ToolSet, ToolSet>): ToolSet {
  let all = extended.get(own);
  if (all === undefined) {
    all = toolSet([...own.byName.values(), tool]);
    extended.set(own, all);
  }
  return all;
}

/** The id of the message that a run creates. */
export const messageIdForRun = (runId: string) => `msg_${runId}`;

/** The id of the message that a chat client builds from a run: a reply that continues the last assistant message keeps that message's. */
export function replyMessageId(input: unknown, runId: string): string {
  const last = Array.isArray(input) ? (input.at(-1) as { role?: unknown; id?: unknown }) : undefined;
  return last?.role === "assistant" && typeof last.id === "string" ? last.id : messageIdForRun(runId);
}
