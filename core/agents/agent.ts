/** What the rest of the service sees of an agent. */
import type { AgentDetail, AgentSummary, GenerateOptions, HistoryPage, TextResult } from "../../generated/types.ts";
import type { ClientSchema } from "../client-schema/schemas.ts";
import type { Context } from "../http/route.ts";
import type { Principal } from "../identity/principal.ts";
import type { EventProducer } from "../lib/event-sink.ts";
import type { Serialized } from "../lib/serialized.ts";
import type { PartSink } from "./run/parts.ts";
import type { RunPlan } from "./run/run.ts";
import type { RequestTool } from "./run/tool-set.ts";

/** The part of a request's context that a run needs. `signal` is created when it is first read. */
export type RunCall = Pick<Context<unknown>, "user" | "caller" | "requestId" | "signal" | "logger" | "trace"> &
  Partial<Pick<Context<unknown>, "client" | "aborts">> & {
    /**
     * To be asked before each effect of a run that another process may take over. Undefined: it may begin now. Otherwise it may once the
     * promise has resolved. Throws, or rejects, when the run was stopped.
     */
    confirm?(): Promise<void> | undefined;
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

/** A request in a protocol whose clients bring tools of their own. `field` is what it calls `input`. */
export interface ProtocolBody extends GenerateBody {
  readonly field: string;
  readonly tools?: readonly RequestTool[] | undefined;
  readonly toolChoice?: RunPlan["toolChoice"];
  /** The answer is JSON, of the schema if there is one. */
  readonly json?: { readonly schema: object | undefined; readonly field: string } | undefined;
  readonly effort?: { readonly value: string; readonly field: string } | undefined;
}

/** A run that has passed all checks of its request. */
export interface ProtocolRun {
  /** Whether the answer is JSON: then the `output` of its last part is the answer. */
  readonly isJson: boolean;
  /** Whether the client runs this tool, if its input is right. */
  isForClient(tool: string): boolean;
  /** Runs to the end. A run that was aborted ends with the part `abort`. */
  run(sink: PartSink): Promise<void>;
}

/** What a workflow step asks an agent for. */
export interface TaskBody extends GenerateBody {
  /** The schema of the result, used instead of `options.output`. The agent keeps its tools, as with `options.output`. */
  result?: ClientSchema;
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
  /** @param approves whether the caller can bring a person's answer with its next request; default: yes */
  generateText(body: GenerateBody, call: RunCall, approves?: boolean): Promise<TextResult>;
  /** The same for workflow steps: the text, and `output` when `body.result` is given. `sink` receives the parts as they come. */
  run(body: TaskBody, call: RunCall, sink?: PartSink): Promise<{ text: string; output: unknown }>;
  /** A run for another protocol, whose client runs the tools that it brings. Nobody is there who could approve a call. */
  prepare(body: ProtocolBody, call: RunCall): ProtocolRun;
  /** Resolves to a value that is valid against `body.schema`. */
  generateObject(body: ObjectBody, call: RunCall): Promise<unknown>;
  /** The typed parts of the run, one event each. */
  stream(body: GenerateBody, call: RunCall): EventProducer;
  /** The UI message stream. */
  chat(body: ChatBody, call: RunCall): EventProducer;
  /** Growing partial objects, then the final one. */
  streamObject(body: ObjectBody, call: RunCall): EventProducer;
  /** The last runs that a principal may see, newest first. `page` counts from 0. */
  history(page: number, limit: number, principal: Principal): Promise<HistoryPage | Serialized>;
}
