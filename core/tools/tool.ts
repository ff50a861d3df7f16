/** A tool as agents, workflows and `POST /tools/:name/execute` use it: a plugin, an HTTP request or a tool of an MCP server. */
import type { Logger } from "pino";
import type { Requester, User } from "../identity/principal.ts";
import { messageOf, ServiceError } from "../lib/errors.ts";
import type { JsonSchema } from "../lib/json-schema.ts";
import type { OnToolProgress } from "../lib/tool-progress.ts";
import { compileTemplate, SCOPES } from "../manifest/expression.ts";
import type { ToolMeter } from "../observability/metrics/meters.ts";
import type { Span, SpanOrigin } from "../observability/span.ts";

/**
 * The origin of a call, which decides how its question is found again:
 * - `direct`: the API. The question belongs to the same call of the same user; the call brings its id once it is answered.
 * - `step`: a workflow step, or a kept run. The question belongs to the step or to the tool call, which runs again with the answer.
 * - `chat`: a run whose client can answer. The question belongs to one tool call; the run continues with its id.
 * - `none`: nothing would receive the answer, so nobody is asked.
 */
export type CallKind = "direct" | "step" | "chat" | "none";

/** What identifies a call that may need approval. */
export interface ApprovalClaim {
  readonly kind: CallKind;
  /** Id of the approval that the call brings. */
  readonly id?: string | undefined;
  /** What its client says that its user has answered. */
  readonly answer?: ReportedAnswer | undefined;
  /** Whether the call may have been made before, so that its question is looked for before the rule is evaluated. */
  readonly isRepeated?: boolean | undefined;
  /** The user on whose behalf it is made; default: the user of the token. */
  readonly userId?: string | undefined;
  readonly agentId?: string | undefined;
  readonly toolCallId?: string | undefined;
  /** The A2A task that waits for the answer. */
  readonly taskId?: string | undefined;
  readonly workflowId?: string | undefined;
  readonly executionId?: string | undefined;
  /** Path of the workflow step. */
  readonly stepId?: string | undefined;
  /** The agent that the step runs, in whose memory the conversation lies: that of the call may be a sub-agent. */
  readonly stepAgentId?: string | undefined;
  /** The kept run of an agent that waits for the answer. */
  readonly runId?: string | undefined;
  /**
   * When the execution or run of the call started, in milliseconds since 1970: an earlier one with the same id may have used an
   * approval before that.
   */
  readonly since?: number | undefined;
  /**
   * Of the run of the call, when it records what it does. After a crash the run repeats the call, with the same idempotency key, and needs
   * no second answer. It is told that the call waits, since the store is away.
   */
  readonly record?: { readonly isKept: boolean; away(failure: Error): void };
  /** Called before a question is stored: from then on the run of the call goes on after its process. */
  keep?(): Promise<void>;
}

interface ReportedAnswer {
  readonly approved: boolean;
  readonly reason?: string;
  readonly from: Requester;
}

export interface AskedCall {
  readonly tool: Tool;
  readonly input: unknown;
  readonly origin: ToolOrigin;
}

export interface ApprovalInbox {
  /**
   * Resolves to the input with which the call must run: what a person has approved, once per approval. Whether a call that has no
   * question runs or is asked about is up to the rule of its tool.
   *
   * An answer that the client reports counts only if it fits what was asked, nobody has answered before, and the user is permitted to.
   *
   * @throws ApprovalNeeded while there is no answer; ServiceError `invalid_input` for an input that does not fit, and `conflict` when the
   * call was refused, when the approval has expired, or when it belongs to another call
   */
  admit(call: AskedCall): Promise<unknown>;
  /** Withdraws questions of a run that has ended. Never rejects. */
  withdraw(ids: readonly string[], reason: "cancelled" | "ended"): Promise<void>;
  /** Withdraws those of an agent's user, who may answer them and has said something else instead. Never rejects. */
  supersede(ids: readonly string[], agentId: string, userId: string): Promise<void>;
  /** Why calls of that user will not run, by the ids of their questions. Never rejects. */
  endings(ids: readonly string[], userId: string): Promise<ReadonlyMap<string, string>>;
}

export interface ApprovalRule {
  /** Milliseconds after which a missing answer counts as a refusal. */
  readonly expires: number;
  /** Whether only the console may answer. */
  readonly consoleOnly: boolean;
  /** Whether a person must approve this call. */
  asks(input: unknown, origin: ToolOrigin): boolean;
}

/** What a tool gets beside its input. `signal` also aborts at the tool's time limit. */
export interface ToolCallContext {
  readonly signal: AbortSignal;
  readonly logger: Logger;
  readonly user: User | null;
  readonly context: Record<string, unknown>;
  readonly conversationId?: string;
  readonly executionId?: string;
  readonly idempotencyKey?: string;
  readonly requestId: string;
  /** Reports progress: `call.progress?.({ progress: 3, total: 10, message: "..." })`. Undefined when nobody follows it. */
  readonly progress?: OnToolProgress | undefined;
}

/** What `Tool.run` gets: the call, and the tool's own `with` from the manifest. */
export interface ConfiguredCall extends ToolCallContext {
  /** The validated `with` of the manifest, including the defaults of the plugin's schema. */
  readonly config: unknown;
  /** The span of this call, for the headers of its requests; null when the call is not traced. */
  readonly span: Span | null;
}

