/** What the store has of an execution that runs here, and the commits that change it. What the rows are says journal/entries.ts. */

import { type CommitConflict, ServiceError } from "../../lib/errors.ts";
import { executionKey, journalKey, openExecutionKey } from "../../storage/keys.ts";
import type { Commit, Row } from "../../storage/store.ts";
import type { Outline } from "../definition/definition.ts";
import {
  chosenIdKey,
  type ExecutionStart,
  entriesText,
  type JournalEntry,
  openRowText,
  parseOwnId,
  recordRowText,
  reopenedRowText,
} from "../journal/entries.ts";
import { indexKeys, openRowKeys, openRows } from "../journal/index-rows.ts";
import { executionRecord } from "../journal/record.ts";
import type { JournalState } from "../journal/state.ts";
import type { ExecutionEnvironment } from "./environment.ts";

// Builds the commits of an execution: what they write and remove, and which rows they expect.

/** The first commit after a resume removes the index rows, and fails when another request has resumed the execution. */
type Reopening = Pick<Commit, "delete" | "expect">;

/** @param state before the resume */
export const reopeningCommit = ({ start, status }: JournalState, recordRow: Row): Reopening => ({
  delete: indexKeys(start, status),
  expect: [
    [recordRow.key, recordRow.revision],
    [openExecutionKey(start.number), null],
  ],
});

/** The rows of which one exists when a number is taken: by a running execution or by a settled one. */
export const executionNumberRows = (number: number): readonly string[] => [
  openExecutionKey(number),
  executionKey(number),
];

/** The error of an execution that could not start: the conflict itself when its number is taken, so that it gets another one. */
export const unlessNumberTaken = (conflict: CommitConflict, number: number, error: ServiceError): Error =>
  conflict.keys.every((key) => executionNumberRows(number).includes(key)) ? conflict : error;

/** The first commit of an execution, which fails when its number is taken, or the id that a client chose. */
function asFirst(commit: Commit, start: ExecutionStart, { shared }: Pick<ExecutionEnvironment, "shared">): Commit {
  // Without other processes a number cannot be taken, which saves a read.
  const expect = shared ? executionNumberRows(start.number).map((key) => [key, null] as const) : [];
  if (parseOwnId(start.id) === start.number) return { ...commit, expect };
  const key = chosenIdKey(start);
  return { ...commit, put: [...(commit.put ?? []), [key, String(start.number)]], expect: [...expect, [key, null]] };
}

/** Somebody else's commit could not end an execution. */
export class EndLost extends Error {
  override readonly name = "EndLost";
  readonly conflict: CommitConflict;

  constructor(conflict: CommitConflict) {
    super("the execution cannot end here any more", { cause: conflict });
    this.conflict = conflict;
  }
}

/** Nobody knows whether its end is in the store: its number is taken, perhaps by itself. */
export const endUnknown = (cause: CommitConflict): ServiceError =>
  new ServiceError("unavailable", "it is not known whether the execution has ended: its store was away", { cause });

export class ExecutionRows {
  /** Of its open row: stop requests name it. */
  revision = 0;
  /** Whether a commit may have happened of which that is not known: then none follows that does not expect what was there before it. */
  isInDoubt = false;
  readonly #start: ExecutionStart;
  readonly #environment: ExecutionEnvironment;
  /** The start, as JSON. */
  readonly #startText: string;
  /** The entries that were committed together with the start, as JSON. Null until then. */
  #firstText: string | null = null;
  /** Whether nothing of it is in the store yet. */
  #isNew = true;
  #journalRows = 0;
  /** Set from a resume to the first commit after it, which has to turn the record row back into an open row. */
  #reopening: Reopening | null = null;

  constructor(start: ExecutionStart, startText: string, environment: ExecutionEnvironment) {
    this.#start = start;
    this.#startText = startText;
    this.#environment = environment;
  }

  /** It is in the store already. @returns how much its first entries are */
  load(first: readonly JournalEntry[], journalRows: number): string {
    this.#isNew = false;
    this.#journalRows = journalRows;
    this.#firstText = JSON.stringify(first);
    return this.#firstText;
  }

  /** A resume. */
  reopen(reopening: Reopening): void {
    this.#reopening = reopening;
  }

  get isReopening(): boolean {
    return this.#reopening !== null;
  }

  /** Whether the store knows that it runs here. */
  get hasBegun(): boolean {
    return this.#firstText !== null && this.#reopening === null;
  }

  /** Where no journal is written: it counts as begun. */
  begin(): void {
    this.#firstText ??= "[]";
  }

  /** More entries. The first ones come into its open row. To be followed by `entered`. */
  entries(texts: readonly string[]): Commit {
    const { process } = this.#environment;
    if (this.#isNew) {
      const put = openRows(this.#start, openRowText(process, this.#startText, texts));
      return asFirst({ put, of: [this.#start] }, this.#start, this.#expecting);
    }
    const row: [string, string] = [journalKey(this.#start.number, this.#journalRows), entriesText(texts)];
    const commit =
      this.#reopening === null
        ? this.#ifStillOwned({ put: [row] })
        : { ...this.#reopening, put: [row, ...openRows(this.#start, reopenedRowText(process))] };
    return { ...commit, of: [this.#start], begun: true };
  }

  /** These entries are in the store. @param revision of that commit */
  entered(texts: readonly string[], revision: number): void {
    if (this.#isNew) this.#firstText = entriesText(texts);
    else this.#journalRows++;
    if (this.#isNew || this.#reopening !== null) this.revision = revision;
    this.#isNew = false;
    this.#reopening = null;
  }

  /**
   * To be followed by `rested`: its record row, with the entries in it that are not on disk yet; the open row goes.
   *
   * @param state after those entries
   * @param values as JSON, of those that the caller has already
   */
  rest(state: JournalState, outline: Outline, texts: readonly string[], values?: ReadonlyMap<unknown, string>): Commit {
    const record = executionRecord(state, outline, values);
    const first = this.#firstText ?? "[]";
    const value = recordRowText(record, this.#startText, first, this.#journalRows, entriesText(texts));
    const start = this.#start;
    const indexes = indexKeys(start, state.status);
    const put: [string, string][] = [[executionKey(start.number), value]];
    for (const key of indexes) put.push([key, String(state.endedAt ?? 0)]);
    const rows: Commit = { put, of: [start], begun: !this.#isNew || this.#firstText !== null };
    if (this.#isNew) return asFirst(rows, start, this.#expecting);
    if (this.#reopening === null) return this.#ifStillOwned({ ...rows, delete: openRowKeys(start) });
    // It settles again before anything of its resume was committed.
    const { delete: removed, expect } = this.#reopening;
    return { ...rows, delete: removed?.filter((key) => !indexes.includes(key)), expect };
  }

  /** Its record row is in the store. */
  rested(): void {
    this.begin();
    this.#isNew = false;
    this.#reopening = null;
  }

  /** On a shared store the commit fails when another process has recovered the execution. */
  #ifStillOwned(commit: Commit): Commit {
    if (!this.#expecting.shared) return commit;
    return { ...commit, expect: [[openExecutionKey(this.#start.number), this.revision]] };
  }

  get #expecting(): { readonly shared: boolean } {
    return { shared: this.#environment.shared || this.isInDoubt };
  }
}
