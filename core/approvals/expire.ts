/** No answer in time is a no. */
import { unlessConflict } from "../storage/conflict.ts";
import { decided } from "./record.ts";
import type { ApprovalRows, FoundApproval } from "./rows.ts";

/** Notes that an open approval has expired, unless somebody has just changed it. */
export const expire = (rows: ApprovalRows, found: FoundApproval): Promise<boolean> =>
  unlessConflict(rows.decide(found, decided(found.record, "expired", { at: found.record.expiresAt })));
