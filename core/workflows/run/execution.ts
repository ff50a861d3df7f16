/**
 * An execution that runs in this process: its state, and the journal entries that are still on their way to disk. Entries are applied
 * to the state at once and committed in groups. Readers of events see committed entries only. journal/entries.ts says what the store has
 * of a running execution, and of one that has settled because it has ended or is suspended.
 */
import { Deferred } from "../../lib/abortable.ts";
import { isObject } from "../../lib/is-object.ts";
import { formatSize } from "../../lib/size.ts";
import { isStoreUnavailable } from "../../storage/away.ts";
import type { JoinedChanges } from "../../storage/joined.ts";
import { openExecutionKey } from "../../storage/keys.ts";
import type { Row } from "../../storage/store.ts";
import type { WorkflowDefinition } from "../definition/definition.ts";
import { type ExecutionStart, type JournalEntry, STATUS_AFTER, type StepPath } from "../journal/entries.ts";
import { readEntries } from "../journal/load.ts";
import { entryJson } from "../journal/record.ts";
import { Slice, valuesInSlices } from "../journal/slice.ts";
import { applyEntry, copyOfState, type JournalState, type StepState, stateFromJournal } from "../journal/state.ts";
import type { ExecutionCaller, ExecutionEnvironment, Lease, StoredRows } from "./environment.ts";
import { EndLost, ExecutionRows, endUnknown, reopeningCommit } from "./execution-rows.ts";
import { KnownValues } from "./known-values.ts";
import { Lifetime, type Stop } from "./lifetime.ts";
import { countStep, type ExecutionSpans } from "./spans.ts";
import { WaitingCommits } from "./waiting-commits.ts";

/** A step that waits continues with the same try. */
const UNDER_WAY: ReadonlySet<StepState["status"]> = new Set<StepState["status"]>(["running", "waiting"]);

/** The tries of steps that were in progress when an execution was read from the store: an earlier process started them. */
class OpenTries {
  readonly #tries = new Map<StepPath, string>();
  /** Whether one of them may have asked a person: it waits for approval, or its process has ended in the middle of it. */
  mayHaveAsked = false;

  /** @param state as it was read from the store */
  constructor({ steps }: JournalState) {
    for (const step of steps.values()) {
      if (!UNDER_WAY.has(step.status)) continue;
      this.#tries.set(step.path, tryOf(step));
      this.mayHaveAsked ||= step.status === "running" || waitsForApproval(step);
    }
  }

  /** Whether the step is still at the same try as then. */
  has(step: StepState): boolean {
    return this.#tries.get(step.path) === tryOf(step);
  }
}

/** As `suspendForApproval` and kept runs say it. */
const waitsForApproval = ({ data }: StepState): boolean =>
  isObject(data) && ("approvalId" in data || "approvals" in data);

/** Identifies a try: a step that starts anew has another start, and after a failure another number of tries. */
const tryOf = ({ begunWith, tries }: StepState): string => `${begunWith}:${tries}`;

/** What takes a few milliseconds to write. */
const LARGE_BYTES = 512 * 1024;

/** How many bytes of JSON an execution has recorded, and how many it may record. */
class RecordedSize {
  readonly #max: number;
  #bytes = 0;

  constructor(max: number) {
    this.#max = max;
  }

  /** The reason to stop an execution that would record more. */
  get tooLarge(): Stop {
    const reason = `the execution has recorded more than server.limits.execution allows: ${formatSize(this.#max)}`;
    return { kind: "size", reason, gracePeriod: 0 };
  }

  /** Whether writing all of it at once would keep others waiting. */
  get isLarge(): boolean {
    return this.#bytes > LARGE_BYTES;
  }

  /** Whether all of them can be added. */
  fits(texts: readonly string[]): boolean {
    return texts.reduce((bytes, text) => bytes + Buffer.byteLength(text), this.#bytes) <= this.#max;
  }

  /** @param recorded JSON text, or a number of bytes. @returns whether the total is within the limit */
  add(recorded: string | number): boolean {
    this.#bytes += typeof recorded === "number" ? recorded : Buffer.byteLength(recorded);
    return this.#bytes <= this.#max;
  }
}

/** Notifies waiting readers of progress. */
class ProgressSignal {
  #next: Deferred | null = null;

