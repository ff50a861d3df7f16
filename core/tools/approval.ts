/** A person's yes before a tool runs: which calls need one, and what the inbox is asked that keeps the questions. */

import type { Requester } from "../identity/principal.ts";
import { ServiceError } from "../lib/errors.ts";
import { compileTemplate, SCOPES } from "../manifest/expression.ts";
import type { Tool, ToolOrigin } from "./tool.ts";

/**
 * Where a call comes from, which decides how its question is found again:
 * - `direct`: the API. The question is that of the same call of the same user; the call brings its id once it is answered.
 * - `step`: a step of a workflow, or a kept run. The question is that of the step or of the tool call, which runs again with the answer.
 * - `chat`: a run whose client can answer. The question is that of one tool call; the run goes on with its id.
 * - `model`: a run that nobody can answer, as that of a sub-agent. The question is that of the same call in the same place.
 * - `none`: nobody would take the answer, so that nobody is asked.
 */
export type CallKind = "direct" | "step" | "chat" | "model" | "none";

/** What a call says of itself, where it may need approval. */
export interface ApprovalClaim {
  readonly kind: CallKind;
  /** The approval that the call brings. */
  readonly id?: string | undefined;
  /** The user on whose behalf it is made; left out: the user of the token. */
  readonly userId?: string | undefined;
  readonly agentId?: string | undefined;
  readonly toolCallId?: string | undefined;
  /** The task of A2A that waits for the answer. */
  readonly taskId?: string | undefined;
  readonly workflowId?: string | undefined;
  readonly executionId?: string | undefined;
  /** The step of a workflow, as its path. */
  readonly stepId?: string | undefined;
  /** The kept run of an agent that waits for the answer. */
  readonly runId?: string | undefined;
  /**
   * When the execution or the run of the call began, in milliseconds since 1970: an earlier one of the same id may have used an
   * approval before that.
   */
  readonly since?: number | undefined;
  /**
   * The call belongs to a run that records what it does. After a crash the run makes it again, with its idempotency key, and needs no
   * second answer.
   */
  readonly isRecorded?: true | undefined;
}

export interface AskedCall {
  readonly tool: Tool;
  readonly input: unknown;
  readonly origin: ToolOrigin;
  readonly rule: ApprovalRule;
}

export interface ApprovalInbox {
  /**
   * Resolves to the input that a person has approved for this call, once for each approval: the call must run then. A call that nobody
   * has been asked about yet becomes a question.
   *
   * @throws ApprovalNeeded while there is no answer; ServiceError `conflict` when the answer is no, when it is too late, or when the
   * approval belongs to another call
   */
  admit(call: AskedCall): Promise<unknown>;
  /**
   * What the client of a run says that its user has answered. An answer that does not count, because somebody has answered before or the
   * user may not, is left out: `admit` goes by what was decided.
   */
  hear(id: string, answer: { readonly approved: boolean; readonly reason?: string }, from: Requester): Promise<void>;
}

export interface ApprovalRule {
  /** Milliseconds after which no answer is a no. */
  readonly expires: number;
  /** Whether the console alone may answer. */
  readonly consoleOnly: boolean;
  readonly inbox: ApprovalInbox;
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

/** A person has said no, or nobody has answered in time. */
export class ApprovalRefused extends ServiceError {
  readonly reason: string | undefined;

  constructor(message: string, reason?: string) {
    super("conflict", message);
    this.reason = reason;
  }
}

interface ApprovalSettings {
  readonly approval: boolean | string;
  readonly expires: number;
  readonly approvers: "owner" | "console";
  readonly inbox: ApprovalInbox;
}

/** @returns false where no call needs approval; a text where the expression does not compile */
export function compileApproval(settings: ApprovalSettings): ApprovalRule | false | string {
  const { approval, expires, approvers, inbox } = settings;
  if (approval === false) return false;
  const rest = { expires, consoleOnly: approvers === "console", inbox };
  if (approval === true) return { ...rest, asks: () => true };
  const compiled = compileTemplate(approval, SCOPES.httpTool);
  if ("problem" in compiled) return compiled.problem;
  const asks: ApprovalRule["asks"] = (input, { context, call }) => {
    try {
      return compiled.evaluate({ input, context, user: call.user }) !== false;
    } catch {
      // What cannot be decided is a person's to decide.
      return true;
    }
  };
  return { ...rest, asks };
}
