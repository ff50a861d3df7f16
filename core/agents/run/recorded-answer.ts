/** Answers of a model in the journal of a run: how they are recorded, and read again. */
import type { LanguageModelV3StreamPart } from "@ai-sdk/provider";
import type { ModelStream } from "../../models/chained-answer.ts";
import type { PartBatch } from "../../plugin/plugin.ts";
import { base64Of } from "./provider-parts.ts";

/** An answer of the model, as its provider gave it, with the deltas of each block in one. */
export interface RecordedAnswer {
  readonly parts: readonly LanguageModelV3StreamPart[];
  readonly model: string;
  readonly cost?: number | undefined;
}

/** What an answer is read from. */
type Answer = Pick<ModelStream, "next" | "cancel">;

/** A recorded answer, to be read as if the model gave it. */
export function recordedStream({ parts }: RecordedAnswer): Answer {
  let rest: PartBatch | null = parts;
  return {
    next() {
      const batch = rest;
      rest = null;
      return batch;
    },
    cancel() {},
  };
}

/** Parts that say nothing once the answer is complete. */
const PASSING: ReadonlySet<LanguageModelV3StreamPart["type"]> = new Set<LanguageModelV3StreamPart["type"]>([
  "stream-start",
  "response-metadata",
  "raw",
  "tool-input-delta",
  "tool-input-end",
]);

type Delta = Extract<LanguageModelV3StreamPart, { type: "text-delta" | "reasoning-delta" }>;

/** Takes what the journal needs of an answer while it is read. */
export class KeptParts {
  readonly parts: LanguageModelV3StreamPart[] = [];

  add(batch: PartBatch): void {
    for (const part of batch) this.#add(part);
  }

  #add(part: LanguageModelV3StreamPart): void {
    if (PASSING.has(part.type)) return;
    const last = this.parts.at(-1);
    if (isDelta(part)) {
      if (last?.type === part.type && last.id === part.id && part.providerMetadata === undefined)
        last.delta += part.delta;
      else this.parts.push({ ...part });
    } else if (part.type === "file") this.parts.push({ ...part, data: base64Of(part) });
    else if (part.type !== "tool-result" || part.preliminary !== true) this.parts.push(part);
  }
}

const isDelta = (part: LanguageModelV3StreamPart): part is Delta =>
  part.type === "text-delta" || part.type === "reasoning-delta";
