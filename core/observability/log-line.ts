/** A line of the log as the endpoints show it. Its level and its time stand at its beginning, and are read in place. */

/** From the least to the gravest, as pino names them. */
export const LEVELS = ["trace", "debug", "info", "warn", "error", "fatal"] as const;
export type Level = (typeof LEVELS)[number];

/** `{timestamp, level, msg}` and what was bound to the line. */
export interface LogEntry {
  timestamp: string;
  level: Level;
  msg: string;
  [binding: string]: unknown;
}

/** OpenTelemetry's form of it (Logs Data Model). */
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

/** 0 for trace to 5 for fatal. */
export function rankOf(line: string): number {
  const letter = line[BEFORE_LEVEL];
  return LEVELS.findIndex((level) => level[0] === letter);
}

/** ISO 8601 with milliseconds, UTC: texts that can be compared. */
export function timeOf(line: string): string {
  const at = BEFORE_LEVEL + LEVELS[rankOf(line)]!.length + LEVEL_TO_TIME;
  return line.slice(at, at + TIME_LENGTH);
}

/** `{"level":"info","time":"..."`: what the log itself wrote, whatever a plugin has bound to these names. */
export function logLineHead(line: string): string {
  return line.slice(0, BEFORE_LEVEL + LEVELS[rankOf(line)]!.length + LEVEL_TO_TIME + TIME_LENGTH + 1);
}

/** A line of a head and the rest. */
export function headed(head: string, rest: unknown): string {
  const text = JSON.stringify(rest);
  return text === "{}" ? `${head}}` : `${head},${text.slice(1)}`;
}

const HEAD = /^\{"level":(?:"([^"]*)"|(\d+)),"time":"([^"]{24})"/;

/** A plugin may give its logger levels of its own, or their numbers: its line becomes one of a level that is known here. */
export function withKnownLevel(line: string): string {
  const rank = rankOf(line);
  if (rank !== -1 && line.startsWith(`${LEVELS[rank]}","time":"`, BEFORE_LEVEL)) return line;
  const [, name, number, time = new Date().toISOString()] = HEAD.exec(line) ?? [];
  const level = LEVELS[Number(number) / 10 - 1] ?? "info";
  const { level: _level, time: _time, ...rest } = parsed(line);
  return `${headed(`{"level":"${level}","time":"${time}"`, name === undefined ? rest : { levelName: name, ...rest })}\n`;
}

export function parseLogEntry(line: string): LogEntry {
  const { level: _level, time: _time, timestamp: _timestamp, msg = "", ...bindings } = parsed(line);
  return { timestamp: timeOf(line), level: LEVELS[rankOf(line)]!, msg: String(msg), ...bindings };
}

/** One line that a plugin has spoilt must not take the others with it. */
function parsed(line: string): Record<string, unknown> {
  try {
    return JSON.parse(line);
  } catch {
    return { msg: "a line that is not JSON" };
  }
}

/** OpenTelemetry's numbers: 1 trace, 5 debug, 9 info, 13 warn, 17 error, 21 fatal. */
export const severityOf = (rank: number): number => rank * 4 + 1;

export function logRecord({ timestamp, level, msg, traceId, spanId, err, ...bindings }: LogEntry): LogRecord {
  const record: LogRecord = {
    timestamp,
    severityNumber: severityOf(LEVELS.indexOf(level)),
    severityText: level.toUpperCase(),
    body: msg,
    attributes: { ...entityOf(bindings), ...bindings, ...exceptionOf(err) },
  };
  if (typeof traceId === "string") record.traceId = traceId;
  if (typeof spanId === "string") record.spanId = spanId;
  return record;
}

/** Of a run of an agent in a workflow, the agent: it is what speaks. */
function entityOf({ agentId, workflowId }: Record<string, unknown>): Record<string, unknown> {
  if (typeof agentId === "string") return { "entity.type": "agent", "entity.id": agentId };
  return typeof workflowId === "string" ? { "entity.type": "workflow", "entity.id": workflowId } : {};
}

function exceptionOf(err: unknown): Record<string, unknown> {
  if (typeof err !== "object" || err === null) return err === undefined ? {} : { err };
  const { type, message, stack, ...rest } = err as Record<string, unknown>;
  return {
    ...(type !== undefined && { "exception.type": type }),
    ...(message !== undefined && { "exception.message": message }),
    ...(stack !== undefined && { "exception.stacktrace": stack }),
    ...(Object.keys(rest).length > 0 && { err: rest }),
  };
}

/** Characters that are left of a long value. */
const MAX_SHORT_VALUE_CHARACTERS = 1024;

/**
 * A line whose long values are cut, as `cut: true` says.
 *
 * @param longest characters that it may have then; what still is longer keeps its beginning and its message alone
 */
export function shorten(line: string, longest: number): string {
  const { level: _level, time: _time, msg, err, ...bindings } = parsed(line);
  const short: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(bindings)) if (typeof value !== "object") short[key] = cut(value);
  if (typeof err === "object" && err !== null) {
    const { type, message, stack } = err as Record<string, unknown>;
    short.err = { type: cut(type), message: cut(message), stack: cut(stack) };
  }
  const head = logLineHead(line);
  const text = headed(head, { ...short, msg: cut(msg), cut: true });
  return text.length <= longest ? text : headed(head, { msg: cut(msg), cut: true });
}

const cut = (value: unknown): unknown =>
  typeof value === "string" && value.length > MAX_SHORT_VALUE_CHARACTERS
    ? `${value.slice(0, MAX_SHORT_VALUE_CHARACTERS)}...`
    : value;
