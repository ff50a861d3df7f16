/** What agents are given to keep runs: to them a kept run is one that somebody else starts, ends and starts again after a crash. */
import type { GenerateOptions } from "../../generated/types.ts";
import type { EventProducer } from "../lib/event-sink.ts";
import type { ProtocolBody, RunCall } from "./agent.ts";
import type { PreparedRun } from "./run/execute.ts";
import type { RunJournal } from "./run/journal.ts";
import type { PartSink } from "./run/parts.ts";
import type { RunResult } from "./run/run.ts";

/** All that a run begins with, as JSON. */
export interface KeptRequest {
  readonly input: unknown;
  readonly options?: GenerateOptions | undefined;
  readonly field?: string | undefined;
  readonly conversationId?: string | undefined;
  /** Of the result, for endpoints that ask for one; then the run has no tools. */
  readonly schema?: object | undefined;
  /** As a protocol asks for it: then the run keeps its tools. */
  readonly json?: ProtocolBody["json"];
  readonly clientTools?: ProtocolBody["clientTools"];
  readonly toolChoice?: ProtocolBody["toolChoice"];
  readonly workingMemory?: ProtocolBody["workingMemory"];
  readonly clientKnowsMessageId?: true | undefined;
  readonly runsTools?: true | undefined;
  /** Of a chat: while it runs it is found by its conversation. */
  readonly isResumable?: true | undefined;
  /** Whether the run itself waits for approvals. Otherwise its client brings the answers, with another request. */
  readonly waits?: true | undefined;
  /** False: the client does not answer for a person. Default: as `runsTools`. */
  readonly approves?: false | undefined;
}

/** One agent, as its runs are kept. */
export interface KeptAgent {
  readonly id: string;
  readonly recovery: "resume" | "fail";
  /** @throws ServiceError `invalid_input` */
  prepare(request: KeptRequest, call: RunCall, runId: string, journal: RunJournal): PreparedRun;
  /** @param outcome filled on the way. Rejects like `execute` of run/execute.ts */
  execute(prepared: PreparedRun, sink: PartSink, outcome: RunResult): Promise<RunResult>;
}

/** What a run is called. */
export interface RunName {
  readonly runId: string;
  /** Whether a client chose it, so that it may be taken. */
  readonly isChosen: boolean;
  /** Whether requests with one key have it in common. `repeated`: an earlier one may have begun the run. */
  readonly keyed: "first" | "repeated" | null;
}

/**
 * A run that has not begun yet. Each of its methods begins it; it goes on when the client leaves. Where a request with the same key has
 * begun it, they are about that run.
 */
export interface KeptRun {
  readonly id: string;
  readonly prepared: PreparedRun;
  /** Resolves when it goes on here no more: it has ended, or goes on later or elsewhere. */
  readonly left: Promise<void>;
  /** Resolves when it has ended. Throws what made it fail. */
  result(): Promise<RunResult>;
  /** Resolves when it is on disk, to whether this request has begun it. */
  start(): Promise<boolean>;
  /** Its parts as events, numbered as those who read the run later see them. `form` makes another sink of the one of the events. */
  readonly events: (form?: (sink: Parameters<EventProducer>[0]) => PartSink) => EventProducer;
}

export interface RunKeeper {
  /** Whether what it keeps survives the process. */
  readonly lasts: boolean;
  newRun(agent: KeptAgent, request: KeptRequest, call: RunCall, name: RunName): KeptRun;
  /** @throws ServiceError `conflict` when a kept run has this id */
  requireFree(runId: string, userId: string | undefined): Promise<void>;
}

/** Set once there is something that keeps runs. */
export interface Keeping {
  keeper: RunKeeper | null;
}
