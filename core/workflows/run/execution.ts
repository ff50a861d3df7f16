/**
 * An execution that runs in this process: its fold, and the entries that are still on their way to disk. Entries are applied at
 * once and committed in groups; what is told to others (`committed`) are those on disk alone.
 */
import { CommitConflict, type ServiceError } from "../../lib/errors.ts";
import { executionKey, journalKey, openExecutionKey } from "../../storage/keys.ts";
import type { Commit, Row } from "../../storage/store.ts";
import type { WorkflowDefinition } from "../definition/definition.ts";
import type { JournalEntry } from "../journal/entries.ts";
import { chosenIdKey, parseOwnId } from "../journal/ids.ts";
import { indexKeys } from "../journal/index-rows.ts";
import { readEntries } from "../journal/load.ts";
import { executionRecordText } from "../journal/record.ts";
import { entriesText, openRowText, recordRowText, reopenedRowText } from "../journal/rows.ts";
import { applyEntry, type JournalState, stateFromJournal } from "../journal/state.ts";
import { commitWithRetry, notRecordedYet } from "./commit.ts";
import type { ExecutionCaller, ExecutionEnvironment, StoredRows } from "./environment.ts";
import { Lifetime, type Stop } from "./lifetime.ts";
import { executionLogger } from "./logger.ts";
import { countStep } from "./metrics.ts";
import type { ExecutionSpans } from "./spans.ts";

/** Entries kept in memory for readers; those who are further behind read the store. */
const LOG = 1024;

export class Execution {
  readonly state: JournalState;
  readonly definition: WorkflowDefinition;
  readonly lifetime = new Lifetime(null);
  caller: ExecutionCaller;
  /** Null when it is not traced. */
  spans: ExecutionSpans | null = null;
  readonly #around: ExecutionEnvironment;
  /** JSON text of the start. */
  readonly #start: string;
  #first: string | null = null;
  /** Until the store knows of it at all. */
  #fresh = true;
  #rows = 0;
  #revision = 0;
  /** Entries that are not on disk yet, as text. */
  #pending: string[] = [];
  #log: JournalEntry[] = [];
  #dropped = 0;
  #committed = 0;
  #writing: Promise<void> | null = null;
  #next: Promise<void> | null = null;
  /** Set while its record says that it rests: what the first commit must find, and take away. */
  #leaving: Pick<Commit, "delete" | "expect"> | null = null;
  #more: { promise: Promise<void>; resolve: () => void } | null = null;
  #rested = false;
  /** Why it could not be recorded, while the store cannot be used. */
  #trouble: ((error: unknown) => void)[] = [];
  /** Set by the engine: settles when the execution rests, or when it is given up here. */
  settled: Promise<void> = Promise.resolve();

  constructor(
    state: JournalState,
    definition: WorkflowDefinition,
    caller: ExecutionCaller,
    around: ExecutionEnvironment,
    recorded: StoredRows | null,
  ) {
    this.state = state;
    this.definition = definition;
    this.caller = caller;
    this.#around = around;
    this.#start = JSON.stringify(state.start);
    if (recorded === null) return;
    this.#fresh = false;
    const { loaded, openRow, recordRow } = recorded;
    this.#first = JSON.stringify(loaded.first);
    this.#rows = loaded.rows;
    this.#log = [...loaded.entries];
    this.#committed = loaded.entries.length;
    if (openRow !== null) this.#revision = openRow.revision;
    else if (recordRow !== null) this.#leave(recordRow, loaded.tail);
  }

