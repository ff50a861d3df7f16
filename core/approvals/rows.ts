/** Approvals in the store. Every change expects the row as it was read: of two simultaneous changes, one is a `CommitConflict`. */

import { unlessConflict } from "../storage/conflict.ts";
import { encodeShortText } from "../storage/encoding.ts";
import {
  APPROVAL_ANSWERS,
  APPROVAL_TIMES,
  approvalAnswerKey,
  approvalCallKey,
  approvalEntry,
  approvalIndex,
  approvalKey,
  approvalTimeKey,
  approvalTimesBefore,
  indexedApproval,
} from "../storage/keys.ts";
import { allRows, rowsAt } from "../storage/ranges.ts";
import type { Row, Store } from "../storage/store.ts";
import { type ApprovalRecord, type ApprovalStatus, type Decision, isAwaited } from "./record.ts";

export interface FoundApproval {
  readonly record: ApprovalRecord;
  readonly revision: number;
}

/** With the row of its time, whose key cannot be computed because the retention may have changed. */
interface DueApproval extends FoundApproval {
  readonly time: Row;
}

/** Selects approvals. An empty owner selects calls without a user. */
interface ApprovalFilter {
  readonly status: ApprovalStatus;
  readonly agentId?: string | undefined;
  readonly owner?: string | undefined;
}

interface Page {
  readonly limit: number;
  readonly offset: number;
  /** `asc`: oldest first. */
  readonly order: "asc" | "desc";
}

const ROWS_PER_COUNT = 10_000;
export const RECORDS_PER_PAGE = 50;

type Put = readonly (readonly [key: string, value: string])[];

export class ApprovalRows {
  readonly store: Store;
  /** Milliseconds for which a decided approval is kept. */
  readonly #retention: () => number;

  constructor(store: Store, retention: () => number) {
    this.store = store;
    this.#retention = retention;
  }

  async read(id: string): Promise<FoundApproval | undefined> {
    return parse(await this.store.get(approvalKey(id)));
  }

  /** The last question about a call, and the revision of the row that names it; null when there is none. */
  async lastOf(key: string): Promise<{ found: FoundApproval | undefined; revision: number | null }> {
    const row = await this.store.get(approvalCallKey(key));
    if (row === undefined) return { found: undefined, revision: null };
    return { found: await this.read(JSON.parse(row.value)), revision: row.revision };
  }

