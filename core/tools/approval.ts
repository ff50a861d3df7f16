/** The interface for approvals: which tool calls a person must approve, and the inbox that keeps the questions. */

import type { Requester } from "../identity/principal.ts";
import { messageOf, ServiceError } from "../lib/errors.ts";
import { compileTemplate, SCOPES } from "../manifest/expression.ts";
import type { Tool, ToolOrigin } from "./tool.ts";

/**
 * The origin of a call, which decides how its question is found again:
 * - `direct`: the API. The question belongs to the same call of the same user; the call brings its id once it is answered.
 * - `step`: a workflow step, or a kept run. The question belongs to the step or to the tool call, which runs again with the answer.
 * - `chat`: a run whose client can answer. The question belongs to one tool call; the run continues with its id.
 * - `model`: a run whose client cannot answer, such as that of a sub-agent. The question belongs to the same call in the same place.
 * - `none`: nothing would receive the answer, so nobody is asked.
 */
export type CallKind = "direct" | "step" | "chat" | "model" | "none";

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
  /** The kept run of an agent that waits for the answer. */
  readonly runId?: string | undefined;
  /**
   * When the execution or run of the call started, in milliseconds since 1970: an earlier one with the same id may have used an
   * approval before that.
   */
  readonly since?: number | undefined;
  /**
   * Set when the call belongs to a run that records what it does. After a crash the run repeats the call, with the same idempotency
   * key, and needs no second answer.
   */
  readonly isRecorded?: true | undefined;
  /** Set when nobody would make the call again: it waits while the store is away. Called with every failure. */
  readonly away?: ((error: ServiceError) => void) | undefined;
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

/** The call waits for a person's answer. */
export class ApprovalNeeded extends ServiceError {
  readonly approvalId: string;
  readonly toolName: string;
  readonly input: unknown;

  constructor(approvalId: string, tool: string, input: unknown, message = "it has been asked for") {
    super("conflict", `tool ${JSON.stringify(tool)} needs a person's approval: ${message}`, {
      headers: { "x-approval-id": approvalId },
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

/**
 * Whether the call may have a question already, which alone decides then. A model that nobody continues makes the same call again, so
 * for it that is every call of a tool with a rule.
 */
export const mayHaveAsked = ({ inbox, approval }: Tool, claim: ApprovalClaim | undefined): boolean =>
  claim !== undefined &&
  inbox !== undefined &&
  (claim.id !== undefined || claim.isRepeated === true || (claim.kind === "model" && approval !== false));

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
