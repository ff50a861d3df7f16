/** The sub-agents of a run: their parts come between those of the run, marked with the call that started them. */
import type { AgUiEvent } from "../../generated/types.ts";
import type { AgentPart } from "../agents/run/parts.ts";
import { Blocks } from "./blocks.ts";
import type { PartOf } from "./event-parts.ts";

type Ending = PartOf<"tool-result" | "tool-error" | "tool-output-denied">;

export class SubAgents {
  readonly #newId: () => string;
  /** Active sub-agents by the id of the call that started them. */
  readonly #open = new Map<string, Blocks>();
  /** Sub-agents that have ended. One that was given up may still send parts. */
  readonly #over = new Set<string>();

  /** @param newId creates ids of messages */
  constructor(newId: () => string) {
    this.#newId = newId;
  }

  /** @param events makes the events of the part */
  of(callId: string, part: AgentPart, events: (blocks: Blocks) => AgUiEvent[]): AgUiEvent[] {
    if (this.#isOver(callId)) return [];
    const begun = this.#open.has(callId) ? [] : [this.#begin(callId, part.subAgentName ?? callId)];
    const ended = isEnding(part) ? this.end(part) : [];
    const own = events(this.#open.get(callId)!).map((event) => ({ ...event, subagentRunId: callId }) as AgUiEvent);
    return [...begun, ...ended, ...own];
  }

  /** Called with the result of the call that started a sub-agent: ends it, and those that it has called. */
  end(part: Ending): AgUiEvent[] {
    const { toolCallId: subagentRunId } = part;
    const blocks = this.#open.get(subagentRunId);
    if (blocks === undefined) return [];
    const below = [...this.#open.keys()].filter((id) => isBelow(id, subagentRunId)).reverse();
    const events = below.flatMap((toolCallId) => this.end({ ...LEFT, toolCallId }));
    this.#open.delete(subagentRunId);
    this.#over.add(subagentRunId);
    for (const event of blocks.endStep()) events.push({ ...event, subagentRunId } as AgUiEvent);
    events.push(
      part.type === "tool-error"
        ? { type: "SUBAGENT_ERROR", subagentRunId, message: part.error }
        : { type: "SUBAGENT_FINISHED", subagentRunId },
    );
    return events;
  }

  /** Ends all sub-agents of a run that was stopped, the innermost first. */
  endAll(): AgUiEvent[] {
    const ids = [...this.#open.keys()].reverse();
    return ids.flatMap((toolCallId) => this.end({ ...LEFT, toolCallId }));
  }

  #isOver(callId: string): boolean {
    for (let end = callId.length; end > 0; end = callId.lastIndexOf(":", end - 1))
      if (this.#over.has(callId.slice(0, end))) return true;
    return false;
  }

  #begin(subagentRunId: string, name: string): AgUiEvent {
    const parent = [...this.#open.keys()].findLast((id) => isBelow(subagentRunId, id));
    this.#open.set(subagentRunId, new Blocks(this.#newId));
    const above = parent === undefined ? undefined : { parentSubagentRunId: parent };
    return { type: "SUBAGENT_STARTED", subagentRunId, name, parentToolCallId: subagentRunId, ...above };
  }
}

/** The end of a sub-agent whose call gets no result. */
const LEFT = { type: "tool-output-denied", toolName: "" } as const;

/** Whether a call was made below another one: its id begins with the id of that call. */
const isBelow = (id: string, above: string): boolean => id.startsWith(`${above}:`);

const isEnding = (part: AgentPart): part is Ending =>
  part.type === "tool-result" || part.type === "tool-error" || part.type === "tool-output-denied";