  /** Resolves with the next `notify`. */
  wait(): Promise<void> {
    this.#next ??= new Deferred();
    return this.#next.promise;
  }

  notify(): void {
    this.#next?.resolve();
    this.#next = null;
  }
}

const MAX_LOG_ENTRIES = 1024;

/** The newest entries of a running execution, in memory for readers of events. A reader that is further behind reads the store. */
class EntryLog {
  entries: JournalEntry[] = [];
  /** Number of entries that were dropped from the start of the log. */
  from = 0;

  /** Number of all entries, including the dropped ones. */
  get count(): number {
    return this.from + this.entries.length;
  }

  /** Drops the older half when the log is long and that half is on disk. @param committed entries that are on disk */
  trim(committed: number): void {
    while (this.entries.length > MAX_LOG_ENTRIES && committed - this.from > MAX_LOG_ENTRIES / 2) {
      this.entries.splice(0, MAX_LOG_ENTRIES / 2);
      this.from += MAX_LOG_ENTRIES / 2;
    }
  }
}

/** What a replay takes over, as JSON, and `ExecutionStart.trace` of what it replays. */
export interface ReplaySource {
  readonly trace: string | undefined;
  readonly kept: string;
  /** Undefined for a short one. */
  readonly input: string | undefined;
}

export class Execution {
  readonly state: JournalState;
  readonly definition: WorkflowDefinition;
  readonly lifetime = new Lifetime(null);
  readonly takenUp: OpenTries | null;
  readonly slice = new Slice();
  caller: ExecutionCaller;
  /** Callbacks that continue branches which wait while others run, by the path of the step that waits. */
  readonly resumable = new Map<StepPath, () => void>();
  /** Null when the execution is not traced. */
  spans: ExecutionSpans | null = null;
  readonly #environment: ExecutionEnvironment;
  readonly #rows: ExecutionRows;
  readonly #commits: WaitingCommits;
  /** Entries that are not on disk yet, as text. */
  #pending: string[] = [];
  /** Size of its start and all entries. */
  readonly #size: RecordedSize;
  readonly #log = new EntryLog();
  #committed = 0;
  /** The commit in progress, and the next one with what was appended meanwhile. */
  #writing: Promise<void> | null = null;
  #nextWrite: Promise<void> | null = null;
  readonly #progress = new ProgressSignal();
  isAtRest = false;
  /** Set by the engine: another process may begin one with this id at the same time, so nothing outside is asked before it is recorded. */
  isContested = false;
  #known: KnownValues | null = null;
  /** Its input as JSON, in a replay of a large one. */
  readonly #texts: ReadonlyMap<unknown, string> | undefined;
  /** Resolves when somebody else's commit has ended it, or has failed; null while nobody has tried that. */
  ending: Promise<unknown> | null = null;
  /** Set when it cannot end in that commit, because it is not this process's any more, or its number or id is taken. */
  endLost: Error | null = null;
  /** Set by the engine: resolves when the execution has settled, rejects when this process gives it up. */
  settled: Promise<void> = Promise.resolve();

  constructor(
    state: JournalState,
    definition: WorkflowDefinition,
    caller: ExecutionCaller,
    environment: ExecutionEnvironment,
    stored: StoredRows | null,
    source?: ReplaySource,
  ) {
    this.state = state;
    this.definition = definition;
    this.caller = caller;
    this.#environment = environment;
    this.#commits = new WaitingCommits(this, environment.store);
    const startText = textOfStart(state.start, source);
    this.#rows = new ExecutionRows(state.start, startText, environment);
    this.#size = new RecordedSize(environment.maxBytes);
    this.#size.add(startText);
    // In the memory of that text, and not of the row that it came from.
    if (source?.input !== undefined)
      this.#texts = new Map([[state.start.input, startText.slice(-1 - source.input.length, -1)]]);
    this.takenUp = stored === null ? null : new OpenTries(state);
    if (stored === null) return;
    const { loaded, found } = stored;
    const { openRow, recordRow } = found;
    this.#size.add(this.#rows.load(loaded.first, loaded.rows));
    this.#size.add(loaded.journalBytes);
    this.#log.entries = [...loaded.entries];
    this.#committed = loaded.entries.length;
    if (openRow !== null) this.#rows.revision = openRow.revision;
    else if (recordRow !== null) this.#reopen(recordRow, loaded.tail);
  }

