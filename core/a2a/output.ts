/** The output of an agent in a task so far, for one reader. */
import { fileOf } from "../agents/prompt/results.ts";
import type { AgentPart } from "../agents/run/parts.ts";
import { hearing } from "../agents/stream/raw.ts";
import { parseJsonText } from "../http/decode.ts";
import type { EventProducer, EventSink } from "../lib/event-sink.ts";
import { isObject } from "../lib/is-object.ts";
import { isContent } from "../tools/content.ts";
import type { Artifact, Part, Task } from "./task.ts";

/** Longest answer, text and files together. As much may be added in files of tools: those beyond are left out. */
export const MAX_ANSWER_CHARACTERS = 4 * 1024 * 1024;
/** Id of the artifact with the texts of the agent. */
const ANSWER = "answer";

interface Text {
  readonly text: string;
  /** Texts of one block form one part: a model that calls tools may write texts before and after. */
  readonly block: number;
}

type Piece = Text | Artifact;

export interface ArtifactUpdate {
  readonly artifact: Artifact;
  /** Whether it continues the artifact with this id. */
  readonly append: boolean;
}

export class TaskOutput {
  readonly #pieces: Piece[] = [];
  #block = 0;
  /** How many pieces there were when the step began that is at work. */
  #before = 0;
  /** How many the reader has. */
  #read = 0;

  /** How the run has finished. */
  metadata: Task["metadata"];
  /** Number of the last event of the run that it has heard. */
  told: number;

  /**
   * @param earlier what the row has of it, in rows of older releases: its reader has it
   * @param seen number of the last event of the run of which that tells
   */
  constructor(earlier: readonly Artifact[], seen = 0) {
    this.told = seen;
    for (const artifact of earlier) {
      if (artifact.artifactId === ANSWER)
        for (const { text = "" } of artifact.parts) this.#pieces.push({ text, block: ++this.#block });
      else this.#pieces.push(artifact);
    }
    this.#read = this.#before = this.#pieces.length;
  }

  /** Adds a part, if it belongs to the answer: what sub-agents and tools say does not, though files that tools give do. */
  add(part: AgentPart): void {
    if (part.subAgentId !== undefined) return;
    if (part.type === "finish") this.metadata = { finishReason: part.finishReason, usage: part.totalUsage };
    else if (part.type === "start-step") this.#before = this.#pieces.length;
    else if (part.type === "step-restart") this.#restart();
    else if (part.type === "text-start") this.#block++;
    else if (part.type === "text-delta" && part.delta !== "")
      this.#pieces.push({ text: part.delta, block: this.#block });
    else if (part.type === "file") this.#addFile({ raw: part.file.base64, mediaType: part.file.mediaType });
    else if (part.type === "tool-result" && isContent(part.output)) {
      for (const item of part.output.value) {
        const file = fileOf(item);
        const size = charactersOf(this.#files.filter(isOfTool)) + (file?.raw?.length ?? 0);
        if (file !== undefined && size <= MAX_ANSWER_CHARACTERS) this.#addFile(file, part.toolName);
      }
    }
  }

  get #files(): Artifact[] {
    return this.#pieces.filter((piece) => "artifactId" in piece);
  }

  #addFile(file: Part, name?: string): void {
    const artifactId = `file-${this.#files.length + 1}`;
    this.#pieces.push({ artifactId, ...(name !== undefined && { name }), parts: [asData(file)] });
  }

  /** Files of tools have a bound of their own. */
  get isTooLong(): boolean {
    return charactersOf(this.artifacts().filter((artifact) => !isOfTool(artifact))) > MAX_ANSWER_CHARACTERS;
  }

  /** After a crash the model is asked again: what it has said in this step counts no more. */
  #restart(): void {
    this.#pieces.splice(this.#before);
    // The reader gets the whole artifact anew.
    if (this.#read > this.#before) this.#read = 0;
  }

  /** Adds what a run says. @param heard called after each part */
  hear(follow: EventProducer, reader: Partial<EventSink> = {}, heard = () => {}): Promise<void> {
    const each = (part: AgentPart, id: number) => {
      this.told = id;
      this.add(part);
      heard();
      return undefined;
    };
    return follow(hearing(each, reader));
  }

  artifacts(): Artifact[] {
    return this.#since(0).map(({ artifact }) => artifact);
  }

  get hasNews(): boolean {
    return this.#read < this.#pieces.length;
  }

  /** What the reader has not got yet: all text as one update, then the files. */
  news(): ArtifactUpdate[] {
    const updates = this.#since(this.#read);
    this.#read = this.#pieces.length;
    return updates;
  }

  #since(position: number): ArtifactUpdate[] {
    const news = this.#pieces.slice(position);
    const updates: ArtifactUpdate[] = [];
    const parts = textParts(news.filter((piece) => "text" in piece));
    const first = this.#pieces.findIndex((piece) => "text" in piece);
    if (parts.length > 0) updates.push({ artifact: { artifactId: ANSWER, parts }, append: first < position });
    for (const piece of news) if ("artifactId" in piece) updates.push({ artifact: piece, append: false });
    return updates;
  }
}

/** A file of JSON is data, if it is an object: 0.3 has no other. */
function asData({ raw, ...file }: Part): Part {
  const data =
    raw !== undefined && file.mediaType === "application/json"
      ? parseJsonText(Buffer.from(raw, "base64").toString())
      : undefined;
  return isObject(data) ? { ...file, data } : { raw, ...file };
}

const isOfTool = ({ name }: Artifact): boolean => name !== undefined;

export const charactersOf = (artifacts: readonly Artifact[]): number =>
  artifacts
    .flatMap(({ parts }) => parts)
    .reduce(
      (size, { text = "", raw = "", data }) =>
        size + text.length + raw.length + (data ? JSON.stringify(data).length : 0),
      0,
    );

function textParts(texts: readonly Text[]): Part[] {
  const blocks = new Map<number, string[]>();
  for (const { text, block } of texts) {
    const pieces = blocks.get(block);
    if (pieces === undefined) blocks.set(block, [text]);
    else pieces.push(text);
  }
  return [...blocks.values()].map((pieces) => ({ text: pieces.join(""), mediaType: "text/plain" }));
}
