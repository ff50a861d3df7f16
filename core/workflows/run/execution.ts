/**
 * An execution that runs in this process: its state, and the journal entries that are still on their way to disk. Entries are applied
 * to the state at once and committed in groups. Readers of events see committed entries only.
 *
 * An execution comes to rest when it ends or is suspended. While it runs, the store has an open row and journal rows of it. When it
 * comes to rest, a record row replaces the open row (journal/rows.ts).
 */
import { CommitConflict, type ServiceError } from "../../lib/errors.ts";
import { journalKey, openExecutionKey } from "../../storage/keys.ts";
import type { Commit, Row } from "../../storage/store.ts";
import type { WorkflowDefinition } from "../definition/definition.ts";
import type { JournalEntry } from "../journal/entries.ts";
import { readEntries } from "../journal/load.ts";
import { executionRecordText } from "../journal/record.ts";
import { entriesText, openRowText, recordRowText, reopenedRowText } from "../journal/rows.ts";
import { applyEntry, type JournalState, stateFromJournal } from "../journal/state.ts";
import { commitWithRetry, notRecordedYet } from "./commit-retry.ts";
import type { ExecutionCaller, ExecutionEnvironment, Lease, StoredRows } from "./environment.ts";
import { asFirst, type Reopening, reopeningCommit, restRows, restWithoutReopening } from "./execution-commits.ts";
import { Lifetime, type Stop } from "./lifetime.ts";
import { executionLogger } from "./logger.ts";
import { countStep } from "./metrics.ts";
import { OpenTries } from "./open-tries.ts";
import type { ExecutionSpans } from "./spans.ts";

/** Entries kept in memory for readers of events; a reader who is further behind reads the store. */
const MAX_LOG_ENTRIES = 1024;

export class Execution {
  readonly state: JournalState;
  readonly definition: WorkflowDefinition;
  readonly lifetime = new Lifetime(null);
  /** Steps that an earlier process has left under way; null for an execution that began here. */
  takenUp: OpenTries | null = null;
  caller: ExecutionCaller;
  /** Null when it is not traced. */
  spans: ExecutionSpans | null = null;
  readonly #environment: ExecutionEnvironment;
  /** The start, as JSON. */
  readonly #startText: string;
  /** The entries that were committed together with the start, as JSON. Null until then. */
  #firstText: string | null = null;
  /** Whether nothing of it is in the store yet. */
  #isNew = true;
  #journalRows = 0;
  #revision = 0;
  /** Entries that are not on disk yet, as text. */
  #pending: string[] = [];
  #log: JournalEntry[] = [];
  /** Entries that came before those in `#log`. */
  #dropped = 0;
  #committed = 0;
  /** The commit under way, and the one that follows it with what was appended meanwhile. */
  #writing: Promise<void> | null = null;
  #nextWrite: Promise<void> | null = null;
  /** Set from a resume to the first commit after it, which has to turn the record row back into an open row. */
  #reopening: Reopening | null = null;
  #progress: { promise: Promise<void>; resolve: () => void } | null = null;
  #isAtRest = false;
  /** Those who want to know when the store cannot take a commit. */
  #failureListeners: ((error: unknown) => void)[] = [];
  /** Set by the engine: resolves when the execution has come to rest, rejects when this process gives it up. */
  settled: Promise<void> = Promise.resolve();

  constructor(
    state: JournalState,
    definition: WorkflowDefinition,
    caller: ExecutionCaller,
    environment: ExecutionEnvironment,
    stored: StoredRows | null,
  ) {
    this.state = state;
    this.definition = definition;
    this.caller = caller;
    this.#environment = environment;
    this.#startText = JSON.stringify(state.start);
    if (stored === null) return;
    this.takenUp = new OpenTries(state);
    this.#isNew = false;
    const { loaded, openRow, recordRow } = stored;
    this.#firstText = JSON.stringify(loaded.first);
    this.#journalRows = loaded.rows;
    this.#log = [...loaded.entries];
    this.#committed = loaded.entries.length;
    if (openRow !== null) this.#revision = openRow.revision;
    else if (recordRow !== null) this.#reopen(recordRow, loaded.tail);
  }

