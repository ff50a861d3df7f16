/** Takes a person's answer. The first answer is the decision; the same answer again is accepted, a different one is an error. */
import type { AnswerApprovalRequest } from "../../generated/types.ts";
import { mayAccess } from "../identity/ownership.ts";
import type { Principal } from "../identity/principal.ts";
import { canonicalJson } from "../lib/canonical-json.ts";
import { type Clock, storedTime } from "../lib/clock.ts";
import { invalid, notFound, quoted, ServiceError } from "../lib/errors.ts";
import { changeInTurn } from "../storage/conflict.ts";
import type { Tool } from "../tools/tool.ts";
import { type ApprovalRecord, approvedInput, MAX_INPUT_CHARACTERS, type WithdrawalReason } from "./record.ts";
import type { ApprovalRows } from "./rows.ts";

/** The person who answers. */
interface Approver {
  readonly principal: Principal;
  /** The name in the record: a user's id, or the kind of caller. */
  readonly name: string;
  /** Whether it may answer as the console. */
  readonly isConsole: boolean;
}

export interface AnswerOptions {
  readonly tools: { get(name: string): Tool | undefined };
  readonly clock?: Clock;
  /** Why nobody needs the answer any more; null while somebody does. */
  lost?(record: ApprovalRecord, approved: boolean): Promise<WithdrawalReason | null>;
}

/** @throws ServiceError `not_found`, `forbidden`, `invalid_input` for an invalid input, `conflict` when it is decided differently */
export async function answer(
  rows: ApprovalRows,
  id: string,
  body: AnswerApprovalRequest,
  approver: Approver,
  { tools, clock = storedTime, lost }: AnswerOptions,
): Promise<ApprovalRecord> {
  return changeInTurn("the approval", async () => {
    const found = await rows.read(id);
    if (found === undefined || !mayAccess(approver.principal, found.record.owner, undefined)) throw unknown(id);
    const { record } = found;
    if (record.consoleOnly && !approver.isConsole)
      throw new ServiceError("forbidden", `tool ${JSON.stringify(record.toolName)} is approved by the console alone`);
    if (record.status !== "open") {
      if (saysTheSame(record, body)) return record;
      const why = record.status === "withdrawn" ? `: ${record.reason}` : "";
      throw new ServiceError("conflict", `the approval is already ${record.status}${why}`);
    }
    if (record.expiresAt <= clock()) {
      await rows.expire(found);
      return undefined;
    }
    const reason = await lost?.(record, body.approved);
    if (reason != null) {
      await rows.decide(found, { status: "withdrawn", decidedAt: clock(), reason });
      return undefined;
    }
    return rows.decide(found, {
      status: body.approved ? "approved" : "denied",
      decidedAt: clock(),
      decidedBy: approver.name,
      reason: body.reason,
      edited: editedInput(record, body, tools),
    });
  });
}

const saysTheSame = (record: ApprovalRecord, { approved, input }: AnswerApprovalRequest): boolean =>
  record.status === (approved ? "approved" : "denied") &&
  (input === undefined || canonicalJson(input) === canonicalJson(approvedInput(record)));

function editedInput(
  { toolName, input }: ApprovalRecord,
  body: AnswerApprovalRequest,
  tools: AnswerOptions["tools"],
): readonly [unknown] | undefined {
  if (body.input === undefined) return undefined;
  if (!body.approved) throw invalid("input belongs to an answer with approved: true");
  const tool = tools.get(toolName);
  if (tool === undefined)
    throw invalid(`input cannot be checked: there is no tool ${JSON.stringify(toolName)} any more`);
  const problem = tool.validate(body.input);
  if (problem !== null) throw invalid(problem);
  if (JSON.stringify(body.input).length > MAX_INPUT_CHARACTERS) throw invalid("input must be at most 64 KiB");
  return canonicalJson(body.input) === canonicalJson(input) ? undefined : [body.input];
}

const unknown = (id: string) => notFound(`approval ${quoted(id)} does not exist`);
