/** A log line as the endpoints show it. Its level and time come first, and are read without parsing the line. */

/** Levels from the least to the most severe, with pino's names. */
export const LEVELS = ["trace", "debug", "info", "warn", "error", "fatal"] as const;
export type Level = (typeof LEVELS)[number];

/** `{timestamp, level, msg}` and the bindings of the line. */
export interface LogEntry {
  timestamp: string;
  level: Level;
  msg: string;
  [binding: string]: unknown;
}

/** The line as a log record of OpenTelemetry (Logs Data Model). */
export interface LogRecord {
  timestamp: string;
  severityNumber: number;
  severityText: string;
  body: string;
  traceId?: string;
  spanId?: string;
  attributes: Record<string, unknown>;
}

const BEFORE_LEVEL = '{"level":"'.length;
const LEVEL_TO_TIME = '","time":"'.length;
const TIME_LENGTH = "2026-11-20T09:30:00.000Z".length;

/** The severity, from 0 for trace to 5 for fatal. */
export function levelRank(line: string): number {
  const letter = line[BEFORE_LEVEL];
  return LEVELS.findIndex((level) => level[0] === letter);
}

/** The time as ISO 8601 with milliseconds, UTC: such times compare as text. */
function lineTime(line: string): string {
  const at = BEFORE_LEVEL + LEVELS[levelRank(line)]!.length + LEVEL_TO_TIME;
  return line.slice(at, at + TIME_LENGTH);
}

/** The part that the log itself wrote, `{"level":"info","time":"..."`, even if a plugin has bound these names. */
export function logLineHead(line: string): string {
  return line.slice(0, BEFORE_LEVEL + LEVELS[levelRank(line)]!.length + LEVEL_TO_TIME + TIME_LENGTH + 1);
}

/** Joins the head and the other fields to a line. */
export function joinLine(head: string, rest: unknown): string {
  const text = JSON.stringify(rest);
  return text === "{}" ? `${head}}` : `${head},${text.slice(1)}`;
}

const HEAD = /^\{"level":(?:"([^"]*)"|(\d+)),"time":"([^"]{24})"/;

/** Replaces the level of a line by the nearest known one: a plugin may give its logger other levels, or write their numbers. */
export function withKnownLevel(line: string): string {
  const rank = levelRank(line);
  if (rank !== -1 && line.startsWith(`${LEVELS[rank]}","time":"`, BEFORE_LEVEL)) return line;
  const [, name, number, time = new Date().toISOString()] = HEAD.exec(line) ?? [];
  const level = LEVELS[Number(number) / 10 - 1] ?? "info";
  const { level: _level, time: _time, ...rest } = parseLine(line);
  return `${joinLine(`{"level":"${level}","time":"${time}"`, name === undefined ? rest : { levelName: name, ...rest })}\n`;
}

export function parseLogEntry(line: string): LogEntry {
  const { level: _level, time: _time, timestamp: _timestamp, msg = "", ...bindings } = parseLine(line);
  return { timestamp: lineTime(line), level: LEVELS[levelRank(line)]!, msg: String(msg), ...bindings };
}

/** Parses a line. A broken line of a plugin must not fail the whole list. */
function parseLine(line: string): Record<string, unknown> {
  try {
    return JSON.parse(line);
  } catch {
    return { msg: "a line that is not JSON" };
  }
}

export function logRecord({ timestamp, level, msg, traceId, spanId, err, ...bindings }: LogEntry): LogRecord {
  const record: LogRecord = {
    timestamp,
    // OpenTelemetry's numbers: 1 trace, 5 debug, 9 info, 13 warn, 17 error, 21 fatal.
    severityNumber: LEVELS.indexOf(level) * 4 + 1,
    severityText: level.toUpperCase(),
    body: msg,
    attributes: { ...entityAttributes(bindings), ...bindings, ...exceptionAttributes(err) },
  };
  if (typeof traceId === "string") record.traceId = traceId;
  if (typeof spanId === "string") record.spanId = spanId;
  return record;
}

/** The entity of a line; for an agent that runs in a workflow, the agent. */
function entityAttributes({ agentId, workflowId }: Record<string, unknown>): Record<string, unknown> {
  if (typeof agentId === "string") return { "entity.type": "agent", "entity.id": agentId };
  return typeof workflowId === "string" ? { "entity.type": "workflow", "entity.id": workflowId } : {};
}

function exceptionAttributes(err: unknown): Record<string, unknown> {
  if (typeof err !== "object" || err === null) return err === undefined ? {} : { err };
  const { type, message, stack, ...rest } = err as Record<string, unknown>;
  return {
    ...(type !== undefined && { "exception.type": type }),
    ...(message !== undefined && { "exception.message": message }),
    ...(stack !== undefined && { "exception.stacktrace": stack }),
    ...(Object.keys(rest).length > 0 && { err: rest }),
  };
}

/** The length to which long values are cut. */
const MAX_SHORT_VALUE_CHARACTERS = 1024;

/**
 * Cuts the long values of a line and marks it with `cut: true`.
 *
 * @param longest characters of the result; a line that is still longer keeps only its head and its message
 */
function shorten(line: string, longest: number): string {
  const { level: _level, time: _time, msg, err, ...bindings } = parseLine(line);
  const short: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(bindings)) if (typeof value !== "object") short[key] = cut(value);
  if (typeof err === "object" && err !== null) {
    const { type, message, stack } = err as Record<string, unknown>;
    short.err = { type: cut(type), message: cut(message), stack: cut(stack) };
  }
  const head = logLineHead(line);
  const text = joinLine(head, { ...short, msg: cut(msg), cut: true });
  return text.length <= longest ? text : joinLine(head, { msg: cut(msg), cut: true });
}

const cut = (value: unknown): unknown =>
  typeof value === "string" && value.length > MAX_SHORT_VALUE_CHARACTERS
    ? `${value.slice(0, MAX_SHORT_VALUE_CHARACTERS)}...`
    : value;

// Keeps the newest log lines for the endpoints that show them. They are kept as text, and parsed on request.

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
