/** The open blocks of one agent: texts, thoughts and calls. Every block must end, because clients refuse a run that leaves one open. */
import type { AgUiEvent } from "../../generated/types.ts";
import { encryptedValue, type PartOf } from "./event-parts.ts";

type Block = { readonly kind: "text" | "reasoning"; readonly messageId: string };

/** Creates ids of messages. Those of thoughts differ, because clients need not send them back. */
type NewMessageId = (role: "assistant" | "reasoning") => string;

/** The blocks of one agent: of the run itself, or of a sub-agent in it. */
export class Blocks {
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
    return [...begun, contentOf(this.#open.get(kind + id)!, delta)];
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

const contentOf = ({ kind, messageId }: Block, delta: string): AgUiEvent => ({
  type: kind === "text" ? "TEXT_MESSAGE_CONTENT" : "REASONING_MESSAGE_CONTENT",
  messageId,
  delta,
});

/** @param carried events for the metadata of the message, to be sent while the message is known */
function endOf({ kind, messageId }: Block, carried: readonly AgUiEvent[] = []): AgUiEvent[] {
  if (kind === "text") return [{ type: "TEXT_MESSAGE_END", messageId }, ...carried];
  return [{ type: "REASONING_MESSAGE_END", messageId }, ...carried, { type: "REASONING_END", messageId }];
}