  /** A resume: with the first commit the entries that the record row holds move into the journal. */
  #reopen(recordRow: Row, tail: readonly JournalEntry[]): void {
    this.#pending = tail.map((entry) => JSON.stringify(entry));
    this.#reopening = reopeningCommit(this.state, recordRow);
  }

  /** Whether the store knows that it runs here, or that it has come to rest. */
  get isRecorded(): boolean {
    return this.#isAtRest || (this.#firstText !== null && this.#reopening === null);
  }

  /** Of its open row: stop requests name it. */
  get revision(): number {
    return this.#revision;
  }

  get lease(): Lease | null {
    return this.#environment.lease;
  }

  get isAtRest(): boolean {
    return this.#isAtRest;
  }

  /** Set by the engine once this process has given it up before it came to rest. */
  abandoned = false;

  /** How many entries have to be written. */
  get unwritten(): number {
    return this.#pending.length;
  }

  /** How many entries are on disk. */
  get committed(): number {
    return this.#committed;
  }

  /** The entries that are still in memory, and how many came before them. */
  get log(): { from: number; entries: readonly JournalEntry[] } {
    return { from: this.#dropped, entries: this.#log };
  }

  /** @param text the entry as JSON, where the caller has it already */
  append(entry: JournalEntry, text: string = JSON.stringify(entry)): void {
    applyEntry(this.state, entry);
    this.takenUp?.entry(entry);
    this.spans?.entry(entry, this.state);
    countStep(this.definition.meter, entry);
    this.#log.push(entry);
    this.#pending.push(text);
  }

  /** Resolves when all that was appended is on disk. Rejects when that can never be: another process has the execution. */
  flush(): Promise<void> {
    if (this.#environment.volatile && this.#reopening === null) {
      this.#firstText ??= "[]";
      this.#onCommitted(this.#log.length);
      return RESOLVED;
    }
    if (this.#nextWrite !== null) return this.#nextWrite;
    if (this.#pending.length === 0) return this.#writing ?? RESOLVED;
    if (this.#writing === null) return this.#write();
    this.#nextWrite = this.#writing.then(() => this.#write());
    return this.#nextWrite;
  }

  /** Resolves when more entries are on disk, when the execution comes to rest, and when it is given up. */
  progress(): Promise<void> {
    if (this.#progress === null) {
      let resolve = () => {};
      const promise = new Promise<void>((done) => {
        resolve = done;
      });
      this.#progress = { promise, resolve };
    }
    return this.#progress.promise;
  }

  notifyReaders(): void {
    this.#progress?.resolve();
    this.#progress = null;
  }

  /** Rejects when the store cannot take a commit. The execution itself waits until the store is back. */
  commitFailure(): Promise<never> {
    return new Promise((_resolve, reject) => this.#failureListeners.push(reject));
  }

  stop(stop: Stop): void {
    this.lifetime.stop(stop);
  }

  #write(): Promise<void> {
    this.#nextWrite = null;
    const texts = this.#pending;
    const count = this.#log.length + this.#dropped;
    this.#pending = [];
    const { number } = this.state.start;
    const { process } = this.#environment;
    const text = entriesText(texts);
    const open = openExecutionKey(number);
    const first = this.#isNew;
    let commit: Commit;
    if (first) {
      const put: [string, string][] = [[open, openRowText(process, this.#startText, texts)]];
      commit = asFirst({ put }, this.state.start, this.#environment);
    } else {
      const row: [string, string] = [journalKey(number, this.#journalRows), text];
      const reopening = this.#reopening;
      commit =
        reopening === null
          ? this.#ifStillOwned({ put: [row] })
          : { ...reopening, put: [row, [open, reopenedRowText(process)]] };
    }
    this.#writing = this.#commit(commit).then((revision) => {
      this.#isNew = false;
      if (first) this.#firstText = text;
      else this.#journalRows++;
      if (first || this.#reopening !== null) this.#revision = revision;
      this.#reopening = null;
      this.#onCommitted(count);
    });
    return this.#writing;
  }

  /** Writes the record row, with the entries that are not on disk yet in it, and removes the open row. */
  async writeRecord(): Promise<void> {
    while (this.#nextWrite !== null || this.#writing !== null) await (this.#nextWrite ?? this.#writing);
    const { state } = this;
    const tail = entriesText(this.#pending);
    const count = this.#log.length + this.#dropped;
    this.#pending = [];
    const record = executionRecordText(state, this.definition.outline);
    const value = recordRowText(record, this.#startText, this.#firstText ?? "[]", this.#journalRows, tail);
    await this.#commit(this.#restCommit(restRows(state, value)));
    this.#firstText ??= "[]";
    this.#isNew = false;
    this.#reopening = null;
    this.#isAtRest = true;
    this.#onCommitted(count);
  }

  /** Goes back to the state on disk, because what came after it cannot be recorded. */
  async rollBack(): Promise<void> {
    const { start } = this.state;
    this.#pending = [];
    this.#writing = null;
    this.#nextWrite = null;
    this.#log.length = this.#committed - this.#dropped;
    const entries =
      this.#dropped === 0 ? this.#log : await readEntries(this.#environment.store, start, this.#committed);
    Object.assign(this.state, stateFromJournal(start, entries));
  }

  #restCommit(put: readonly [string, string][]): Commit {
    const { start } = this.state;
    if (this.#isNew) return asFirst({ put }, start, this.#environment);
    if (this.#reopening !== null) return restWithoutReopening(put, this.#reopening);
    return this.#ifStillOwned({ put, delete: [openExecutionKey(start.number)] });
  }

  /** On a shared store the commit fails when another process has recovered the execution. */
  #ifStillOwned(commit: Commit): Commit {
    if (!this.#environment.shared) return commit;
    return { ...commit, expect: [[openExecutionKey(this.state.start.number), this.#revision]] };
  }

  #onCommitted(count: number): void {
    this.#writing = null;
    this.#committed = count;
    while (
      !this.#environment.volatile &&
      this.#log.length > MAX_LOG_ENTRIES &&
      this.#committed - this.#dropped > MAX_LOG_ENTRIES / 2
    )
      this.#dropOldest();
    this.notifyReaders();
    // Readers in other processes.
    this.#environment.store.wake?.(openExecutionKey(this.state.start.number));
  }

  /** Forgets the older half of the log, which is on disk. */
  #dropOldest(): void {
    this.#log.splice(0, MAX_LOG_ENTRIES / 2);
    this.#dropped += MAX_LOG_ENTRIES / 2;
  }

  /** A failed first commit ends the execution. Later ones are tried again until the store is back. */
  async #commit(commit: Commit): Promise<number> {
    const { store } = this.#environment;
    try {
      return await store.commit(commit);
    } catch (error) {
      if (!this.isRecorded || error instanceof CommitConflict) throw error;
      return await commitWithRetry(store, commit, error, {
        report: (failure, isFirst) => this.#report(failure, isFirst),
        isOver: () => this.lifetime.stopped?.kind === "closing",
      });
    }
  }

  #report(error: ServiceError, isFirst: boolean): void {
    const { id } = this.state.start;
    if (isFirst) {
      const message = `an execution cannot be recorded and waits: ${error.message}`;
      executionLogger(this).error({ err: error }, message);
    }
    for (const reject of this.#failureListeners.splice(0)) reject(notRecordedYet(id, error));
  }
}

const RESOLVED = Promise.resolve();
