/**
 * Approvals in the store:
 *
 *   ap/APPROVAL                     -> a question that a person is asked before a tool runs (record.ts)
 *   aq/DIGEST                       -> id of the approval that was last asked for of a call
 *   as/STATUS/#createdAt/APPROVAL   approvals by status
 *   aa/AGENT/STATUS/...             the same of one agent
 *   au/USER/..., av/USER/AGENT/...  the same of one user, and of one user and agent
 *   ax/#time/APPROVAL               when an approval expires, or may be forgotten once it is decided
 *   aw/PLACE/APPROVAL               an open question by what it is part of
 *   ar/APPROVAL                     an answer that the step or run which waits for it has not taken yet
 */
import { Collection, type Due, type Found } from "../storage/collection.ts";
import { encodeShortText } from "../storage/keys.ts";
import { type Commit, type Store, unlessConflict } from "../storage/store.ts";
import { type ApprovalRecord, type Decision, isAwaited } from "./record.ts";

export type FoundApproval = Found<ApprovalRecord>;

export const APPROVAL_ANSWERS = "ar/";
const callKey = (digest: string): string => `aq/${digest}`;

export class ApprovalRows extends Collection<ApprovalRecord> {
  /** @param retention milliseconds for which a decided approval is kept */
  constructor(store: Store, retention: () => number) {
    super(store, {
      prefix: "ap/",
      times: "ax/",
      timeOf: ({ status, expiresAt, decidedAt }) => (status === "open" ? expiresAt : decidedAt! + retention()),
      // All of them contain every approval, so that isolation may be switched on later.
      lists: [
        ["as/", "status"],
        ["aa/", "agentId", "status"],
        ["au/", "owner", "status"],
        ["av/", "owner", "agentId", "status"],
      ],
      orderOf: ({ createdAt }) => createdAt,
      placesOf: (record) =>
        record.status === "open" ? openPlaces(record) : isUntaken(record) ? [APPROVAL_ANSWERS] : [],
    });
  }

  /** The last question about a call, and the revision of the row that names it; null when there is none. */
  async lastOf(key: string): Promise<{ found: FoundApproval | undefined; revision: number | null }> {
    const row = await this.store.get(callKey(key));
    if (row === undefined) return { found: undefined, revision: null };
    return { found: await this.read(JSON.parse(row.value)), revision: row.revision };
  }

  /** @param revision from `lastOf`: of two processes that ask about the same call, only one creates a question */
  async create(record: ApprovalRecord, revision: number | null): Promise<void> {
    const { id, key } = record;
    const call = callKey(key);
    await this.write(id, undefined, record, { put: [[call, JSON.stringify(id)]], expect: [[call, revision]] });
  }

  /** Stores a decision. If a step or a run waits for it, a further row keeps it until it has been delivered. */
  async decide(found: FoundApproval, decision: Decision): Promise<ApprovalRecord> {
    const after = { ...found.record, ...decision };
    await this.write(found.id, found, after);
    if (isAwaited(after)) this.store.wake?.(APPROVAL_ANSWERS);
    return after;
  }

  /** Marks an open approval as expired, unless it has just been changed. No answer in time counts as refused. */
  expire(found: FoundApproval): Promise<boolean> {
    return unlessConflict(this.decide(found, { status: "expired", decidedAt: found.record.expiresAt }));
  }

  /** Marks the answer as used: for an approved call, this is its start. @param usedBy the key of the call */
  async use(found: FoundApproval, usedAt: number, usedBy?: string): Promise<void> {
    await this.write(found.id, found, { ...found.record, usedAt, usedBy });
  }

  /** @throws CommitConflict when it has been decided since its time was read, because its time differs then */
  async remove(found: Due<ApprovalRecord>): Promise<void> {
    const { id, record, revision, time } = found;
    const call = await this.store.get(callKey(record.key));
    // A later question about the same call may exist.
    const rows = call !== undefined && JSON.parse(call.value) === id ? [time, call] : [time];
    const expect = [{ key: this.key(id), revision }, ...rows].map((row) => [row.key, row.revision] as const);
    await this.write(id, found, undefined, { delete: rows.map(({ key }) => key), expect } satisfies Commit);
  }

  /** How many open questions count for a user, at most `most`. */
  async countOpen(user: string, most: number): Promise<number> {
    return (await this.store.scan({ prefix: approvalPlace("user", user), limit: most, longest: 0 })).length;
  }

  /** Removes an answer from those to be delivered. */
  async forgetAnswer(id: string): Promise<void> {
    await this.store.commit({ delete: [APPROVAL_ANSWERS + id] });
  }
}

/** Whether something waits for the answer, and has not taken it. */
const isUntaken = (record: ApprovalRecord): boolean => isAwaited(record) && record.usedAt === undefined;

type Place = "execution" | "task" | "conversation" | "user";

/** Prefix of the open questions of all executions. */
export const OF_EXECUTIONS = "aw/execution/";

/** Prefix of the open questions of an execution (of a user), a task, a conversation, or those that count for a user. */
export const approvalPlace = (kind: Place, ...names: string[]): string =>
  `aw/${kind}/${names.map(encodeShortText).join("/")}/`;

/** Those of workflows are bounded by their executions. */
export const countsForUser = ({ kind, runId }: Pick<ApprovalRecord, "kind" | "runId">): boolean =>
  kind !== "step" || runId !== undefined;

function openPlaces({ kind, owner, executionId, taskId, conversationId, runId }: ApprovalRecord): string[] {
  const places: string[] = [];
  if (kind === "step" && executionId !== undefined) places.push(approvalPlace("execution", owner, executionId));
  // Older releases asked for tasks that were no runs.
  if (taskId !== undefined && runId === undefined) places.push(approvalPlace("task", taskId));
  if (conversationId !== undefined) places.push(approvalPlace("conversation", conversationId));
  if (countsForUser({ kind, runId })) places.push(approvalPlace("user", owner));
  return places;
}
