/** Turns the parts of a run into AG-UI events, one after the other. */
import type { AgUiEvent, AgUiInterrupt, AgUiOutcome } from "../../generated/types.ts";
import type { AgentPart, PendingApproval } from "../agents/run/parts.ts";
import { Blocks } from "./blocks.ts";
import { customEvent, deniedText, type PartOf, resultText, usageOf } from "./event-parts.ts";

// The sub-agents of a run: their parts come between those of the run, marked with the call that started them.

type Ending = PartOf<"tool-result" | "tool-error" | "tool-output-denied">;

class SubAgents {
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

/** The supported version of the protocol. */
const PROTOCOL_VERSION = "1.0";

export interface RunIdentity {
  readonly threadId: string;
  readonly runId: string;
  readonly parentRunId?: string | undefined;
  /** Whether the client has named its version: clients before 1.0 do not, and refuse some of the events. */
  readonly isCurrent: boolean;
  /** Id of the assistant's first message in the store. */
  readonly messageId: string;
  /** Calls that the client runs, when the run begins. */
  readonly open?: Iterable<string>;
}

export function runStarted(run: Omit<RunIdentity, "messageId" | "open">): AgUiEvent {
  const { threadId, runId, parentRunId, isCurrent } = run;
  const parent = parentRunId === undefined ? undefined : { parentRunId };
  const version = isCurrent ? { protocolVersion: PROTOCOL_VERSION } : undefined;
  return { type: "RUN_STARTED", threadId, runId, ...parent, ...version };
}

/** The events of one run. Each method returns the next ones. */
export class RunEvents {
  readonly #run: RunIdentity;
  readonly #own: Blocks;
  readonly #subAgents: SubAgents;
  /** Calls without a result, in order. */
  readonly #open: Set<string>;
  readonly #approvals: PendingApproval[] = [];
  #texts = 0;
  #others = 0;

  constructor(run: RunIdentity) {
    this.#run = run;
    this.#open = new Set(run.open);
    this.#own = new Blocks((role) => (role === "assistant" ? this.#textId() : this.#otherId()));
    this.#subAgents = new SubAgents(() => this.#otherId());
  }

  /** The approvals for which the run waits. */
  get approvals(): readonly PendingApproval[] {
    return this.#approvals;
  }

  /** The events of every part but the last. */
  of(part: AgentPart): AgUiEvent[] {
    if (part.subAgentCallId !== undefined)
      return this.#run.isCurrent
        ? this.#subAgents.of(part.subAgentCallId, part, (blocks) => this.#ofBlocks(part, blocks))
        : [];
    switch (part.type) {
      case "start":
        return [runStarted(this.#run)];
      case "start-step":
        this.#open.clear();
        break;
      case "tool-call":
        this.#open.add(part.toolCallId);
        break;
      case "tool-result":
      case "tool-error":
      case "tool-output-denied":
        this.#open.delete(part.toolCallId);
        return [...this.#subAgents.end(part), ...this.#ofBlocks(part, this.#own)];
      case "tool-approval-request":
        this.#open.delete(part.toolCallId);
        this.#approvals.push(part);
        return [];
      case "abort":
        return [...this.#subAgents.endAll(), ...this.#own.endStep(), this.#cancelled()];
      case "error":
        return [{ type: "RUN_ERROR", message: part.error }];
    }
    return this.#ofBlocks(part, this.#own);
  }

  /** @param interrupts the approvals as interrupts */
  finish(part: PartOf<"finish">, interrupts: AgUiInterrupt[]): AgUiEvent[] {
    const { threadId, runId, isCurrent } = this.#run;
    const result = part.output === undefined ? undefined : { result: part.output };
    const usage = isCurrent ? { usage: [usageOf(part.totalUsage, part.model)] } : undefined;
    const outcome = this.#outcome(interrupts);
    const ended = [...this.#subAgents.endAll(), ...this.#own.endStep()];
    return [...ended, { type: "RUN_FINISHED", threadId, runId, ...result, outcome, ...usage }];
  }

  #outcome(interrupts: AgUiInterrupt[]): AgUiOutcome {
    if (interrupts.length > 0) return { type: "interrupt", interrupts };
    if (this.#open.size === 0 || !this.#run.isCurrent) return { type: "success" };
    return { type: "success", pendingToolCallIds: [...this.#open] };
  }

  #cancelled(): AgUiEvent {
    const { threadId, runId, isCurrent } = this.#run;
    if (!isCurrent) return { type: "RUN_ERROR", message: "the run was stopped", code: "cancelled" };
    return { type: "RUN_FINISHED", threadId, runId, outcome: { type: "cancelled" } };
  }

  /** The events of parts that both agents and sub-agents may have. */
  #ofBlocks(part: AgentPart, blocks: Blocks): AgUiEvent[] {
    switch (part.type) {
      case "start-step":
        return blocks.beginStep();
      case "finish-step":
        return blocks.endStep();
      case "text-delta":
      case "reasoning-delta":
        return blocks.delta(part);
      case "text-end":
      case "reasoning-end":
        return blocks.end(part);
      case "tool-input-start":
        return blocks.beginInput(part);
      case "tool-input-delta":
        return blocks.input(part);
      case "tool-input-end":
        return blocks.endInput(part.id);
      case "tool-call":
        return blocks.call(part);
      case "tool-result":
        return [this.#result(part.toolCallId, resultText(part.output))];
      case "tool-error":
        return [this.#result(part.toolCallId, part.error)];
      case "tool-output-denied":
        return [this.#result(part.toolCallId, deniedText(part.reason))];
      case "source":
      case "file":
        return [customEvent(part)];
      default:
        return [];
    }
  }

  #result(toolCallId: string, content: string): AgUiEvent {
    return { type: "TOOL_CALL_RESULT", messageId: this.#otherId(), toolCallId, content, role: "tool" };
  }

  /** The first text gets the id under which the answer is stored, by which it is recognised when the client sends it again. */
  #textId(): string {
    this.#texts += 1;
    return this.#texts === 1 ? this.#run.messageId : `${this.#run.messageId}.${this.#texts}`;
  }

  #otherId(): string {
    this.#others += 1;
    return `${this.#run.messageId}:${this.#others}`;
  }
}
