/** What a custom route may do with the service: act as its caller, and see no more than that caller may see. */
import type { Logger } from "pino";
import type {
  AgentDetail,
  AgentSummary,
  CloneConversationRequest,
  ClonedConversation,
  Conversation,
  ConversationList,
  ConversationQuery,
  ConversationsQuery,
  CreateConversationRequest,
  DeleteMessagesRequest,
  ExecuteWorkflowRequest,
  ExecutionCancellation,
  ExecutionResult,
  ExecutionState,
  ExecutionSuspended,
  ExecutionsQuery,
  GenerateRequest,
  HistoryPage,
  HistoryQuery,
  MessageList,
  MessagesQuery,
  ObjectRequest,
  OwnerQuery,
  ReplayExecutionRequest,
  ResumeExecutionRequest,
  SaveMessagesRequest,
  SearchQuery,
  SearchResults,
  TextResult,
  Tool,
  UpdateConversationRequest,
  UpdateWorkingMemoryRequest,
  WorkflowDetail,
  WorkflowExecution,
  WorkflowSummary,
  WorkingMemory,
  WorkingMemoryQuery,
} from "../../../generated/types.ts";
import type { User } from "../../identity/principal.ts";

/**
 * What `handle` gets beside the request. Destructure it, or pass it on unchanged: its members are created when they are read.
 *
 * Every method of `agents`, `tools`, `workflows` and a memory takes what the endpoint of the API takes, validates it in the same way,
 * and resolves to what the endpoint replies, as the route's own copy. What the API refuses rejects with the same
 * ServiceError; a route that does not catch it replies with the same status.
 */
export interface RouteCall {
  /** Aborts when the client leaves, and at the time limit of requests. */
  readonly signal: AbortSignal;
  readonly logger: Logger;
  readonly requestId: string;
  /** Where the request comes from; behind a proxy of `server.trustedProxies`, what the proxy reports. */
  readonly client: RouteClient;
  readonly agents: RouteAgents;
  readonly tools: RouteTools;
  readonly workflows: RouteWorkflows;
  /** The memory of that name in the manifest; without a name the one for requests without `agentId`. */
  readonly memory: (name?: string) => RouteMemory;
}

export interface RouteClient {
  /** IPv4 or IPv6 as text. Empty when it is first read after the client has left. */
  readonly address: string;
  readonly scheme: "http" | "https";
  /** The host that the client asked for, with its port if it named one. */
  readonly host: string;
}

/** A run ends when the signal of the route aborts: when its client leaves, and at the time limit of requests. */
export interface RouteAgents {
  list(): Promise<AgentSummary[]>;
  get(id: string): Promise<AgentDetail>;
  generateText(id: string, request: GenerateRequest): Promise<TextResult>;
  /** Resolves to an object that is valid against `request.schema`. */
  generateObject(id: string, request: ObjectRequest): Promise<unknown>;
  /** The caller's own runs. */
  history(id: string, query?: HistoryQuery): Promise<HistoryPage>;
}

export interface RouteTools {
  list(): Promise<Tool[]>;
  /** Resolves to the result of the tool. The tool's signal aborts with that of the route. */
  execute(name: string, input: object, options?: { context?: Record<string, unknown> }): Promise<unknown>;
}

/** Executions outlive the route that started them: they continue when the client leaves. Those of other users are `not_found`. */
export interface RouteWorkflows {
  list(): Promise<WorkflowSummary[]>;
  get(id: string): Promise<WorkflowDetail>;
  executions(query?: ExecutionsQuery): Promise<WorkflowExecution[]>;
  /** Resolves when the execution has settled: it has ended or is suspended. */
  execute(id: string, request: ExecuteWorkflowRequest): Promise<ExecutionResult>;
  suspend(id: string, executionId: string, reason?: string, query?: OwnerQuery): Promise<ExecutionSuspended>;
  resume(
    id: string,
    executionId: string,
    request?: ResumeExecutionRequest,
    query?: OwnerQuery,
  ): Promise<ExecutionResult>;
  replay(
    id: string,
    executionId: string,
    request: ReplayExecutionRequest,
    query?: OwnerQuery,
  ): Promise<ExecutionResult>;
  cancel(id: string, executionId: string, reason?: string, query?: OwnerQuery): Promise<ExecutionCancellation>;
  state(id: string, executionId: string, query?: OwnerQuery): Promise<ExecutionState>;
}

/** A request of the API without `agentId`, because the memory is chosen already. */
type Unaddressed<T> = Omit<T, "agentId">;

/** Conversations of other users are `not_found`. */
export interface RouteMemory {
  conversations(query?: Unaddressed<ConversationsQuery>): Promise<ConversationList>;
  create(request?: Unaddressed<CreateConversationRequest>): Promise<Conversation>;
  get(conversationId: string, query?: Unaddressed<ConversationQuery>): Promise<Conversation>;
  update(
    conversationId: string,
    request: Unaddressed<UpdateConversationRequest>,
    query?: Unaddressed<ConversationQuery>,
  ): Promise<Conversation>;
  /** Deletes the conversation with its messages and working memory. */
  delete(conversationId: string, query?: Unaddressed<ConversationQuery>): Promise<void>;
  clone(
    conversationId: string,
    request?: Unaddressed<CloneConversationRequest>,
    query?: Unaddressed<ConversationQuery>,
  ): Promise<ClonedConversation>;
  /** The newest messages, in chronological order. */
  messages(conversationId: string, query?: Unaddressed<MessagesQuery>): Promise<MessageList>;
  /** Saves all messages or none; resolves to their number. */
  save(request: Unaddressed<SaveMessagesRequest>): Promise<number>;
  /** Resolves to the number of messages that were deleted. */
  deleteMessages(request: Unaddressed<DeleteMessagesRequest>): Promise<number>;
  search(text: string, query?: Omit<SearchQuery, "agentId" | "searchQuery">): Promise<SearchResults>;
  workingMemory(conversationId: string, query?: Unaddressed<WorkingMemoryQuery>): Promise<WorkingMemory>;
  updateWorkingMemory(conversationId: string, request: Unaddressed<UpdateWorkingMemoryRequest>): Promise<void>;
}

// What a plugin of kind `socket` sees of its peers.

/** One open WebSocket. Once it is closed, methods do nothing. */
export interface PluginSocketPeer {
  /** The user of the handshake's token; null when no token was required. */
  readonly user: User | null;
  /** Path parameters, percent-decoded. */
  readonly params: Readonly<Record<string, string>>;
  /** The query without `key`, `token` and `dev`; of a repeated name the last value. */
  readonly query: Readonly<Record<string, string>>;
  readonly logger: Logger;
  /** Aborts when the socket is closed. */
  readonly signal: AbortSignal;
  /** Agents, tools, workflows and memories, on behalf of this peer: as in a route. */
  readonly call: RouteCall;
  readonly closed: boolean;
  /**
   * Sends a value as JSON. False: the peer is more than 256 KiB behind, and the message was dropped. Once it has caught up, it gets
   * the number of dropped messages: `{"type":"DROPPED","count":n}`.
   */
  send(data: unknown): boolean;
  /** @param code default 1000; codes of your own are 3000 to 4999 */
  close(code?: number, reason?: string): void;
}
