/** Writes the parts of a kept run to its journal. Deltas of one block that come before the same commit are one part. */
import { type AgentPart, type Delta, type PartSink, plainDelta } from "../agents/run/parts.ts";
import type { StepCall } from "../workflows/definition/definition.ts";

/** While somebody reads them, parts are on disk when no more have come for the first time, or after the second. */
const PAUSE_MS = 20;
const LONGEST_MS = 50;
/** Characters that are not on disk yet: above this the run waits. */
const MAX_UNWRITTEN = 256 * 1024;
/** What a part counts beside its text. */
const PART_CHARACTERS = 200;

/** Where the parts go. */
type Written = Pick<StepCall, "part" | "flush">;

export class KeptSink implements PartSink {
  /** Only the signal of the step ends the run. */
  readonly closed = false;
  readonly #call: Written;
  readonly #onAccepted: () => void;
  #isRead: boolean;
  #held: Delta | null = null;
  #unwritten = 0;
  #timer: NodeJS.Timeout | null = null;
  /** When the last part came. */
  #last = 0;

  /** @param isRead whether somebody reads the parts while they come */
  constructor(call: Written, isRead: boolean, onAccepted: () => void) {
    this.#call = call;
    this.#isRead = isRead;
    this.#onAccepted = onAccepted;
  }

  accepted(): void {
    this.#onAccepted();
  }

  part(part: AgentPart): Promise<void> | undefined {
    if (isDelta(part)) this.#addDelta(part);
    else {
      this.#release();
      this.#call.part(part, true);
      this.#unwritten += PART_CHARACTERS;
    }
    if (this.#unwritten > MAX_UNWRITTEN) return this.#write();
    if (this.#isRead) this.#schedule();
    return undefined;
  }

  /** From now on somebody reads the parts while they come. */
  read(): void {
    this.#isRead = true;
    this.#schedule();
  }

  /** No more parts come; those that did are on disk with the next commit. */
  end(): void {
    this.#release();
    this.#isRead = false;
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
  }

  #addDelta(part: Delta): void {
    const held = this.#held;
    this.#unwritten += part.delta.length;
    if (
      held !== null &&
      held.type === part.type &&
      held.id === part.id &&
      held.subAgentCallId === part.subAgentCallId
    ) {
      held.delta += part.delta;
      return;
    }
    this.#release();
    this.#held = plainDelta(part);
    this.#unwritten += PART_CHARACTERS;
  }

  #release(): void {
    if (this.#held !== null) this.#call.part(this.#held, true);
    this.#held = null;
  }

  #schedule(): void {
    this.#last = performance.now();
    if (this.#timer === null) this.#writeAfter(PAUSE_MS, this.#last + LONGEST_MS);
  }

  /** @param latest when it is time, though parts go on coming */
  #writeAfter(milliseconds: number, latest: number): void {
    this.#timer = setTimeout(() => {
      const left = Math.min(this.#last + PAUSE_MS, latest) - performance.now();
      if (left >= 1) return this.#writeAfter(left, latest);
      this.#timer = null;
      // A failure shows at the end of the run.
      this.#write().catch(() => {});
    }, milliseconds);
  }

  #write(): Promise<void> {
    this.#release();
    this.#unwritten = 0;
    return this.#call.flush();
  }
}

const isDelta = (part: AgentPart): part is Delta =>
  part.type === "text-delta" || part.type === "reasoning-delta" || part.type === "tool-input-delta";