  /** From rest to running, with the first commit. What stood beside the record moves into the journal. */
  #leave({ key, revision }: Row, tail: readonly JournalEntry[]): void {
    const { start, status } = this.state;
    this.#pending = tail.map((entry) => JSON.stringify(entry));
    this.#leaving = {
      delete: indexKeys(start, status),
      expect: [
        [key, revision],
        [openExecutionKey(start.number), null],
      ],
    };
  }

  /** Whether the store says that it runs here, or that it has come to rest. */
  get isRecorded(): boolean {
    return this.#rested || (this.#first !== null && this.#leaving === null);
  }

  /** Of its open row, as far as other processes may ask for something. */
  get revision(): number {
    return this.#revision;
  }

  get isAtRest(): boolean {
    return this.#rested;
  }

  /** True once it cannot go on here, although it does not rest. */
  abandoned = false;

  /** Entries on disk. */
  get committed(): number {
    return this.#committed;
  }

  /** The entries that are still in memory, and how many came before them. */
  get log(): { from: number; entries: readonly JournalEntry[] } {
    return { from: this.#dropped, entries: this.#log };
  }

  /** @param text the entry as JSON, where it is at hand */
  append(entry: JournalEntry, text: string = JSON.stringify(entry)): void {
    applyEntry(this.state, entry);
    this.spans?.entry(entry, this.state);
    countStep(this.definition.meter, entry);
    this.#log.push(entry);
    this.#pending.push(text);
  }

  /** Resolves when all that was appended is on disk. Rejects when that cannot be any more: the execution is not ours. */
  flush(): Promise<void> {
    if (this.#around.volatile && this.#leaving === null) {
      this.#first ??= "[]";
      this.#done(this.#log.length);
      return DONE;
    }
    if (this.#next !== null) return this.#next;
    if (this.#pending.length === 0) return this.#writing ?? DONE;
    if (this.#writing === null) return this.#write();
    this.#next = this.#writing.then(() => this.#write());
    return this.#next;
  }

  /** Resolves when there is more on disk than there was, and when the execution rests or is given up. */
  progress(): Promise<void> {
    if (this.#more === null) {
      let resolve = () => {};
      const promise = new Promise<void>((done) => {
        resolve = done;
      });
      this.#more = { promise, resolve };
    }
    return this.#more.promise;
  }

  notifyReaders(): void {
    this.#more?.resolve();
    this.#more = null;
  }

  /** Rejects while the store cannot take what the execution has to write; the execution itself waits. */
  commitFailure(): Promise<never> {
    return new Promise((_resolve, reject) => this.#trouble.push(reject));
  }

  stop(stop: Stop): void {
    this.lifetime.stop(stop);
  }

  #write(): Promise<void> {
    this.#next = null;
    const texts = this.#pending;
    const count = this.#log.length + this.#dropped;
    this.#pending = [];
    const { number } = this.state.start;
    const { process } = this.#around;
    const text = entriesText(texts);
    const open = openExecutionKey(number);
    const first = this.#fresh;
    let commit: Commit;
    if (first) commit = this.#named({ put: [[open, openRowText(process, this.#start, texts)]] });
    else {
      const row: [string, string] = [journalKey(number, this.#rows), text];
      const leaving = this.#leaving;
      commit =
        leaving === null ? this.#ours({ put: [row] }) : { ...leaving, put: [row, [open, reopenedRowText(process)]] };
    }
    this.#writing = this.#commit(commit).then((revision) => {
      this.#fresh = false;
      if (first) this.#first = text;
      else this.#rows++;
      if (first || this.#leaving !== null) this.#revision = revision;
      this.#leaving = null;
      this.#done(count);
    });
    return this.#writing;
  }

  /** Writes the record beside what is left of the journal, and ends what is open. */
  async writeRecord(): Promise<void> {
    while (this.#next !== null || this.#writing !== null) await (this.#next ?? this.#writing);
    const { state } = this;
    const { start, status } = state;
    const tail = entriesText(this.#pending);
    const count = this.#log.length + this.#dropped;
    this.#pending = [];
    const record = executionRecordText(state, this.definition.outline);
    const value = recordRowText(record, this.#start, this.#first ?? "[]", this.#rows, tail);
    const ended = String(state.endedAt ?? 0);
    const put: [string, string][] = [[executionKey(start.number), value]];
    for (const key of indexKeys(start, status)) put.push([key, ended]);
    await this.#commit(this.#resting(put));
    this.#first ??= "[]";
    this.#fresh = false;
    this.#leaving = null;
    this.#rested = true;
    this.#done(count);
  }

  /** Back to what is on disk: what came after it cannot be recorded, and is as if it had not been. */
  async rollBack(): Promise<void> {
    const { start } = this.state;
    this.#pending = [];
    this.#writing = null;
    this.#next = null;
    this.#log.length = this.#committed - this.#dropped;
    const entries = this.#dropped === 0 ? this.#log : await readEntries(this.#around.store, start, this.#committed);
    Object.assign(this.state, stateFromJournal(start, entries));
  }

  #resting(put: readonly [string, string][]): Commit {
    if (this.#fresh) return this.#named({ put });
    const leaving = this.#leaving;
    if (leaving === null) return this.#ours({ put, delete: [openExecutionKey(this.state.start.number)] });
    const kept = new Set(put.map(([key]) => key));
    return { put, delete: leaving.delete?.filter((key) => !kept.has(key)), expect: leaving.expect };
  }

  #done(count: number): void {
    this.#writing = null;
    this.#committed = count;
    while (!this.#around.volatile && this.#log.length > LOG && this.#committed - this.#dropped > LOG / 2) this.#drop();
    this.notifyReaders();
  }

  /** Forgets the older half of what readers may still want: it is on disk. */
  #drop(): void {
    this.#log.splice(0, LOG / 2);
    this.#dropped += LOG / 2;
  }

  /** The id that a client chose must be free. */
  #named(commit: Commit): Commit {
    const { id, number } = this.state.start;
    if (parseOwnId(id) === number) return commit;
    const key = chosenIdKey(this.state.start);
    return { ...commit, put: [...(commit.put ?? []), [key, String(number)]], expect: [[key, null]] };
  }

  #ours(commit: Commit): Commit {
    if (!this.#around.shared) return commit;
    return { ...commit, expect: [[openExecutionKey(this.state.start.number), this.#revision]] };
  }

  /** Before the store knows that it runs here, a failure is the end of it; later it waits until the store is back. */
  async #commit(commit: Commit): Promise<number> {
    const { store } = this.#around;
    try {
      return await store.commit(commit);
    } catch (error) {
      if (!this.isRecorded || error instanceof CommitConflict) throw error;
      return await commitWithRetry(store, commit, error, {
        report: (failure, isFirst) => this.#report(failure, isFirst),
        over: () => this.lifetime.stopped?.kind === "closing",
      });
    }
  }

  #report(error: ServiceError, isFirst: boolean): void {
    const { id } = this.state.start;
    if (isFirst) {
      const message = `an execution cannot be recorded, and waits: ${error.message}`;
      executionLogger(this).error({ err: error }, message);
    }
    for (const reject of this.#trouble.splice(0)) reject(notRecordedYet(id, error));
  }
}

const DONE = Promise.resolve();