  /** @param revision from `lastOf`: of two processes that ask about the same call, only one creates a question */
  async create(record: ApprovalRecord, revision: number | null): Promise<void> {
    const { id, key } = record;
    const call = approvalCallKey(key);
    await this.store.commit({
      put: [
        [approvalKey(id), JSON.stringify(record)],
        [call, JSON.stringify(id)],
        ...indexRows(record),
        ...placeRows(record),
        [approvalTimeKey(this.#nextTime(record), id), "1"],
      ],
      expect: [[call, revision]],
    });
  }

  /** Pages of the approvals that rows with a prefix name: `APPROVAL_ANSWERS` those not delivered, `approvalPlace` open questions. */
  async *pagesOf(prefix: string): AsyncGenerator<FoundApproval[], void> {
    for await (const rows of allRows(this.store, { prefix }, RECORDS_PER_PAGE)) yield this.#findAll(rows);
  }

  /** Stores a decision. If a step or a task waits for it, a further row keeps it until it has been delivered. */
  async decide({ record, revision }: FoundApproval, decision: Decision): Promise<ApprovalRecord> {
    const { id } = record;
    const after = { ...record, ...decision };
    const waits = isAwaited(record);
    await this.store.commit({
      put: [
        [approvalKey(id), JSON.stringify(after)],
        ...indexRows(after),
        [approvalTimeKey(this.#nextTime(after), id), "1"],
        ...(waits ? ([[approvalAnswerKey(id), "1"]] as const) : []),
      ],
      delete: [...keysOf(indexRows(record)), ...keysOf(placeRows(record)), approvalTimeKey(this.#nextTime(record), id)],
      expect: [[approvalKey(id), revision]],
    });
    if (waits) this.store.wake?.(APPROVAL_ANSWERS);
    return after;
  }

  /** Marks an open approval as expired, unless it has just been changed. No answer in time counts as refused. */
  expire(found: FoundApproval): Promise<boolean> {
    return unlessConflict(this.decide(found, { status: "expired", decidedAt: found.record.expiresAt }));
  }

  /** Marks the answer as used: for an approved call, this is its start. @param usedBy the key of the call */
  async use({ record, revision }: FoundApproval, usedAt: number, usedBy?: string): Promise<void> {
    const key = approvalKey(record.id);
    await this.store.commit({
      put: [[key, JSON.stringify({ ...record, usedAt, usedBy })]],
      delete: [approvalAnswerKey(record.id)],
      expect: [[key, revision]],
    });
  }

  /** @throws CommitConflict when it has been decided since its time was read, because its time differs then */
  async remove({ record, revision, time }: DueApproval): Promise<void> {
    const { id, key } = record;
    const call = await this.store.get(approvalCallKey(key));
    // A later question about the same call may exist.
    const isLast = call !== undefined && JSON.parse(call.value) === id;
    await this.store.commit({
      delete: [
        approvalKey(id),
        approvalAnswerKey(id),
        ...keysOf(indexRows(record)),
        time.key,
        ...(isLast ? [call.key] : []),
      ],
      expect: [
        [approvalKey(id), revision],
        [time.key, time.revision],
        ...(isLast ? [[call.key, call.revision] as const] : []),
      ],
    });
  }

  async list({ status, agentId, owner }: ApprovalFilter, { limit, offset, order }: Page): Promise<ApprovalRecord[]> {
    const prefix = approvalIndex(status, agentId, owner);
    const rows = await rowsAt(this.store, { prefix, reverse: order === "desc", limit }, offset);
    return (await this.#findAll(rows)).map(({ record }) => record);
  }

  async count({ status, agentId, owner }: ApprovalFilter): Promise<number> {
    const prefix = approvalIndex(status, agentId, owner);
    for (let count = 0, after: string | undefined; ; ) {
      const range = { prefix, limit: ROWS_PER_COUNT, longest: 0 };
      const rows = await this.store.scan(after === undefined ? range : { ...range, after });
      count += rows.length;
      if (rows.length < ROWS_PER_COUNT) return count;
      after = rows.at(-1)!.key;
    }
  }

  /** How many open questions count for a user, at most `most`. */
  async countOpen(user: string, most: number): Promise<number> {
    return (await this.store.scan({ prefix: approvalPlace("user", user), limit: most, longest: 0 })).length;
  }

  /** Approvals with something to do by `time`: to expire, or to be removed. */
  async due(time: number): Promise<DueApproval[]> {
    const range = { prefix: APPROVAL_TIMES, before: approvalTimesBefore(time + 1), limit: RECORDS_PER_PAGE };
    const rows = await this.store.scan(range);
    const times = new Map(rows.map((row) => [indexedApproval(row.key), row]));
    return (await this.#findAll(rows)).map((found) => ({ ...found, time: times.get(found.record.id)! }));
  }

  /** Removes an answer from those to be delivered. */
  async forgetAnswer(id: string): Promise<void> {
    await this.store.commit({ delete: [approvalAnswerKey(id)] });
  }

  /** The approvals with these ids, as far as they exist. */
  async readMany(ids: readonly string[]): Promise<FoundApproval[]> {
    if (ids.length === 0) return [];
    const found = await this.store.getMany(ids.map(approvalKey));
    return found.flatMap((row) => parse(row) ?? []);
  }

  /** @param rows of an index */
  #findAll(rows: readonly Row[]): Promise<FoundApproval[]> {
    return this.readMany(rows.map(({ key }) => indexedApproval(key)));
  }

  #nextTime({ status, expiresAt, decidedAt }: ApprovalRecord): number {
    return status === "open" ? expiresAt : decidedAt! + this.#retention();
  }
}

const parse = (row: Row | undefined): FoundApproval | undefined =>
  row === undefined ? undefined : { record: JSON.parse(row.value), revision: row.revision };

/** The index rows. All indexes contain every approval, so that isolation may be switched on later. */
function indexRows({ id, status, agentId, owner, createdAt }: ApprovalRecord): Put {
  const entry = approvalEntry(createdAt, id);
  const prefixes = [approvalIndex(status), approvalIndex(status, undefined, owner)];
  if (agentId !== undefined) prefixes.push(approvalIndex(status, agentId), approvalIndex(status, agentId, owner));
  return prefixes.map((prefix) => [prefix + entry, "1"]);
}

type Place = "execution" | "task" | "conversation" | "user";

/** Prefix of the open questions of an execution (of a user), a task, a conversation, or those that count for a user. */
export const approvalPlace = (kind: Place, ...names: string[]): string =>
  `aw/${kind}/${names.map(encodeShortText).join("/")}/`;

/** Those of workflows are bounded by their executions. */
export const countsForUser = ({ kind, runId }: Pick<ApprovalRecord, "kind" | "runId">): boolean =>
  kind !== "step" || runId !== undefined;

/** Rows of an open question alone. */
function placeRows({ id, kind, owner, executionId, taskId, conversationId, runId }: ApprovalRecord): Put {
  const places: string[] = [];
  if (kind === "step" && executionId !== undefined) places.push(approvalPlace("execution", owner, executionId));
  if (taskId !== undefined) places.push(approvalPlace("task", taskId));
  if (conversationId !== undefined) places.push(approvalPlace("conversation", conversationId));
  if (countsForUser({ kind, runId })) places.push(approvalPlace("user", owner));
  return places.map((place) => [place + id, "1"]);
}

const keysOf = (rows: Put): string[] => rows.map(([key]) => key);
