/** What the store has of an execution that runs here, and the commits that change it. What the rows are says journal/rows.ts. */
import { journalKey, openExecutionKey } from "../../storage/keys.ts";
import type { Commit } from "../../storage/store.ts";
import type { Outline } from "../definition/definition.ts";
import type { ExecutionStart, JournalEntry } from "../journal/entries.ts";
import { openRowKeys, openRows } from "../journal/index-rows.ts";
import { executionRecord } from "../journal/record.ts";
import { entriesText, openRowText, recordRowText, reopenedRowText } from "../journal/rows.ts";
import type { JournalState } from "../journal/state.ts";
import type { ExecutionEnvironment } from "./environment.ts";
import { asFirst, type Reopening, restRows, restWithoutReopening } from "./execution-commits.ts";

/** A commit, and what to call once it is done. */
export interface RowsChange {
  readonly commit: Commit;
  done(revision: number): void;
}

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

  /** More entries. The first ones come into its open row. */
  entries(texts: readonly string[]): RowsChange {
    const { process } = this.#environment;
    const text = entriesText(texts);
    if (this.#isNew) {
      const put = openRows(this.#start, openRowText(process, this.#startText, texts));
      return {
        commit: asFirst({ put, of: [this.#start] }, this.#start, this.#expecting),
        done: (revision) => {
          this.#isNew = false;
          this.#firstText = text;
          this.#begun(revision);
        },
      };
    }
    const row: [string, string] = [journalKey(this.#start.number, this.#journalRows), text];
    const reopening = this.#reopening;
    const commit =
      reopening === null
        ? this.#ifStillOwned({ put: [row] })
        : { ...reopening, put: [row, ...openRows(this.#start, reopenedRowText(process))] };
    return {
      commit: { ...commit, of: [this.#start], begun: true },
      done: (revision) => {
        this.#journalRows++;
        if (reopening !== null) this.#begun(revision);
      },
    };
  }

  /**
   * Its record row, with the entries in it that are not on disk yet; the open row goes.
   *
   * @param state after those entries
   * @param values as JSON, of those that the caller has already
   */
  rest(
    state: JournalState,
    outline: Outline,
    texts: readonly string[],
    values?: ReadonlyMap<unknown, string>,
  ): RowsChange {
    const record = executionRecord(state, outline, values);
    const first = this.#firstText ?? "[]";
    const value = recordRowText(record, this.#startText, first, this.#journalRows, entriesText(texts));
    const begun = !this.#isNew || this.#firstText !== null;
    return {
      commit: { ...this.#restCommit(restRows(state, value)), of: [this.#start], begun },
      done: () => {
        this.#firstText ??= "[]";
        this.#isNew = false;
        this.#reopening = null;
      },
    };
  }

  #begun(revision: number): void {
    this.revision = revision;
    this.#reopening = null;
  }

  #restCommit(put: readonly [string, string][]): Commit {
    if (this.#isNew) return asFirst({ put }, this.#start, this.#expecting);
    if (this.#reopening !== null) return restWithoutReopening(put, this.#reopening);
    return this.#ifStillOwned({ put, delete: openRowKeys(this.#start) });
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
