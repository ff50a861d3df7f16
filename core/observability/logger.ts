/** pino, set up so that no secret and no prompt reaches a log. */
import { type DestinationStream, type Logger, pino } from "pino";
import { messageOf } from "../errors.ts";

const SECRETS = ["authorization", "cookie", "apiKey", "api_key", "secret", "token", "password", "x-console-access-key"];

/** A logger must not fail on what plugins throw, whatever it does when it is looked at. */
function describe(error: unknown, mask: (text: string) => string): unknown {
  try {
    return describeError(error, (text) => mask(redact(text)), 0);
  } catch {
    return { type: "unknown", message: mask(redact(messageOf(error))) };
  }
}

/** Errors of model clients carry whole prompts and headers: only what helps to find the fault is kept. */
function describeError(error: unknown, clean: (text: string) => string, depth: number): unknown {
  if (!(error instanceof Error)) return error;
  const { statusCode, code } = error as { statusCode?: unknown; code?: unknown };
  const described: Record<string, unknown> = { type: error.name, message: clean(error.message) };
  if (statusCode !== undefined) described.statusCode = statusCode;
  if (code !== undefined) described.code = code;
  if (error.stack !== undefined && depth === 0) described.stack = clean(error.stack);
  if (error.cause !== undefined && depth < 4) described.cause = describeError(error.cause, clean, depth + 1);
  return described;
}

/** Credentials in URLs and headers quoted by a message: `?key=`, `&token=`, `Bearer`. */
export function redact(text: string): string {
  return text
    .replace(/([?&](?:key|token|api_key)=)[^&\s"']+/gi, "$1***")
    .replace(/(\bBearer\s+)[\w.~+/=-]+/gi, "$1***");
}

/** @param mask hides further texts in what errors say, such as secrets of the manifest. */
export function createLogger(
  level: string,
  destination?: DestinationStream,
  mask: (text: string) => string = (text) => text,
): Logger {
  const paths = SECRETS.flatMap((name) => (name.includes("-") ? [`["${name}"]`, `*["${name}"]`] : [name, `*.${name}`]));
  const options = {
    level,
    base: undefined,
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label: string) => ({ level: label }) },
    redact: { paths, censor: "***" },
    serializers: { err: (error: unknown) => describe(error, mask) },
  };
  return destination === undefined ? pino(options) : pino(options, destination);
}
