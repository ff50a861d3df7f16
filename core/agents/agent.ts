/** What the rest of the service sees of an agent. */
import type { AgentDetail, AgentSummary, GenerateOptions, HistoryPage, TextResult } from "../../generated/types.ts";
import type { ClientSchema } from "../client-schema/schemas.ts";
import type { Context } from "../http/route.ts";
import type { Principal } from "../identity/principal.ts";
import type { EventProducer, EventSink } from "../lib/event-sink.ts";
import type { Serialized } from "../lib/serialized.ts";
import type { Summary } from "./conversation/write-summary.ts";
import type { KeptAgent } from "./keeper.ts";
import type { ClientTools } from "./run/client-tools.ts";
import type { EditedMemory } from "./run/execute.ts";
import type { RunJournal } from "./run/journal.ts";
import type { PartSink, PendingApproval } from "./run/parts.ts";
import type { RunPlan } from "./run/run.ts";

/** The part of a request's context that a run needs. `signal` is created when it is first read. */
export type RunCall = Pick<Context<unknown>, "user" | "caller" | "requestId" | "signal" | "logger" | "trace"> &
  Partial<Pick<Context<unknown>, "client" | "aborts" | "replyWith" | "keyed">> & {
    /**
     * To be asked before each effect of a run that another process may take over. Undefined: it may begin now. Otherwise it may once the
     * promise has resolved. Throws, or rejects, when the run was stopped.
     */
    confirm?(): Promise<void> | undefined;
    /** The task of A2A that the run works for: it is told when a person has answered what a tool of the run asks. */
    readonly taskId?: string | undefined;
  };

/** Body of `/text` and `/stream`. */
export interface GenerateBody {
  /** A string, UI messages or model messages; `input.ts` checks it. */
  input: unknown;
  options?: GenerateOptions;
}

/** Body of `/object` and `/stream-object`. */
export interface ObjectBody extends GenerateBody {
  schema: object;
}

/** Body of `/chat`: ours, or the one that a chat hook posts. */
export interface ChatBody {
  input?: unknown;
  options?: GenerateOptions;
  /** The hook's id of the chat: the conversation when `options` name none. */
  id?: string;
  messages?: unknown;
  /** `regenerate-message` to replace an answer with a new one. */
  trigger?: string;
  /** The message that is edited or made again; what comes after it in the list is not read. */
  messageId?: string;
}

/** What a protocol asks for that has replies of its own, and whose client runs tools. */
export interface ProtocolBody extends GenerateBody {
  /** Name of the field that the input comes from, for error messages. */
  field: string;
  clientTools?: ClientTools | undefined;
  /** Which tool the model must call. Default: as it likes. */
  toolChoice?: RunPlan["toolChoice"];
  /** The answer is JSON, of the schema if there is one. */
  json?: { readonly schema: object | undefined; readonly field: string } | undefined;
  /** How much the model shall think. */
  effort?: { readonly value: string; readonly field: string } | undefined;
  /** Whether the client answers for a person, who has to approve a call. Default: yes. */
  approves?: false;
  /** What the client has made of the working memory. */
  workingMemory?: EditedMemory | undefined;
  /** Whether the run is kept where that of `chat` is: then it is `events` that begins it. */
  isKept?: boolean;
}

/** A run that is ready to begin. */
export interface ProtocolRun {
  /** Id of the assistant's message, unless the run continues one. */
  readonly messageId: string;
  /** Whether the answer is JSON: then the `output` of its last part is the answer. */
  readonly isJson: boolean;
  /** Whether the client runs this tool, if its input is right. */
  isForClient(tool: string): boolean;
  /** Runs to the end; of a kept run the sink is told what is kept of it. An aborted run is not an error: its last part is `abort`. */
  start(sink: PartSink): Promise<void>;
  /** The same as events; those of a kept run come from what is kept of it. @param form the sink that makes them of the parts */
  events(form: (events: EventSink) => PartSink): EventProducer;
}

/** The same as a kept run, which goes on without its client. */
export interface KeptProtocolRun extends Pick<ProtocolRun, "isJson"> {
  /** The tools that the client runs. */
  readonly clientTools: readonly string[];
  /** Begins it; resolves when it is on disk, to whether it was begun here and not by an earlier request with the key of this one. */
  start(): Promise<boolean>;
  /** Resolves when it goes on here no more. */
  readonly left: Promise<void>;
}

/** What a workflow step asks an agent for. */
export interface TaskBody extends GenerateBody {
  /** The schema of the result, used instead of `options.output`. The agent keeps its tools, as with `options.output`. */
  result?: ClientSchema;
  /** The id of the run, and where it records what it has done, so that it survives its process. */
  runId?: string;
  journal?: RunJournal;
}

/** A run that stopped at calls which wait for a person's approval. */
export interface WaitingRun {
  readonly approvals: readonly PendingApproval[];
  /** The `input` of the run that goes on once they are answered. */
  readonly input: readonly object[];
}

/**
 * One agent. Every method that runs it throws ServiceError: `invalid_input` at once for an invalid body, later
 * `provider_failed` when the model fails, `not_found` for another user's conversation, and `unavailable` when the
 * conversation cannot be read or stored. Event producers throw the last three while they run, so that they become an
 * error reply or an error event.
 */
export interface Agent {
  readonly id: string;
  readonly name: string;
  readonly description: string;
  summary(): AgentSummary;
  detail(): AgentDetail;
  /** `listener` is called whenever `status` has changed. */
  onStatusChange(listener: () => void): void;
  /**
   * With `options.background` it resolves to a `StartedRun` once the begin of the run is on disk.
   *
   * @param approves whether the caller can bring a person's answer with its next request; default: yes
   */
  generateText(body: GenerateBody, call: RunCall, approves?: boolean): Promise<TextResult>;
  /** How its runs are kept. */
  readonly kept: KeptAgent;
  /** The same for workflow steps: the text, and `output` when `body.result` is given. `sink` receives the parts as they come. */
  run(body: TaskBody, call: RunCall, sink?: PartSink): Promise<{ text: string; output: unknown }>;
  /** As `run`, for a caller that goes on once a person has answered: resolves to what waits for that, or null when nothing does. */
  runOrWait(body: GenerateBody, call: RunCall, sink: PartSink): Promise<WaitingRun | null>;
  /** Resolves to a value that is valid against `body.schema`. */
  generateObject(body: ObjectBody, call: RunCall): Promise<unknown>;
  /** The typed parts of the run, one event each. */
  stream(body: GenerateBody, call: RunCall): EventProducer;
  /** The UI message stream. */
  chat(body: ChatBody, call: RunCall): EventProducer;
  /** For protocols with replies of their own: the sink makes them of the parts. */
  prepare(body: ProtocolBody, call: RunCall): ProtocolRun;
  /** @param runId a new one. Throws `invalid_input` as well where no runs are kept */
  prepareKept(body: ProtocolBody, call: RunCall, runId: string): KeptProtocolRun;
  /** Has its model sum up a conversation, of which a line tells one message or more. None of its tools runs. */
  summarize(lines: readonly string[], call: RunCall): Promise<Summary>;
  /** Growing partial objects, then the final one. */
  streamObject(body: ObjectBody, call: RunCall): EventProducer;
  /** The last runs that a principal may see, newest first. `page` counts from 0. */
  history(page: number, limit: number, principal: Principal): Promise<HistoryPage | Serialized>;
}
