/** The interface through which agents keep runs. For an agent, something else starts and ends a kept run, and resumes it after a crash. */
import type { GenerateOptions } from "../../generated/types.ts";
import type { EventProducer } from "../lib/event-sink.ts";
import type { ProtocolBody, RunCall } from "./agent.ts";
import type { AwaitedCall } from "./prompt/awaited-calls.ts";
import type { PreparedRun } from "./run/execute.ts";
import type { RunJournal } from "./run/journal.ts";
import type { PartSink } from "./run/parts.ts";
import type { RunResult } from "./run/run.ts";

/** Everything that a run starts with, as JSON. */
export interface KeptRequest {
  readonly input: unknown;
  readonly options?: GenerateOptions | undefined;
  readonly field?: string | undefined;
  readonly conversationId?: string | undefined;
  /** Schema of the result, for endpoints that have one; the run has no tools then. */
  readonly schema?: object | undefined;
  /** The JSON answer that a protocol asks for; the run keeps its tools then. */
  readonly json?: ProtocolBody["json"];
  readonly clientTools?: ProtocolBody["clientTools"];
  readonly toolChoice?: ProtocolBody["toolChoice"];
  readonly workingMemory?: ProtocolBody["workingMemory"];
  readonly clientKnowsMessageId?: true | undefined;
  readonly runsTools?: true | undefined;
  /** Set for a chat: its run can be found by its conversation while it runs. */
  readonly isResumable?: true | undefined;
  /** Whether the run itself waits for approvals. Otherwise its client brings the answers in another request. */
  readonly waits?: true | undefined;
  /** Whether it is a task of A2A, which is told how it stands. */
  readonly isTask?: true | undefined;
  /** False when the client does not pass on a person's approvals. Default: as `runsTools`. */
  readonly approves?: false | undefined;
}

/** One agent, from the point of view of what keeps its runs. */
export interface KeptAgent {
  readonly id: string;
  readonly recovery: "resume" | "fail";
  /** @throws ServiceError `invalid_input` */
  prepare(request: KeptRequest, call: RunCall, runId: string, journal: RunJournal): PreparedRun;
  /** @param outcome filled while the run proceeds. Rejects like `execute` of run/execute.ts */
  execute(prepared: PreparedRun, sink: PartSink, outcome: RunResult): Promise<RunResult>;
}

/** The id of a run, and where it comes from. */
export interface RunName {
  readonly runId: string;
  /** Whether a client chose the id, so that it may be taken. */
  readonly isChosen: boolean;
  /** Whether another request may begin a run with this id at the same time. */
  readonly isContested: boolean;
  /** Set when all requests with one idempotency key share the id. `repeated`: an earlier request may have started the run. */
  readonly keyed: "first" | "repeated" | null;
}

/**
 * A run that has not started yet. Each of its methods starts it, and it continues when the client leaves. If a request with the same
 * key has started a run, they refer to that one.
 */
export interface KeptRun {
  readonly id: string;
  readonly prepared: PreparedRun;
  /** Resolves when the run no longer continues in this process: it has ended, or continues later or elsewhere. */
  readonly left: Promise<void>;
  /** Resolves when the run has ended. Throws the error with which it failed. */
  result(): Promise<RunResult>;
  /** Resolves when the start of the run is on disk, to whether this request has started it. */
  start(): Promise<boolean>;
  /** Its parts as events, numbered as later readers of the run see them. `form` wraps the sink of the events in another one. */
  readonly events: (form?: (sink: Parameters<EventProducer>[0]) => PartSink) => EventProducer;
}

/** A run that waits for calls which a request answers, or has gone on since. */
export type AnsweredRun = Pick<KeptRun, "id" | "result" | "events">;

export interface RunKeeper {
  /** Whether kept runs survive the process. */
  readonly lasts: boolean;
  newRun(agent: KeptAgent, request: KeptRequest, call: RunCall, name: RunName): KeptRun;
  /** A run that ends with its request, unless it asks a person: from then on it is kept. */
  askingRun(agent: KeptAgent, request: KeptRequest, call: RunCall, runId: string, isChosen: boolean): KeptRun;
  /**
   * Gives a run the answers that a client reports for calls of it. Those that do not count are ignored.
   *
   * @param context of the request
   * @returns null when no run waits for them, or has
   */
  answered(
    agentId: string,
    calls: readonly AwaitedCall[],
    context: Readonly<Record<string, unknown>>,
    from: RunCall,
  ): Promise<AnsweredRun | null>;
  /** @throws ServiceError `conflict` when a kept run has this id */
  requireFree(runId: string, userId: string | undefined): Promise<void>;
}

/** Holds the keeper, once there is one. */
export interface Keeping {
  keeper: RunKeeper | null;
}
