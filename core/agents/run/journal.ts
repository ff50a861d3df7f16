/**
 * The journal of a run that outlives its process: each answer of the model that asks for tools, and each result of a tool. After a
 * crash the run begins again and goes on behind what is recorded. Recorded answers are read a second time by the code that read
 * them first, so that ids of calls, the message of the turn and the result of the run come out the same.
 */
import { createHash } from "node:crypto";
import type { LanguageModelV3StreamPart } from "@ai-sdk/provider";
import { storedTime } from "../../lib/clock.ts";
import type { ServiceError } from "../../lib/errors.ts";
import type { ModelStream } from "../../models/chained-answer.ts";
import type { PartBatch } from "../../plugin/plugin.ts";
import type { JoinedChanges } from "../../storage/joined.ts";
import type { ApprovalClaim } from "../../tools/tool.ts";
import type { ToolContent } from "../prompt/model-input.ts";
import { type AgentPart, base64Of, type PartSink, type PendingApproval, type StoredIds } from "./parts.ts";

// Answers of a model in the journal of a run: how they are recorded, and read again.

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

// A run that waits for a person's approval: it comes to rest, and goes on with the answer in this process or in another.

/** What is told of an answer, so that the run goes on. */
export type WaitingPlace = Pick<
  ApprovalClaim,
  "taskId" | "workflowId" | "executionId" | "stepId" | "stepAgentId" | "runId" | "keep"
>;

/** Thrown by a run whose calls wait, and by the call of a tool that is such a run. What else it did is recorded. */
export class RunWaits extends Error {
  readonly approvals: readonly PendingApproval[];
  /** What the model reads of the calls of the step; null where the client is shown the question. */
  readonly told: ToolContent | null;

  constructor(approvals: readonly PendingApproval[], told: ToolContent | null) {
    super("the run waits for approval");
    this.approvals = approvals;
    this.told = told;
  }
}

/** How a tool call ended. */
export type ToolAnswer = Extract<AgentPart, { type: "tool-result" | "tool-error" | "tool-output-denied" }>;

/** Steps count from 1; what the model has said of calls that wait is that of the step below 0. `texts`: what it has read beside its instructions. `begun`: readers were told that the step begins, `asked`: that a call waits for approval. `stored`: it rests, and its messages are in the conversation of that memory. The last form is an entry of the sub-agent that a call delegated to. */
export type RunEntry =
  | readonly ["texts", readonly string[]]
  | readonly ["begun", step: number]
  | readonly ["step", step: number, RecordedAnswer]
  | readonly ["result", step: number, ToolAnswer]
  | readonly ["asked", approvalId: string, toolCallId?: string]
  | readonly ["stored", StoredIds, memory: string]
  | readonly ["inner", step: number, callId: string, RunEntry];

type StoredEntry = Extract<RunEntry, readonly ["stored", ...unknown[]]>;

/** Where the entries of a run go, and what they were before a crash. */
export interface RunJournal {
  readonly recorded: readonly RunEntry[];
  /** Whether the run began before, and was broken off. */
  readonly isRepeated: boolean;
  /** Whether readers may have seen parts that came before the crash. */
  readonly hasStreamed: boolean;
  /** When the run first began, in milliseconds since 1970. */
  readonly begunAt: number;
  /** The same of the kept run, or of the execution, that it is a part of. */
  readonly since: number;
  /** Whether a run whose signal has aborted goes on later, so that nothing is to be stored of its end. */
  readonly isInterrupted: boolean;
  /** Whether the run goes on after its process. False for one that is kept from its first question on, before that; default: true. */
  readonly isKept?: boolean;
  /** Where it waits for approvals; left out: it does not wait for them. */
  readonly waitsAt?: WaitingPlace | undefined;
  /** Resolves when the entry is on disk. What the sink is sent in the same turn of the event loop is on disk with it. */
  record(entry: RunEntry): Promise<void>;
  /** Resolves when all that was recorded is on disk, and with it that the run goes on here and nowhere else. */
  flush(): Promise<void>;
  /** Records an entry with the next commit. */
  note(entry: RunEntry): void;
  /** Told that the run waits, since the store is away: who waits for the run may be told. */
  away?(error: ServiceError): void;
  /**
   * Ends the run with its last part, in a commit that `store` makes with what it is given: so neither happens without the other. Left
   * out: the run is a part of something that goes on.
   *
   * @returns false when it has not ended, since nothing was committed or there is no room for more
   */
  end?(last: AgentPart, store: (joined: JoinedChanges) => Promise<void>): Promise<boolean>;
}

/** An id of a run that follows from a key, in the form of all others. */
export const runIdFrom = (key: string): string => createHash("sha256").update(key).digest("hex").slice(0, 32);

