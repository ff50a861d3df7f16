/** The interface for approvals: which tool calls a person must approve, and the inbox that keeps the questions. */

import { messageOf, ServiceError } from "../lib/errors.ts";
import { compileTemplate, SCOPES } from "../manifest/expression.ts";
import type { ApprovalClaim, ApprovalRule, Tool } from "./tool.ts";

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