  /** Prepares a resume: with the first commit the entries that the record row holds move into the journal. */
  #reopen(recordRow: Row, tail: readonly JournalEntry[]): void {
    this.#pending = tail.map((entry) => JSON.stringify(entry));
    for (const text of this.#pending) this.#size.add(text);
    this.#rows.reopen(reopeningCommit(this.state, recordRow));
  }

  /** Whether the store knows that the execution runs here, or that it has settled. */
  get isRecorded(): boolean {
    return this.isAtRest || this.#rows.hasBegun;
  }

  /** Revision of its open row, which stop requests name. */
  get revision(): number {
    return this.#rows.revision;
  }

  get lease(): Lease | null {
    return this.#environment.lease;
  }

  /** Set by the engine when this process has given the execution up before it settled. */
  abandoned = false;

  /** Whether another process may have it: then this one knows only what was so before. */
  get mayBeElsewhere(): boolean {
    const { lease } = this;
    return lease !== null && this.isRecorded && (this.lifetime.stopped?.kind === "lost" || !lease.isHeld());
  }

  /** How many entries have to be written. */
  get unwritten(): number {
    return this.#pending.length;
  }

  /** How many entries are on disk. */
  get committed(): number {
    return this.#committed;
  }

  /** The values that its journal contains. */
  get known(): KnownValues {
    this.#known ??= new KnownValues(this.state);
    return this.#known;
  }

  /** The entries that are still in memory, and how many came before them. */
  get log(): { from: number; entries: readonly JournalEntry[] } {
    return this.#log;
  }

  /**
   * Records an entry. One that exceeds the size limit is not recorded and stops the execution, except for the entry that settles it.
   *
   * @param text the entry as JSON, if the caller has it already
   */
  append(entry: JournalEntry, text: string = JSON.stringify(entry)): void {
    if (!this.#size.add(text) && STATUS_AFTER[entry[0]] === undefined) {
      if (this.lifetime.stopped?.kind !== "size") this.#environment.tooLarge?.();
      this.lifetime.stop(this.#size.tooLarge);
      return;
    }
    this.#add(entry, text);
  }

  #add(entry: JournalEntry, text: string): void {
    applyEntry(this.state, entry);
    this.spans?.entry(entry, this.state);
    countStep(this.definition.meter, entry);
    this.#log.entries.push(entry);
    this.#pending.push(text);
    this.slice.add(text.length);
  }

  /** Resolves when everything that was appended is on disk. Rejects when that can never be: another process has the execution. */
  flush(): Promise<void> {
    if (this.#environment.volatile && !this.#rows.isReopening) {
      this.#rows.begin();
      this.#onCommitted(this.#log.count);
      return RESOLVED;
    }
    if (this.#nextWrite !== null) return this.#nextWrite;
    if (this.#pending.length === 0) return this.#writing ?? RESOLVED;
    if (this.#writing === null) return this.#write();
    this.#nextWrite = this.#writing.then(() => this.#write());
    return this.#nextWrite;
  }

  /** As `settled`, but rejects when the store cannot take a commit. The execution itself waits until the store is back. */
  outcome(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.settled.then(resolve, reject);
      this.#commits.onFailure(reject);
    });
  }

  /** Resolves when more entries are on disk, when the execution settles, and when it is given up. */
  progress(): Promise<void> {
    return this.#progress.wait();
  }

  notifyReaders(): void {
    this.#progress.notify();
  }

  stop(stop: Stop): void {
    this.lifetime.stop(stop);
  }

  #write(): Promise<void> {
    this.#nextWrite = null;
    if (this.isAtRest) return RESOLVED;
    const texts = this.#pending;
    const { count } = this.#log;
    this.#pending = [];
    this.#writing = this.#commits.commit(this.#rows.entries(texts), this.#rows.isInDoubt).then((revision) => {
      this.#rows.entered(texts, revision);
      const { userId } = this.state.start;
      if (this.#environment.store.isOverfull?.(userId)) this.lifetime.stop(USER_HAS_TOO_MUCH);
      this.#onCommitted(count);
    });
    return this.#writing;
  }

