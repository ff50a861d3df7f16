/** Log lines for people at a terminal: time, level, event, subject. Elsewhere the log is JSON. */
import { LEVELS, type LogEntry, levelRank, parseLogEntry } from "./log-line.ts";

/** `logs.format` of the manifest. */
export type LogFormat = "auto" | "json" | "text";

/** The subjects of a line, which come first and in this order. */
const SUBJECTS: readonly (readonly [binding: string, name: string])[] = [
  ["agentId", "agent"],
  ["workflowId", "workflow"],
  ["executionId", "execution"],
  ["stepId", "step"],
  ["tool", "tool"],
  ["model", "model"],
  ["conversationId", "conversation"],
  ["userId", "user"],
];
/** Bindings that are redundant, or useful only for programs. */
const LEFT_OUT: ReadonlySet<string> = new Set(["timestamp", "level", "msg", "spanId", "cut"]);
/** Bindings that are shown only for problems. */
const FOR_PROBLEMS: ReadonlySet<string> = new Set(["requestId", "traceId"]);
/** Errors that are mistakes in code, for which the stack is shown; not so for errors of tools or providers. */
const MISTAKES: ReadonlySet<string> = new Set([
  "TypeError",
  "ReferenceError",
  "RangeError",
  "SyntaxError",
  "AssertionError",
]);

const MAX_VALUE_CHARACTERS = 200;
const MAX_MESSAGE_CHARACTERS = 4_000;
const MAX_STACK_LINES = 6;
const WARN = LEVELS.indexOf("warn");
const FATAL = LEVELS.indexOf("fatal");

/** Colours by level. */
const COLOURS = [90, 90, 36, 33, 31, 31];
const DIM = 2;

/** Characters that control terminals or change the direction of text: a client may have written them. */
const CONTROLS = /[\p{Cc}\p{Bidi_Control}\u2028\u2029]/gu;
const escaped = (text: string): string =>
  text.replace(CONTROLS, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`);

/** Indents the lines of a message after the first, so that none of them looks like a log line. */
const indented = (text: string): string => text.split(/\r?\n/).map(escaped).join("\n    ");

const shortened = (text: string, most: number): string => (text.length > most ? `${text.slice(0, most)}...` : text);

/** The format of lines for an output. */
export function lineFormat(
  format: LogFormat,
  { isTerminal, colours }: { isTerminal: boolean; colours: boolean },
): (line: string) => string {
  const isForPeople = format === "text" || (format === "auto" && isTerminal);
  if (!isForPeople) return (line) => line;
  return (line) => terminalLine(line, isTerminal && colours);
}

/** @param line of the log, already without secrets */
function terminalLine(line: string, colours: boolean): string {
  const paint = (code: number, text: string) => (colours ? `\u001b[${code}m${text}\u001b[0m` : text);
  const rank = levelRank(line);
  const entry = parseLogEntry(line);
  const level = paint(COLOURS[rank]!, LEVELS[rank]!.toUpperCase().padEnd(5));
  const about = factsOf(entry, rank);
  const facts = about === "" ? "" : `  ${paint(DIM, about)}`;
  const message = indented(shortened(entry.msg, MAX_MESSAGE_CHARACTERS));
  const head = `${paint(DIM, localTime(entry.timestamp))} ${level} ${message}${facts}`;
  return `${[head, ...errorLines(entry, rank)].join("\n    ")}\n`;
}

/** Time of day with milliseconds, in the time zone of the terminal. */
function localTime(timestamp: string): string {
  const time = new Date(timestamp);
  const two = (value: number) => String(value).padStart(2, "0");
  const seconds = `${two(time.getSeconds())}.${String(time.getMilliseconds()).padStart(3, "0")}`;
  return `${two(time.getHours())}:${two(time.getMinutes())}:${seconds}`;
}

function factsOf(entry: LogEntry, rank: number): string {
  const subjects = new Set(SUBJECTS.map(([binding]) => binding));
  const others = Object.keys(entry).filter(
    (name) =>
      !subjects.has(name) &&
      !LEFT_OUT.has(name) &&
      !isError(name, entry[name]) &&
      (rank >= WARN || !FOR_PROBLEMS.has(name)),
  );
  return [...SUBJECTS, ...others.map((name) => [name, name] as const)]
    .filter(([binding]) => entry[binding] !== undefined)
    .map(([binding, name]) => `${escaped(name)}=${valueText(entry[binding])}`)
    .join(" ");
}

/** Whether a value is an error, which is shown on lines of its own. Plugins may use these names for plain texts, too. */
const isError = (name: string, value: unknown): boolean =>
  (name === "err" || name === "error") && typeof value === "object";

function valueText(value: unknown): string {
  const text = typeof value === "string" && /^[^\s"=]+$/.test(value) ? value : JSON.stringify(value);
  return escaped(shortened(text, MAX_VALUE_CHARACTERS));
}

/** The details of an error beyond the message of the line: its causes, and the stack of a mistake in code. */
function errorLines({ msg, err, error = err }: LogEntry, rank: number): string[] {
  const lines: string[] = [];
  let isCause = false;
  for (let each = error; typeof each === "object" && each !== null; isCause = true) {
    const { type, message, code, cause } = each as Record<string, unknown>;
    const text = String(message ?? "");
    const said = `${type === undefined ? "" : `${type}: `}${text}${code === undefined ? "" : ` (${code})`}`;
    if (!msg.includes(text))
      lines.push(`${isCause ? "because of " : ""}${indented(shortened(said, MAX_MESSAGE_CHARACTERS))}`);
    each = cause;
  }
  const { type, stack } = (typeof error === "object" && error !== null ? error : {}) as Record<string, unknown>;
  if (typeof stack !== "string" || (rank < FATAL && !MISTAKES.has(String(type)))) return lines;
  const places = stack.split("\n").filter((place) => /^\s+at /.test(place) && !place.includes("node:internal"));
  return [...lines, ...places.slice(0, MAX_STACK_LINES).map((place) => `  ${escaped(place.trim())}`)];
}