/** The journal of one run, as its loop uses it. */
export class RunRecord {
  readonly journal: RunJournal;
  /** By the number of the step. */
  readonly answers = new Map<number, RecordedAnswer>();
  readonly #begun = new Set<number>();
  readonly #asked = new Set<string>();
  /** Ids of questions by those of their calls. */
  readonly questions = new Map<string, string>();
  /** By the ids of their calls. */
  readonly results = new Map<string, ToolAnswer>();
  /** What was read for the instructions when the run first began; null where that is not on record. */
  readonly texts: readonly string[] | null;
  readonly #stored: StoredEntry | null;
  /** The first step is known by the parts themselves, where nothing comes before it. */
  readonly #firstToNote: number;
  /** While the run does again what readers have seen. */
  #muted: boolean;

  /** @param resumes whether the run begins with calls of an earlier answer, before its first step */
  constructor(journal: RunJournal, resumes: boolean) {
    this.journal = journal;
    this.#firstToNote = resumes ? 1 : 2;
    let texts: readonly string[] | null = null;
    let stored: StoredEntry | null = null;
    let isTold = journal.hasStreamed;
    for (const entry of journal.recorded) {
      if (entry[0] === "texts") {
        texts = entry[1];
        continue;
      }
      isTold = true;
      if (entry[0] === "begun") this.#begun.add(entry[1]);
      else if (entry[0] === "stored") stored = entry;
      else if (entry[0] === "step") this.answers.set(entry[1], entry[2]);
      else if (entry[0] === "asked") {
        this.#asked.add(entry[1]);
        if (entry[2] !== undefined) this.questions.set(entry[2], entry[1]);
      } else if (entry[0] === "result") this.results.set(entry[2].toolCallId, entry[2]);
    }
    if (journal.hasStreamed && !resumes) this.#begun.add(1);
    this.texts = texts;
    this.#stored = stored;
    this.#muted = isTold;
  }

  /** The messages that it had stored in a memory when it came to rest; null when it has not. */
  storedIn(memory: string): StoredIds | null {
    return this.#stored?.[2] === memory ? this.#stored[1] : null;
  }

  get isKept(): boolean {
    return this.journal.isKept ?? true;
  }

  away(error: ServiceError): void {
    this.journal.away?.(error);
  }

  /** As `RunJournal.end`. */
  async end(last: AgentPart, store: (joined: JoinedChanges) => Promise<void>): Promise<boolean> {
    return (await this.journal.end?.(last, store)) ?? false;
  }

  /** From here on the run does what was not done before. */
  goOn(): void {
    this.#muted = false;
  }

  /** To be called when readers are told that a step begins. @returns whether they were told so before */
  begin(step: number): boolean {
    this.goOn();
    if (this.#begun.has(step)) return true;
    if (step >= this.#firstToNote) this.journal.note(["begun", step]);
    return false;
  }

  /** Nobody waits for it: where the process dies before it is on disk, the texts are read again. */
  recordTexts(texts: readonly string[]): void {
    this.journal.record(["texts", texts]).catch(() => {});
  }

  recordAnswer(step: number, answer: RecordedAnswer): Promise<void> {
    return this.journal.record(["step", step, answer]);
  }

  recordResult(step: number, answer: ToolAnswer): Promise<void> {
    return this.journal.record(["result", step, answer]);
  }

  /** The journal of the sub-agent that a call delegates to. */
  inner(step: number, callId: string): RunJournal {
    const journal = this.journal;
    const recorded: RunEntry[] = [];
    for (const entry of journal.recorded)
      if (entry[0] === "inner" && entry[1] === step && entry[2] === callId) recorded.push(entry[3]);
    return {
      recorded,
      isRepeated: journal.isRepeated,
      hasStreamed: false,
      begunAt: storedTime(),
      since: journal.since,
      waitsAt: journal.waitsAt,
      get isKept() {
        return journal.isKept;
      },
      get isInterrupted() {
        return journal.isInterrupted;
      },
      flush: () => journal.flush(),
      record: (entry) => journal.record(["inner", step, callId, entry]),
      note: (entry) => journal.note(["inner", step, callId, entry]),
      away: (error) => journal.away?.(error),
    };
  }

  /** Passes on what readers have not seen yet. */
  sink(sink: PartSink): PartSink {
    const isMuted = () => this.#muted;
    return {
      get closed() {
        return sink.closed;
      },
      accepted: () => sink.accepted?.(),
      part: (part) => (isMuted() || this.#isKnown(part) ? undefined : sink.part(part)),
    };
  }

  /** Whether readers were told of the same question before the run came to rest. */
  #isKnown(part: AgentPart): boolean {
    if (part.type !== "tool-approval-request" || part.subAgentId !== undefined) return false;
    if (this.#asked.has(part.approvalId)) return true;
    this.#asked.add(part.approvalId);
    this.journal.note(["asked", part.approvalId, part.toolCallId]);
    return false;
  }
}