export interface Tool {
  /** The key in the manifest: the name that the API and the models see. */
  readonly name: string;
  readonly description: string;
  readonly tags: readonly string[];
  /** JSON Schema of the input. */
  readonly parameters: JsonSchema;
  /** Set for a tool that the client of an agent runs: the service only passes the call on. */
  readonly client?: true;
  /** Decides which of its calls a person must approve; false when none. */
  readonly approval: ApprovalRule | false;
  /** Where people are asked; undefined for tools of clients and of MCP servers, about which nobody ever is. */
  readonly inbox?: ApprovalInbox | undefined;
  /** Whether the tool has no side effects, and may run again after a crash. */
  readonly readOnly?: boolean | undefined;
  /** Most bytes of a result that a model is shown; default: the limit of the agent. */
  readonly outputLimit?: number | undefined;
  /** Time limit in milliseconds. */
  readonly timeout: number;
  /** `with` of the manifest; passed to `run` as `call.config`. */
  readonly config: unknown;
  /** Whether its description, parameters and status may change while the service runs: do not keep copies of them. */
  readonly changes?: boolean;
  /** What MCP clients are told of it beside: the words of its own server. */
  readonly shown?: object | undefined;
  /** False while its server is unreachable. */
  readonly available?: boolean;
  /** Counts its calls. */
  readonly meter?: ToolMeter;
  /** Returns every problem of an input joined by `; ` (`input.city must be string`), or null when it is valid. */
  validate(input: unknown): string | null;
  /** Runs the tool without checks. Use `executeTool`, which checks approval, input, time limit and signal. */
  run(input: unknown, call: ConfiguredCall): unknown;
}

/**
 * The request or run that calls a tool. `call` is the request's own context and is never copied: its `signal` and
 * `logger` are created on first use, and most tools use neither.
 */
export interface ToolOrigin {
  readonly call: {
    readonly signal: AbortSignal;
    readonly logger: Logger;
    readonly user: User | null;
    readonly requestId: string;
    readonly trace?: SpanOrigin | undefined;
    confirm?(): Promise<void> | undefined;
  };
  /** `context` of the request; an empty object when there is none. */
  readonly context: Record<string, unknown>;
  readonly conversationId?: string | undefined;
  readonly executionId?: string;
  readonly idempotencyKey?: string;
  /** Identifies the call if it needs approval; default: a call of the API. */
  readonly approval?: ApprovalClaim;
  /**
   * Set when the caller accepts a result after `call.signal` has aborted, because the side effects have happened. The caller itself limits
   * how long it waits for that.
   */
  readonly waitsForLate?: true;
  /** Called with the progress that the tool reports, at most once a second. */
  readonly progress?: OnToolProgress | undefined;
  /** The span of this call, if the caller starts and ends it; null when the call is not traced. Default: a span is created here. */
  readonly span?: Span | null;
}

/** Thrown by a tool whose server cannot be reached: the client gets `unavailable` instead of `tool_failed`. */
export class ToolUnavailable extends Error {
  override readonly name = "ToolUnavailable";
}

// The interface for approvals: which tool calls a person must approve, and the inbox that keeps the questions.

/** The call waits for a person's answer. */
export class ApprovalNeeded extends ServiceError {
  readonly approvalId: string;
  readonly toolName: string;
  readonly input: unknown;

  constructor(approvalId: string, tool: string, input: unknown, message = "it has been asked for") {
    super("conflict", `tool ${JSON.stringify(tool)} needs a person's approval: ${message}`, {
      facts: { approvalId },
    });
    this.approvalId = approvalId;
    this.toolName = tool;
    this.input = input;
  }
}

/** A person has refused the call, or nobody has answered in time. */
export class ApprovalRefused extends ServiceError {
  readonly reason: string | undefined;

  constructor(message: string, reason?: string) {
    super("conflict", message);
    this.reason = reason;
  }
}

/** For a model that is told of a call whose client has claimed an answer. */
export const notApproved = (tool: string): ApprovalRefused =>
  new ApprovalRefused(`tool ${JSON.stringify(tool)} is not approved`, "not approved");

/** Whether the call may have a question already, which alone decides then. */
export const mayHaveAsked = ({ inbox }: Tool, claim: ApprovalClaim | undefined): boolean =>
  claim !== undefined && inbox !== undefined && (claim.id !== undefined || claim.isRepeated === true);

interface ApprovalSettings {
  readonly approval: boolean | string;
  readonly expires: number;
  readonly approvers: "owner" | "console";
}

/** @returns false when no call needs approval; a text when the expression does not compile */
export function compileApproval(tool: string, settings: ApprovalSettings): ApprovalRule | false | string {
  const { approval, expires, approvers } = settings;
  if (approval === false) return false;
  const rest = { expires, consoleOnly: approvers === "console" };
  if (approval === true) return { ...rest, asks: () => true };
  const compiled = compileTemplate(approval, SCOPES.httpTool);
  if ("problem" in compiled) return compiled.problem;
  const asks: ApprovalRule["asks"] = (input, { context, call }) => {
    try {
      return compiled.evaluate({ input, context, user: call.user }) !== false;
    } catch (error) {
      const failed = `approval of tool ${JSON.stringify(tool)} cannot be evaluated, so a person is asked`;
      call.logger.warn({ err: error }, `${failed}: ${messageOf(error)}`);
      return true;
    }
  };
  return { ...rest, asks };
}
