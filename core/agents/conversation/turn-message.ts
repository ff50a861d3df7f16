/** The parts of a run, folded into the one UI message of the assistant that the conversation keeps. */

import { UNANSWERED } from "../prompt/ui-input.ts";
import type { AgentPart, PartSink } from "../run/parts.ts";

type TextPart = { type: "text" | "reasoning"; text: string; state: "done" };
type ToolPart = {
  type: `tool-${string}`;
  toolCallId: string;
  state: "input-available" | "output-available" | "output-error";
  input: unknown;
  output?: unknown;
  errorText?: string;
  providerExecuted?: true;
};
type Part = TextPart | ToolPart | Record<string, unknown>;
/** Parts after which a checkpoint is worth while. */
type Hear = (type: "step" | "answer") => void;
type Answer = Extract<AgentPart, { type: "tool-result" | "tool-error" }>;

/**
 * Passes a run's parts on to their reader and remembers them. Parts of sub-agents are their own affair: the answer of a
 * sub-agent is the result of the tool call that asked for it.
 */
export class TurnMessage implements PartSink {
  readonly #sink: PartSink;
  readonly #parts: Part[];
  /** Blocks of text that are being said, by kind and id. */
  readonly #open = new Map<string, TextPart>();
  readonly #calls = new Map<string, ToolPart>();
  readonly #heard: Hear;
  #said: boolean;
  /** Whether the step has called a tool. */
  #called = false;

  /** @param parts what the message begins with when the run goes on with one that the client has */
  constructor(sink: PartSink, parts: readonly unknown[], heard: Hear) {
    this.#sink = sink;
    this.#parts = [...(parts as Part[])];
    this.#said = parts.length > 0;
    this.#heard = heard;
  }

  get closed(): boolean {
    return this.#sink.closed;
  }

  accepted(): void {
    this.#sink.accepted?.();
  }

  part(part: AgentPart): Promise<void> | undefined {
    if (part.subAgentId === undefined) this.#take(part);
    return this.#sink.part(part);
  }

  /**
   * The parts so far, or null when nothing has been said. They go on growing: serialise them at once.
   *
   * @param ended whether nothing more will come: then calls without an answer are told as failed
   */
  parts(ended: boolean): unknown[] | null {
    if (!this.#said) return null;
    if (ended) {
      for (const call of this.#calls.values()) {
        if (call.state !== "input-available") continue;
        call.state = "output-error";
        call.errorText = UNANSWERED;
      }
    }
    return this.#parts.filter((part) => (part.type !== "text" && part.type !== "reasoning") || part.text !== "");
  }

  #take(part: AgentPart): void {
    switch (part.type) {
      case "text-delta":
      case "reasoning-delta": {
        const type = part.type === "text-delta" ? "text" : "reasoning";
        (this.#open.get(type + part.id) ?? this.#begin(type, part.id)).text += part.delta;
        this.#said = true;
        return;
      }
      case "text-start":
      case "reasoning-start":
        this.#begin(part.type === "text-start" ? "text" : "reasoning", part.id);
        return;
      case "start-step":
        this.#open.clear();
        this.#parts.push({ type: "step-start" });
        return;
      case "tool-call":
        this.#call(part);
        return;
      case "tool-result":
      case "tool-error":
        this.#answer(part);
        this.#heard("answer");
        return;
      case "file": {
        const { base64, mediaType } = part.file;
        this.#push({ type: "file", mediaType, url: `data:${mediaType};base64,${base64}` });
        return;
      }
      case "source":
        this.#push(sourcePart(part));
        return;
      case "finish-step":
        // After a step without calls comes the end of the run, which is stored anyway.
        if (this.#called) this.#heard("step");
        this.#called = false;
    }
  }

  #begin(type: TextPart["type"], id: string): TextPart {
    const block: TextPart = { type, text: "", state: "done" };
    this.#open.set(type + id, block);
    this.#parts.push(block);
    return block;
  }

  #call({ toolCallId, toolName, input, providerExecuted }: Extract<AgentPart, { type: "tool-call" }>): void {
    const call: ToolPart = { type: `tool-${toolName}`, toolCallId, state: "input-available", input };
    if (providerExecuted === true) call.providerExecuted = true;
    this.#calls.set(toolCallId, call);
    this.#called = true;
    this.#push(call);
  }

  #answer(part: Answer): void {
    const call = this.#calls.get(part.toolCallId);
    if (call === undefined) return;
    if (part.type === "tool-result") {
      call.state = "output-available";
      call.output = part.output;
    } else {
      call.state = "output-error";
      call.errorText = part.error;
    }
  }

  #push(part: Part): void {
    this.#said = true;
    this.#parts.push(part);
  }
}

function sourcePart(part: Extract<AgentPart, { type: "source" }>): Part {
  if (part.sourceType === "url") {
    const { id: sourceId, url, title } = part;
    return { type: "source-url", sourceId, url, ...(title !== undefined && { title }) };
  }
  const { id: sourceId, mediaType, title, filename } = part;
  return { type: "source-document", sourceId, mediaType, title, ...(filename !== undefined && { filename }) };
}
