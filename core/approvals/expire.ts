/** How a question ends that nobody has answered. */
import { unlessConflict } from "../storage/conflict.ts";
import { decided, type WithdrawalReason } from "./record.ts";
import type { ApprovalRows, FoundApproval } from "./rows.ts";

/** Marks an open approval as expired, unless it has just been changed. No answer in time counts as refused. */
export const expire = (rows: ApprovalRows, found: FoundApproval): Promise<boolean> =>
  unlessConflict(rows.decide(found, decided(found.record, "expired", { at: found.record.expiresAt })));

/** Marks an open approval as one that nobody can answer any more, unless it has just been changed. */
export const withdraw = (
  rows: ApprovalRows,
  found: FoundApproval,
  reason: WithdrawalReason,
  at: number,
): Promise<boolean> => unlessConflict(rows.decide(found, decided(found.record, "withdrawn", { at, reason })));
