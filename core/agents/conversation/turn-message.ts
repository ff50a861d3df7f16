/** Collects the parts of a run into the assistant's UI message that the conversation stores. */
import { CALL_NOT_COMPLETED } from "../prompt/model-input.ts";
import { type AgentPart, metadataOf, type PartSink, uiSource } from "../run/parts.ts";

type Metadata = Extract<AgentPart, { type: "text-end" }>["providerMetadata"];
type MetadataField = "providerMetadata" | "callProviderMetadata" | "resultProviderMetadata";
type TextPart = { type: "text" | "reasoning"; text: string; state: "done"; providerMetadata?: Metadata };
type ToolPart = {
  type: `tool-${string}`;
  toolCallId: string;
  state: "input-available" | "approval-requested" | "output-available" | "output-error" | "output-denied";
  input: unknown;
  output?: unknown;
  errorText?: string;
  approval?: { id: string; approved?: boolean; reason?: string };
  providerExecuted?: true;
  callProviderMetadata?: Metadata;
  resultProviderMetadata?: Metadata;
};
type Part = (TextPart | ToolPart | Record<string, unknown>) & { [K in MetadataField]?: unknown };
/** Called after parts that are worth a checkpoint. */
type CheckpointListener = (reason: "step" | "tool-result") => void;
type ToolAnswer = Extract<AgentPart, { type: "tool-result" | "tool-error" | "tool-output-denied" }>;

/**
 * Passes the parts of a run on to their reader and collects them. Parts of sub-agents are only passed on: the message has
 * the answer of a sub-agent as the result of the tool call.
 */
export class TurnMessage implements PartSink {
  readonly #sink: PartSink;
  readonly #parts: Part[];
  /** Blocks of text or reasoning that still grow, by type and id. */
  readonly #open = new Map<string, TextPart>();
  readonly #calls = new Map<string, ToolPart>();
  readonly #onCheckpoint: CheckpointListener;
  #hasContent: boolean;
  /** Whether the step has called a tool. */
  #hasCalls = false;
  /** Where the parts of the step begin that is not complete. */
  #stepBegin: number | null = null;

  /** @param parts what the message begins with: the parts of the message that the run continues */
  constructor(sink: PartSink, parts: readonly unknown[], onCheckpoint: CheckpointListener) {
    this.#sink = sink;
    this.#parts = (parts as Part[]).map((part) => this.#withAwaited(part));
    this.#hasContent = parts.length > 0;
    this.#onCheckpoint = onCheckpoint;
  }

  get closed(): boolean {
    return this.#sink.closed;
  }

  accepted(): void {
    this.#sink.accepted?.();
  }

  part(part: AgentPart): Promise<void> | undefined {
    if (part.subAgentId === undefined) this.#collect(part);
    return this.#sink.part(part);
  }

