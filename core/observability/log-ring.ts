/** Keeps the newest log lines for the endpoints that show them. They are kept as text, and parsed on request. */
import { type LogEntry, levelRank, lineTime, parseLogEntry, shorten } from "./log-line.ts";

/** Most characters of all lines together. */
const MAX_CHARACTERS = 16 * 1024 * 1024;
/** Longest line; the long values of a longer one are cut. */
const MAX_LINE_CHARACTERS = 16 * 1024;
/** Approximate memory of a string in addition to its characters. */
const STRING_OVERHEAD = 32;

export class LogRing {
  #capacity: number;
  /** The lines from `#first` on, oldest first. */
  #lines: string[] = [];
  #first = 0;
  #characters = 0;
  /** Called with every line; null while there is no listener. */
  listener: ((line: string) => void) | null = null;

  /** @param capacity how many lines are kept; 0 for none */
  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  resize(capacity: number): void {
    this.#capacity = capacity;
    this.#evict();
  }

  get count(): number {
    return this.#lines.length - this.#first;
  }

  push(written: string): void {
    const line = written.length > MAX_LINE_CHARACTERS ? shorten(written, MAX_LINE_CHARACTERS) : written;
    if (this.#capacity > 0) {
      this.#lines.push(line);
      this.#characters += line.length + STRING_OVERHEAD;
      this.#evict();
    }
    this.listener?.(line);
  }

  /** Yields the newest line first. */
  *newest(): Generator<string> {
    for (let index = this.#lines.length - 1; index >= this.#first; index--) yield this.#lines[index]!;
  }

  #evict(): void {
    while (this.count > this.#capacity || this.#characters > MAX_CHARACTERS) {
      this.#characters -= this.#lines[this.#first]!.length + STRING_OVERHEAD;
      this.#lines[this.#first++] = "";
    }
    // Not with every line, because moving the rest takes time in proportion to its length.
    if (this.#first > 1024 && this.#first > this.#lines.length / 2) {
      this.#lines.splice(0, this.#first);
      this.#first = 0;
    }
  }
}

// Finds the log lines that match a filter.

export interface LogFilter {
  /** The least severe level to include, from 0 for trace to 5 for fatal. */
  readonly least?: number | undefined;
  /** ISO 8601 with milliseconds, UTC, inclusive. */
  readonly since?: string | undefined;
  readonly until?: string | undefined;
  /** Bindings that the line must have. */
  readonly bound?: readonly (readonly [name: string, value: string])[];
  /** The agent or the workflow of the line. */
  readonly entityId?: string | undefined;
  /** The user whose run wrote the line; null for a run that belongs to nobody. */
  readonly owner?: string | null | undefined;
  /** Text that the message or a bound value contains, ignoring case. */
  readonly search?: string | undefined;
}

/** The newest matching entries, and the number of all that match. */
export function findLines(ring: LogRing, filter: LogFilter, limit: number): { entries: LogEntry[]; total: number } {
  const entries: LogEntry[] = [];
  const { bound = [], entityId, owner, search } = filter;
  // Level and time can be checked without parsing the line.
  const isDecided = bound.length === 0 && entityId === undefined && owner === undefined && search === undefined;
  let total = 0;
  for (const line of ring.newest()) {
    if (!mayMatch(line, filter)) continue;
    if (isDecided && entries.length >= limit) {
      total++;
      continue;
    }
    const entry = parseLogEntry(line);
    if (!matchesEntry(entry, filter)) continue;
    total++;
    if (entries.length < limit) entries.push(entry);
  }
  return { entries, total };
}

/** False for most lines that do not match, without parsing them. */
export function mayMatch(line: string, { least = 0, since, until, bound = [], entityId, search }: LogFilter): boolean {
  if (levelRank(line) < least) return false;
  if (since !== undefined && lineTime(line) < since) return false;
  if (until !== undefined && lineTime(line) > until) return false;
  if (!bound.every(([name, value]) => line.includes(`${JSON.stringify(name)}:${JSON.stringify(value)}`))) return false;
  if (entityId !== undefined && !line.includes(`Id":${JSON.stringify(entityId)}`)) return false;
  return search === undefined || line.toLowerCase().includes(JSON.stringify(search.toLowerCase()).slice(1, -1));
}

export function matchesEntry(entry: LogEntry, { bound = [], entityId, owner, search }: LogFilter): boolean {
  if (!bound.every(([name, value]) => entry[name] === value)) return false;
  if (entityId !== undefined && entry.agentId !== entityId && entry.workflowId !== entityId) return false;
  if (owner !== undefined && !belongsTo(entry, owner)) return false;
  if (search === undefined) return true;
  const { timestamp: _timestamp, level: _level, ...searched } = entry;
  return contains(searched, search.toLowerCase());
}

/** Whether a line belongs to the owner. Lines that the service writes outside of runs belong to nobody. */
function belongsTo({ userId, agentId, executionId }: LogEntry, owner: string | null): boolean {
  if (owner !== null) return userId === owner;
  return userId === undefined && (agentId !== undefined || executionId !== undefined);
}

function contains(value: unknown, letters: string): boolean {
  if (typeof value === "string") return value.toLowerCase().includes(letters);
  return typeof value === "object" && value !== null && Object.values(value).some((item) => contains(item, letters));
}