  /** Writes the record row, including the entries that are not on disk yet, and removes the open row. */
  async writeRecord(): Promise<void> {
    const values = this.#size.isLarge
      ? await valuesInSlices(this.state.values.values(), this.slice, this.#texts)
      : undefined;
    while (this.#nextWrite !== null || this.#writing !== null) await (this.#nextWrite ?? this.#writing);
    const texts = this.#pending;
    this.#pending = [];
    const commit = this.#rows.rest(this.state, this.definition.outline, texts, values);
    const { count } = this.#log;
    await this.#commits.commit(commit, this.#rows.isInDoubt);
    this.#rows.rested();
    this.isAtRest = true;
    this.#onCommitted(count);
  }

  /**
   * Ends with these entries in somebody else's commit: `store` is given what belongs to it. Nobody sees the entries before that.
   *
   * @returns whether it has ended: not when nothing was committed, or when the entries are more than it may record
   * @throws what `store` does; CommitConflict when the execution cannot end here any more
   */
  async endWith(entries: () => readonly JournalEntry[], store: (joined: JoinedChanges) => Promise<void>) {
    while (this.#nextWrite !== null || this.#writing !== null) await (this.#nextWrite ?? this.#writing);
    const added = entries();
    const texts = added.map((entry) => JSON.stringify(entry));
    if (!this.#size.fits(texts)) return false;
    const state = added.reduce(applyEntry, copyOfState(this.state));
    const { outline } = this.definition;
    const rows = this.#rows;
    // Nothing else is written before this has ended.
    const pending = this.#pending;
    let isTried = false;
    const committed = () => {
      for (const [index, entry] of added.entries()) this.#add(entry, texts[index]!);
      this.#pending = [];
      rows.rested();
      this.isAtRest = true;
      this.#onCommitted(this.#log.count);
    };
    const joined: JoinedChanges = {
      get changes() {
        // An earlier try has failed, and may have happened.
        if (isTried) rows.isInDoubt = true;
        isTried = true;
        // The last part names the ids of the messages, which are known when the commit is made.
        texts[0] = JSON.stringify(added[0]);
        return rows.rest(state, outline, [...pending, ...texts]);
      },
      committed,
      lost: (conflict) => new EndLost(conflict),
    };
    const ended = store(joined);
    const over = () => {
      this.#writing = null;
    };
    this.#writing = ended.then(over, over);
    try {
      await ended;
    } catch (error) {
      rows.isInDoubt ||= isStoreUnavailable(error);
      if (!(error instanceof EndLost)) throw error;
      const { conflict, message: reason } = error;
      this.endLost = rows.isInDoubt && !this.isRecorded ? endUnknown(conflict) : conflict;
      this.lifetime.stop({ kind: "lost", reason, gracePeriod: 0 });
      throw this.endLost;
    }
    return this.isAtRest;
  }

  /** Goes back to the state on disk, because what came after it cannot be recorded. */
  async rollBack(): Promise<void> {
    const { start } = this.state;
    this.#pending = [];
    this.#writing = null;
    this.#nextWrite = null;
    const { from, entries: kept } = this.#log;
    kept.length = this.#committed - from;
    const entries = from === 0 ? kept : await readEntries(this.#environment.store, start, this.#committed);
    Object.assign(this.state, stateFromJournal(start, entries));
  }

  #onCommitted(count: number): void {
    this.#writing = null;
    this.#committed = count;
    if (!this.#environment.volatile) this.#log.trim(count);
    this.notifyReaders();
    // Wakes readers in other processes.
    this.#environment.store.wake?.(openExecutionKey(this.state.start.number));
  }
}

const RESOLVED = Promise.resolve();

const USER_HAS_TOO_MUCH: Stop = {
  kind: "size",
  reason: "this user has stored more than server.limits.stored allows",
  gracePeriod: 0,
};

function textOfStart(start: ExecutionStart, source: ReplaySource | undefined): string {
  if (source === undefined) return JSON.stringify(start);
  const { replay, input, ...rest } = start;
  const { kept: _, ...others } = replay!;
  const { kept, input: inputText = entryJson(input) } = source;
  return `${JSON.stringify(rest).slice(0, -1)},"replay":${JSON.stringify(others).slice(0, -1)},"kept":${kept}},"input":${inputText}}`;
}
