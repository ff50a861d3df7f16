/** The interface of agents for the rest of the service. */
import type { AgentDetail, AgentSummary, GenerateOptions, HistoryPage, TextResult } from "../../generated/types.ts";
import type { ClientSchema } from "../client-schema/schemas.ts";
import type { Principal } from "../identity/principal.ts";
import type { EventProducer, EventSink } from "../lib/event-sink.ts";
import type { Serialized } from "../lib/serialized.ts";
import type { Summary } from "./conversation/write-summary.ts";
import type { KeptAgent, KeptStart } from "./keeper.ts";
import type { RunCall } from "./run/caller.ts";
import type { ClientTools } from "./run/client-tools.ts";
import type { RunJournal } from "./run/journal.ts";
import type { JsonAnswer } from "./run/output.ts";
import type { PartSink } from "./run/parts.ts";
import type { EditedMemory, RunPlan, RunResult } from "./run/run.ts";

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
   * With `options.background` it resolves to a `StartedRun` once the start of the run is on disk.
   *
   * @param approves false where the client cannot answer for a person. Default: it can
   */
  generateText(body: GenerateBody, call: RunCall, approves?: false): Promise<TextResult>;
  /** Prepares and executes its kept runs. */
  readonly kept: KeptAgent;
  /** For workflow steps: the text, and `output` when `body.result` is given. `sink` receives the parts as they come. */
  run(body: TaskBody, call: RunCall, sink?: PartSink): Promise<Pick<RunResult, "text" | "output" | "finishReason">>;
  /** Resolves to a value that is valid against `body.schema`. */
  generateObject(body: ObjectBody, call: RunCall): Promise<unknown>;
  /** The typed parts of the run, one event each. */
  stream(body: GenerateBody, call: RunCall): EventProducer | Promise<EventProducer>;
  /** The UI message stream. */
  chat(body: ChatBody, call: RunCall): EventProducer | Promise<EventProducer>;
  /** For protocols with their own reply format: their sink makes the reply from the parts. */
  prepare(body: ProtocolBody, call: RunCall): ProtocolRun;
  /** Lets its model summarize lines, each of which stands for one or more messages. Runs none of its tools. */
  summarize(lines: readonly string[], call: RunCall): Promise<Summary>;
  /** Growing partial objects, then the final one. */
  streamObject(body: ObjectBody, call: RunCall): EventProducer;
  /** The last runs that a principal may see, newest first. `page` counts from 0. */
  history(page: number, limit: number, principal: Principal): Promise<HistoryPage | Serialized>;
}
