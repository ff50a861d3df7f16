/** The output of an agent in a task so far, for any number of readers, each with its own position. */
import type { AgentPart } from "../agents/run/parts.ts";
import type { Artifact, Part } from "./task.ts";

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
  #firstText = -1;
  #block = 0;
  #files = 0;
  /** Size of the output in characters. */
  size = 0;

  /** @param earlier the output before a question, if the task continues after one */
  constructor(earlier: readonly Artifact[] = []) {
    for (const artifact of earlier) {
      if (artifact.artifactId === ANSWER)
        for (const { text = "" } of artifact.parts) this.#addText(text, ++this.#block);
      else this.#addFile(artifact);
    }
  }

  /** The position after all output so far. */
  get length(): number {
    return this.#pieces.length;
  }

  /** Adds a part; returns whether it belongs to the answer. Output of sub-agents and of tools does not. */
  add(part: AgentPart): boolean {
    if (part.subAgentId !== undefined) return false;
    if (part.type === "text-start") this.#block++;
    if (part.type === "text-delta" && part.delta !== "") {
      this.#addText(part.delta, this.#block);
      return true;
    }
    if (part.type !== "file") return false;
    const { base64, mediaType } = part.file;
    this.#addFile({ artifactId: `file-${this.#files + 1}`, parts: [{ raw: base64, mediaType }] });
    return true;
  }

  #addText(text: string, block: number): void {
    if (this.#firstText === -1) this.#firstText = this.#pieces.length;
    this.size += text.length;
    this.#pieces.push({ text, block });
  }

  #addFile(artifact: Artifact): void {
    this.#files++;
    for (const { raw = "" } of artifact.parts) this.size += raw.length;
    this.#pieces.push(artifact);
  }

  artifacts(): Artifact[] {
    return this.since(0).map(({ artifact }) => artifact);
  }

  /** The output after a position: all text as one update, then the files. */
  since(position: number): ArtifactUpdate[] {
    const news = this.#pieces.slice(position);
    const updates: ArtifactUpdate[] = [];
    const parts = textParts(news.filter((piece) => "text" in piece));
    if (parts.length > 0) updates.push({ artifact: { artifactId: ANSWER, parts }, append: position > this.#firstText });
    for (const piece of news) if ("artifactId" in piece) updates.push({ artifact: piece, append: false });
    return updates;
  }
}

function textParts(texts: readonly Text[]): Part[] {
  const blocks = new Map<number, string[]>();
  for (const { text, block } of texts) {
    const pieces = blocks.get(block);
    if (pieces === undefined) blocks.set(block, [text]);
    else pieces.push(text);
  }
  return [...blocks.values()].map((pieces) => ({ text: pieces.join(""), mediaType: "text/plain" }));
}
