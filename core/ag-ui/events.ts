/** Turns the parts of a run into AG-UI events, one after the other. */
import type { AgUiEvent, AgUiInterrupt, AgUiOutcome, AgUiUsage } from "../../generated/types.ts";
import type { AgentPart, PendingApproval, Usage } from "../agents/run/parts.ts";

// Builds single events and their parts.

export type PartOf<T extends AgentPart["type"]> = Extract<AgentPart, { type: T }>;
type EventOf<T extends AgUiEvent["type"]> = Extract<AgUiEvent, { type: T }>;

/** A result as text: a value that is not text becomes JSON. */
export const resultText = (output: unknown): string =>
  typeof output === "string" ? output : (JSON.stringify(output) ?? "null");

export const deniedText = (reason: string | undefined): string =>
  reason === undefined ? "The call was denied." : `The call was denied: ${reason}`;

function usageOf(usage: Usage, model: string | undefined): AgUiUsage {
  const { promptTokens: inputTokens, completionTokens: outputTokens, totalTokens } = usage;
  const { cachedInputTokens, reasoningTokens } = usage;
  return {
    ...(model !== undefined && model !== "" && { model }),
    inputTokens,
    outputTokens,
    totalTokens,
    // A count that a provider does not report is 0 here, and is left out.
    ...(cachedInputTokens > 0 && { cachedInputTokens }),
    ...(reasoningTokens > 0 && { reasoningTokens }),
  };
}

/** The event for a part that the protocol does not cover. */
function customEvent(part: PartOf<"source" | "file">): EventOf<"CUSTOM"> {
  if (part.type === "file") return { type: "CUSTOM", name: "file", value: part.file };
  const { id, sourceType, title } = part;
  if (part.sourceType === "url")
    return { type: "CUSTOM", name: "source", value: { id, sourceType, url: part.url, title } };
  const { mediaType, filename } = part;
  return { type: "CUSTOM", name: "source", value: { id, sourceType, mediaType, title, filename } };
}

/** The event with metadata that the provider expects back, as text that a client keeps. */
const encryptedValue = (
  subtype: "message" | "tool-call",
  entityId: string,
  metadata: object,
): EventOf<"REASONING_ENCRYPTED_VALUE"> => ({
  type: "REASONING_ENCRYPTED_VALUE",
  subtype,
  entityId,
  encryptedValue: JSON.stringify(metadata),
});

/* The open blocks of one agent: texts, thoughts and calls. Every block must end, because clients refuse a run that leaves one open. */

type Block = { readonly kind: "text" | "reasoning"; readonly messageId: string };

/** Creates ids of messages. Those of thoughts differ, because clients need not send them back. */
type NewMessageId = (role: "assistant" | "reasoning") => string;

/** The blocks of one agent: of the run itself, or of a sub-agent in it. */
class Blocks {
  readonly #newId: NewMessageId;
  /** Texts and thoughts that have content, by the type and id of their parts. */
  readonly #open = new Map<string, Block>();
  /** Calls whose input is being written. */
  readonly #inputs = new Set<string>();
  /** Calls that have started, for which the complete input may still arrive. */
  readonly #begun = new Set<string>();
  #steps = 0;
  #inStep = false;
  /** Id of the message of this step that contains its calls. */
  #message: string | null = null;

  constructor(newId: NewMessageId) {
    this.#newId = newId;
  }