  /**
   * The parts so far, or null when there are none. They go on growing: serialise them at once.
   *
   * @param ended whether the run is over, and how. Calls without a result are marked as failed then, but for those that a
   *   successful run leaves to the client; and what the provider said for itself in an answer that broke off is left out: it
   *   does not know of that answer
   */
  parts(ended: "completed" | "failed" | null): unknown[] | null {
    if (!this.#hasContent) return null;
    if (ended !== null) {
      for (const call of this.#calls.values()) {
        if (call.state !== "input-available") continue;
        if (ended === "completed" && call.providerExecuted !== true) continue;
        call.state = "output-error";
        call.errorText = CALL_NOT_COMPLETED;
      }
      if (this.#stepBegin !== null) for (const part of this.#parts.slice(this.#stepBegin)) forgetMetadata(part);
    }
    const parts = this.#parts.filter(
      (part) =>
        (part.type !== "text" && part.type !== "reasoning") || part.text !== "" || part.providerMetadata !== undefined,
    );
    return parts.some(({ type }) => type !== "step-start") ? parts : null;
  }

  #collect(part: AgentPart): void {
    switch (part.type) {
      case "text-delta":
      case "reasoning-delta": {
        const type = part.type === "text-delta" ? "text" : "reasoning";
        (this.#open.get(type + part.id) ?? this.#beginBlock(type, part.id)).text += part.delta;
        this.#hasContent = true;
        return;
      }
      case "text-start":
      case "reasoning-start":
        this.#beginBlock(part.type === "text-start" ? "text" : "reasoning", part.id);
        return;
      case "text-end":
      case "reasoning-end":
        this.#endBlock(part);
        return;
      case "start-step":
      case "step-restart":
        this.#open.clear();
        this.#stepBegin = this.#parts.length;
        this.#parts.push({ type: "step-start" });
        return;
      case "tool-call":
        this.#addCall(part);
        return;
      case "tool-approval-request": {
        const call = this.#calls.get(part.toolCallId);
        if (call === undefined) return;
        call.state = "approval-requested";
        call.approval = { id: part.approvalId };
        this.#onCheckpoint("tool-result");
        return;
      }
      case "tool-result":
      case "tool-error":
      case "tool-output-denied":
        this.#addResult(part);
        this.#onCheckpoint("tool-result");
        return;
      case "file": {
        const { base64, mediaType } = part.file;
        this.#push({ type: "file", mediaType, url: `data:${mediaType};base64,${base64}`, ...metadataOf(part) });
        return;
      }
      case "source":
        this.#push(uiSource(part));
        return;
      case "finish-step":
        // A step without calls is the last one, and the end of the run is stored anyway.
        if (this.#hasCalls) this.#onCheckpoint("step");
        this.#hasCalls = false;
        this.#stepBegin = null;
    }
  }

  #beginBlock(type: TextPart["type"], id: string): TextPart {
    const block: TextPart = { type, text: "", state: "done" };
    this.#open.set(type + id, block);
    this.#parts.push(block);
    return block;
  }

  /** Only of a block that is complete: a provider refuses what it has not finished. */
  #endBlock({ type, id, providerMetadata }: Extract<AgentPart, { type: "text-end" | "reasoning-end" }>): void {
    if (providerMetadata === undefined) return;
    const block = this.#open.get((type === "text-end" ? "text" : "reasoning") + id);
    if (block === undefined) return;
    block.providerMetadata = providerMetadata;
    this.#hasContent = true;
  }

  #addCall(part: Extract<AgentPart, { type: "tool-call" }>): void {
    const { toolCallId, toolName, input, providerExecuted, providerMetadata } = part;
    const call: ToolPart = { type: `tool-${toolName}`, toolCallId, state: "input-available", input };
    if (providerExecuted === true) call.providerExecuted = true;
    if (providerMetadata !== undefined) call.callProviderMetadata = providerMetadata;
    this.#calls.set(toolCallId, call);
    this.#hasCalls = true;
    this.#push(call);
  }

  /** A call of the continued message that waits for approval is a copy: this run answers it. */
  #withAwaited(part: Part): Part {
    const { state, toolCallId } = part as Partial<ToolPart>;
    if (toolCallId === undefined || (state !== ("approval-responded" as string) && state !== "approval-requested"))
      return part;
    const call = { ...part, state: "approval-requested" } as ToolPart;
    this.#calls.set(toolCallId, call);
    return call;
  }

  #addResult(part: ToolAnswer): void {
    const call = this.#calls.get(part.toolCallId);
    if (call === undefined) return;
    if (part.type === "tool-output-denied") {
      call.state = "output-denied";
      call.approval = { id: call.approval?.id ?? "", approved: false };
      if (part.reason !== undefined) call.approval.reason = part.reason;
      return;
    }
    if (call.approval !== undefined) call.approval = { id: call.approval.id, approved: true };
    if (part.providerMetadata !== undefined) call.resultProviderMetadata = part.providerMetadata;
    if (part.type === "tool-result") {
      call.state = "output-available";
      call.output = part.output;
    } else {
      call.state = "output-error";
      call.errorText = part.error;
    }
  }

  #push(part: Part): void {
    this.#hasContent = true;
    this.#parts.push(part);
  }
}

function forgetMetadata(part: Part): void {
  delete part.providerMetadata;
  delete part.callProviderMetadata;
  delete part.resultProviderMetadata;
}
