/** The sub-agents of a run: their parts come between those of the run, marked with the call that asked for them. */
import type { AgUiEvent } from "../../generated/types.ts";
import type { AgentPart } from "../agents/run/parts.ts";
import { Blocks } from "./blocks.ts";
import type { PartOf } from "./event-parts.ts";

type Ending = PartOf<"tool-result" | "tool-error" | "tool-output-denied">;

export class SubAgents {
  readonly #newId: () => string;
  /** Those at work, by the call that asked for them. */
  readonly #open = new Map<string, Blocks>();

  /** @param newId creates ids of messages */
  constructor(newId: () => string) {
    this.#newId = newId;
  }

  /** @param events gives those of the part */
  of(callId: string, part: AgentPart, events: (blocks: Blocks) => AgUiEvent[]): AgUiEvent[] {
    const begun = this.#open.has(callId) ? [] : [this.#begin(callId, part.subAgentName ?? callId)];
    const ended = isEnding(part) ? this.end(part) : [];
    const own = events(this.#open.get(callId)!).map((event) => ({ ...event, subagentRunId: callId }) as AgUiEvent);
    return [...begun, ...ended, ...own];
  }

  /** The call that asked for a sub-agent is answered: that one is done. */
  end(part: Ending): AgUiEvent[] {
    const { toolCallId: subagentRunId } = part;
    const blocks = this.#open.get(subagentRunId);
    if (blocks === undefined) return [];
    this.#open.delete(subagentRunId);
    const left = blocks.endStep().map((event) => ({ ...event, subagentRunId }) as AgUiEvent);
    if (part.type !== "tool-error") return [...left, { type: "SUBAGENT_FINISHED", subagentRunId }];
    return [...left, { type: "SUBAGENT_ERROR", subagentRunId, message: part.error }];
  }

  /** Of a run that was stopped, the innermost first. */
  endAll(): AgUiEvent[] {
    const ids = [...this.#open.keys()].reverse();
    return ids.flatMap((toolCallId) => this.end({ type: "tool-output-denied", toolCallId, toolName: "" }));
  }

  #begin(subagentRunId: string, name: string): AgUiEvent {
    const parent = [...this.#open.keys()].findLast((id) => subagentRunId.startsWith(`${id}:`));
    this.#open.set(subagentRunId, new Blocks(this.#newId));
    const above = parent === undefined ? undefined : { parentSubagentRunId: parent };
    return { type: "SUBAGENT_STARTED", subagentRunId, name, parentToolCallId: subagentRunId, ...above };
  }
}

const isEnding = (part: AgentPart): part is Ending =>
  part.type === "tool-result" || part.type === "tool-error" || part.type === "tool-output-denied";
