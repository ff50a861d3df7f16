/** What agents are asked with, and the interface through which their runs are kept. */
import type { GenerateOptions } from "../../generated/types.ts";
import type { ClientSchema } from "../client-schema/schemas.ts";
import type { EventProducer, EventSink } from "../lib/event-sink.ts";
import type { AwaitedCall } from "./prompt/awaited-calls.ts";
import type { RunCall } from "./run/caller.ts";
import type { RunJournal } from "./run/journal.ts";
import type { JsonAnswer } from "./run/options.ts";
import type { PartSink } from "./run/parts.ts";
import type { EditedMemory, PreparedRun, RunPlan, RunResult } from "./run/run.ts";
import type { ClientTools } from "./run/tool-set.ts";

/** Body of `/text` and `/stream`. */
export interface GenerateBody {
  /** A string, UI messages or model messages; validated by `input.ts`. */
  input: unknown;
  options?: GenerateOptions;
}

/** Body of `/object` and `/stream-object`. */
export interface ObjectBody extends GenerateBody {
  schema: object;
}

/** Body of `/chat`: our own, or the one that a chat hook posts. */
export interface ChatBody {
  input?: unknown;
  options?: GenerateOptions;
  /** The hook's id of the chat: the conversation when `options` name none. */
  id?: string;
  messages?: unknown;
  /** `regenerate-message` to replace an answer with a new one. */
  trigger?: string;
  /** The message that is edited or generated again; later messages of the list are ignored. */
  messageId?: string;
}

/** The request of a protocol with its own reply format, whose client may run tools. */
export interface ProtocolBody extends GenerateBody {
  /** Name of the field that the input comes from, for error messages. */
  field: string;
  clientTools?: ClientTools | undefined;
  /** Which tool the model must call. Default: the model chooses. */
  toolChoice?: RunPlan["toolChoice"];
  json?: JsonAnswer | undefined;
  /** The requested reasoning effort. */
  effort?: { readonly value: string; readonly field: string } | undefined;
  /** Whether the client passes on a person's approvals. Default: yes. */
  approves?: false;
  /** The working memory as the client has edited it. */
  workingMemory?: EditedMemory | undefined;
  /** Its id. Default: a new one. */
  runId?: string;
  /** Whether the reply is the stream of the run, which a repeated request with its key follows. */
  streams?: boolean;
}

/** A run that is ready to start. */
export interface ProtocolRun {
  /** Id of the assistant's message, unless the run continues one. */
  readonly messageId: string;
  /** Whether the answer is JSON: then the `output` of its last part is the answer. */
  readonly isJson: boolean;
  readonly context: Readonly<Record<string, unknown>>;
  /** The tools that the client runs, where their input is valid. */
  readonly clientTools: readonly string[];
  /** Runs to the end; the sink of a kept run gets the parts that are recorded. An aborted run is not an error: its last part is `abort`. */
  start(sink: PartSink): Promise<void>;
  /** Runs as a stream of events; those of a kept run come from its journal. @param form makes the sink that turns parts into events */
  events(form: (events: EventSink) => PartSink): EventProducer | Promise<EventProducer>;
  /** Of one that runs in the background. */
  readonly kept?: KeptStart | undefined;
}

/** The task that a workflow step gives an agent. */
export interface TaskBody extends GenerateBody {
  /** The schema of the result, used instead of `options.output`. The agent keeps its tools, as with `options.output`. */
  result?: ClientSchema;
  /** The id of the run, and the journal in which it records what it has done, so that it survives its process. */
  runId?: string;
  journal?: RunJournal;
}

// The interface through which agents keep runs. For an agent, something else starts and ends a kept run, and resumes it after a crash.

/** Everything that a run starts with, as JSON. */
export interface KeptRequest {
  readonly input: unknown;
  readonly options?: GenerateOptions | undefined;
  /** Its id, if the options name none. Default: a new one. */
  readonly runId?: string | undefined;
  /** Name of the field that the input comes from, for error messages. Default: `input`. */
  readonly field?: string | undefined;
  /** The conversation, if the options name none. */
  readonly conversationId?: string | undefined;
  /** Schema of the result, for endpoints that have one; the run has no tools then. */
  readonly schema?: object | undefined;
  /** The JSON answer that a protocol asks for; the run keeps its tools then. */
  readonly json?: JsonAnswer | undefined;
  /** Tools that the client brings. Only with `runsTools`. */
  readonly clientTools?: ClientTools | undefined;
  /** Which tool the model must call. Default: as it likes. */
  readonly toolChoice?: RunPlan["toolChoice"];
  /** What the client has made of the working memory: it is stored before the run reads it. */
  readonly workingMemory?: EditedMemory | undefined;
  /** Whether the client is sent the id of the assistant's message. */
  readonly clientKnowsMessageId?: true | undefined;
  /** Whether a client reads the answer that can run tools and post their results. */
  readonly runsTools?: true | undefined;
  /** Set for a chat: its run can be found by its conversation while it runs. */
  readonly isResumable?: true | undefined;
  /** Whether it is a task of A2A, which is told how it stands. */
  readonly isTask?: true | undefined;
  /** Whether the client also answers for a person, who has to approve a call. Default: as `runsTools`. */
  readonly approves?: boolean | undefined;
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

/** The sink of events, wrapped in another one. Default: raw parts. */
export interface ReplyForm {
  (sink: Parameters<EventProducer>[0]): PartSink;
  /** Whether each part is one event: then the reply of a kept run that waits has no end of its own. */
  readonly isRaw?: true;
}

/** A run that has not started yet. Each of its methods starts it. If a request with the same key has started a run, they refer to that one. */
export interface StartableRun {
  readonly id: string;
  readonly prepared: PreparedRun;
  /** Resolves when the run has ended, or waits. Throws the error with which it failed. */
  result(): Promise<RunResult>;
  /**
   * Its parts as events; those of one that is kept from its begin are numbered as later readers of the run see them. An aborted run is not
   * an error: its last part is `abort`.
   */
  events(form?: ReplyForm): EventProducer | Promise<EventProducer>;
  /** Only of one that is kept from its begin: it continues when the client leaves. */
  readonly kept?: KeptStart | undefined;
}

export interface KeptRun extends StartableRun {
  readonly kept: KeptStart;
}

export interface KeptStart {
  /** Resolves when the start of the run is on disk, to whether this request has started it. */
  start(): Promise<boolean>;
  /** Resolves when the run no longer continues in this process: it has ended, or continues later or elsewhere. */
  readonly left: Promise<void>;
}

/** A run that waits for calls which a request answers, or has gone on since. */
export type AnsweredRun = Pick<StartableRun, "id" | "result" | "events">;

export interface RunKeeper {
  /** Whether kept runs survive the process. */
  readonly lasts: boolean;
  newRun(agent: KeptAgent, request: KeptRequest, call: RunCall, name: RunName): KeptRun;
  /** A run that ends with its request, unless it asks a person: from then on it is kept. */
  askingRun(agent: KeptAgent, request: KeptRequest, call: RunCall, runId: string, isChosen: boolean): StartableRun;
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