  beginStep(): AgUiEvent[] {
    const ended = this.endStep();
    this.#steps += 1;
    this.#inStep = true;
    return [...ended, { type: "STEP_STARTED", stepName: this.#stepName }];
  }

  /** Ends the step, and the blocks that are still open. */
  endStep(): AgUiEvent[] {
    const ended: AgUiEvent[] = [];
    for (const block of this.#open.values()) ended.push(...endOf(block));
    for (const toolCallId of this.#inputs) ended.push({ type: "TOOL_CALL_END", toolCallId });
    if (this.#inStep) ended.push({ type: "STEP_FINISHED", stepName: this.#stepName });
    this.#open.clear();
    this.#inputs.clear();
    this.#begun.clear();
    this.#message = null;
    this.#inStep = false;
    return ended;
  }

  /** Adds text. A block starts with its first non-empty delta, so that empty ones are left out. */
  delta({ type, id, delta }: PartOf<"text-delta" | "reasoning-delta">): AgUiEvent[] {
    if (delta === "") return [];
    const kind = type === "text-delta" ? "text" : "reasoning";
    const begun = this.#begin(kind, id);
    const { messageId } = this.#open.get(kind + id)!;
    return [
      ...begun,
      { type: kind === "text" ? "TEXT_MESSAGE_CONTENT" : "REASONING_MESSAGE_CONTENT", messageId, delta },
    ];
  }

  end({ type, id, providerMetadata }: PartOf<"text-end" | "reasoning-end">): AgUiEvent[] {
    const kind = type === "text-end" ? "text" : "reasoning";
    // Encrypted thoughts have no text, and are sent for their metadata.
    const begun = kind === "reasoning" && providerMetadata !== undefined ? this.#begin(kind, id) : [];
    const block = this.#open.get(kind + id);
    if (block === undefined) return [];
    this.#open.delete(kind + id);
    const carried =
      providerMetadata === undefined ? [] : [encryptedValue("message", block.messageId, providerMetadata)];
    return [...begun, ...endOf(block, carried)];
  }

  beginInput({ id, toolName }: PartOf<"tool-input-start">): AgUiEvent[] {
    if (this.#begun.has(id)) return [];
    this.#begun.add(id);
    this.#inputs.add(id);
    this.#message ??= this.#newId("assistant");
    const call = { toolCallId: id, toolCallName: toolName, parentMessageId: this.#message };
    return [{ type: "TOOL_CALL_START", ...call }];
  }

  input({ id, delta }: PartOf<"tool-input-delta">): AgUiEvent[] {
    return delta === "" || !this.#inputs.has(id) ? [] : [{ type: "TOOL_CALL_ARGS", toolCallId: id, delta }];
  }

  endInput(id: string): AgUiEvent[] {
    return this.#inputs.delete(id) ? [{ type: "TOOL_CALL_END", toolCallId: id }] : [];
  }

  /** Sends the complete call, whether or not parts of it were sent before. */
  call({ toolCallId, toolName, input, providerMetadata }: PartOf<"tool-call">): AgUiEvent[] {
    const begun = this.beginInput({ type: "tool-input-start", id: toolCallId, toolName });
    const delta = typeof input === "string" ? input : JSON.stringify(input);
    const whole = begun.length === 0 ? [] : this.input({ type: "tool-input-delta", id: toolCallId, delta });
    const carried = providerMetadata === undefined ? [] : [encryptedValue("tool-call", toolCallId, providerMetadata)];
    return [...begun, ...whole, ...this.endInput(toolCallId), ...carried];
  }

  get #stepName(): string {
    return `step-${this.#steps}`;
  }

  /** Starts a block that is not open yet. */
  #begin(kind: Block["kind"], id: string): AgUiEvent[] {
    if (this.#open.has(kind + id)) return [];
    const messageId = this.#newId(kind === "text" ? "assistant" : "reasoning");
    this.#open.set(kind + id, { kind, messageId });
    if (kind === "text") {
      this.#message = messageId;
      return [{ type: "TEXT_MESSAGE_START", messageId, role: "assistant" }];
    }
    return [
      { type: "REASONING_START", messageId },
      { type: "REASONING_MESSAGE_START", messageId, role: "reasoning" },
    ];
  }
}

/** @param carried events for the metadata of the message, to be sent while the message is known */
function endOf({ kind, messageId }: Block, carried: readonly AgUiEvent[] = []): AgUiEvent[] {
  if (kind === "text") return [{ type: "TEXT_MESSAGE_END", messageId }, ...carried];
  return [{ type: "REASONING_MESSAGE_END", messageId }, ...carried, { type: "REASONING_END", messageId }];
}

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
