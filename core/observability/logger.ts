/** Creates the pino logger, configured so that no secret and no prompt gets into the log. */
import { type DestinationStream, type Logger, pino } from "pino";
import { messageOf } from "../lib/errors.ts";
import { type LogRing, withKnownLevel } from "./log-line.ts";
import { LogText } from "./log-text.ts";

/** Plugins may throw anything, even objects whose getters throw: the logger must not fail on them. */
function describe(error: unknown): unknown {
  try {
    return describeError(error, 0);
  } catch {
    return { type: "unknown", message: messageOf(error) };
  }
}

/** Errors of model clients contain whole prompts and headers: only the parts that help to find the cause are logged. */
function describeError(error: unknown, depth: number): unknown {
  if (!(error instanceof Error)) return error;
  const { statusCode, code } = error as { statusCode?: unknown; code?: unknown };
  const described: Record<string, unknown> = { type: error.name, message: error.message };
  if (statusCode !== undefined) described.statusCode = statusCode;
  if (code !== undefined) described.code = code;
  if (error.stack !== undefined && depth === 0) described.stack = error.stack;
  if (error.cause !== undefined && depth < 4) described.cause = describeError(error.cause, depth + 1);
  return described;
}

interface LogTarget {
  /** Default: standard output. */
  destination?: DestinationStream | undefined;
  /** The secrets to hide; more may be added later. */
  text?: LogText;
  /** Keeps the written lines. */
  ring?: LogRing;
}

export function createLogger(level: string, { destination, text = new LogText(), ring }: LogTarget = {}): Logger {
  const options = {
    level,
    base: undefined,
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label: string) => ({ level: label }) },
    serializers: { err: describe, error: describe },
    hooks: {
      streamWrite(line: string): string {
        const clean = text.clean(withKnownLevel(line));
        ring?.push(clean);
        return clean;
      },
    },
  };
  return destination === undefined ? pino(options) : pino(options, destination);
}
