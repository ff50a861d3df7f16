/** A question without an answer in time counts as refused. */
import { unlessConflict } from "../storage/conflict.ts";
import { decided } from "./record.ts";
import type { ApprovalRows, FoundApproval } from "./rows.ts";

/** Marks an open approval as expired, unless it has just been changed. */
export const expire = (rows: ApprovalRows, found: FoundApproval): Promise<boolean> =>
  unlessConflict(rows.decide(found, decided(found.record, "expired", { at: found.record.expiresAt })));
