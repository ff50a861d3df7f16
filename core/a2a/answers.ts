/** Reads the message with which the client of a task answers the approvals that its agent needs. */

import type { AnswerApprovalRequest } from "../../generated/types.ts";
import { validators } from "../../generated/validators.js";
import type { PendingApproval } from "../agents/run/parts.ts";
import { requireValid } from "../http/decode.ts";
import { invalid } from "../lib/errors.ts";
import { isObject } from "../lib/is-object.ts";
import type { Part } from "./task.ts";

interface TaskAnswer {
  readonly approvalId: string;
  readonly body: AnswerApprovalRequest;
}

const FORM = 'a data part {approvalId, approved, reason?, input?}, or the text "yes" or "no"';

/**
 * @param asked the approvals that the task waits for
 * @throws ServiceError `invalid_input` for a message that is not an answer to them
 */
export function readAnswers(parts: readonly Part[], asked: readonly PendingApproval[]): TaskAnswer[] {
  const data = parts.flatMap((part, index) => ("data" in part ? [dataAnswer(part.data, index, asked)] : []));
  if (data.length > 0) return data;
  const said = yesOrNo(parts.map(({ text }) => text ?? "").join("\n"));
  if (said === null || parts.some(({ text }) => text === undefined))
    throw invalid(`params.message.parts must be the answer to what the task asks: ${FORM}`);
  return [{ approvalId: theOnly(asked, "params.message.parts"), body: { approved: said === "yes" } }];
}

/** Reads yes or no, ignoring a punctuation mark at the end; null for anything else. */
function yesOrNo(text: string): "yes" | "no" | null {
  const word = text.trim().toLowerCase();
  const said = (word.endsWith(".") || word.endsWith("!") ? word.slice(0, -1) : word).trimEnd();
  return said === "yes" || said === "no" ? said : null;
}

function dataAnswer(data: unknown, index: number, asked: readonly PendingApproval[]): TaskAnswer {
  const path = `params.message.parts[${index}].data`;
  if (!isObject(data)) throw invalid(`${path} must be an object: {approvalId, approved, reason?, input?}`);
  const { approvalId = theOnly(asked, path), ...body } = data as Record<string, unknown>;
  if (!asked.some((each) => each.approvalId === approvalId))
    throw invalid(
      `${path}.approvalId must be one that the task asks: ${asked.map((each) => each.approvalId).join(", ")}`,
    );
  requireValid(validators.AnswerApprovalRequest, body, path);
  return { approvalId: approvalId as string, body: body as unknown as AnswerApprovalRequest };
}

function theOnly(asked: readonly PendingApproval[], path: string): string {
  if (asked.length === 1) return asked[0]!.approvalId;
  throw invalid(
    `${path}: the task asks for ${asked.length} approvals: answer each with a data part that has its approvalId`,
  );
}
