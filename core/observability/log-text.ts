/** Removes secrets from log lines: credentials, by their names and forms, and values that the manifest took from outside. */
import { isSecretName, MASK, secretPattern } from "../lib/secrets.ts";
import { cut, lookaheadFor } from "./content.ts";
import { joinLine, logLineHead } from "./log-line.ts";
import { BLANK, withoutCredentials } from "./redaction.ts";

/** Names of keys whose values are hidden, at any depth, ignoring case. */
const KEYS =
  "(?:proxy-)?authorization|(?:set-)?cookie|(?:x-)?api[-_]?key|x-console-access-key|(?:client[-_]?)?secret|secret[-_]?key|private[-_]?key|(?:access|refresh|id|session)?[-_]?token|password|passwd";
const SECRET_KEY = new RegExp(`^(?:${KEYS})$`, "i");

/** Credentials inside texts: in URLs, and in headers that a message quotes. */
const IN_QUERY =
  "[?&](?:(?:access|api|secret|private)?[-_]?key|(?:access|refresh|id|session|auth)?[-_]?token|(?:client[-_]?)?secret|password|passwd)=";
const IN_URL = new RegExp(`(${IN_QUERY})[^&\\s"']+`, "gi");
const BEFORE_AT = `:\\/\\/[^\\s/@:"'<>]{0,128}:`;
const PASSWORD = `[^\\s/@"'<>]{1,256}@`;
const OF_USER = new RegExp(`(${BEFORE_AT})${PASSWORD}`, "g");
const BEARER = /(\bBearer\s+)[\w.~+/=-]+/gi;

/** A line that matches must be parsed and cleaned: it has the name of a secret before a separator, or the prefix of a credential. */
const SUSPICIOUS = new RegExp(
  [
    "(?:authorization|cookie|passw(?:or)?d|passphrase|passcode|pwd|secrets?|token|key|key[-_]?id|credentials?|string|cvv|cvc|ssn|otp)[^\\w\\s]{0,16}[ \\t]{0,4}[:=]",
    "\\b(?:bearer|basic)\\s",
    "passw(?:or)?d is ",
    IN_QUERY,
    "\\beyJ[\\w-]{5}",
    `${BEFORE_AT}${PASSWORD}`,
    "-----BEGIN",
    "(?:sk|pk|rk|whsec|gh[opsur]|github_pat|glpat|xox[a-z]|xapp|hf|npm|gsk|xai|pplx|tvly|nvapi|shpat|dop_v1|r8)[-_][\\w-]{12}",
    "(?:AKIA|ASIA|AIza|ya29\\.)[\\w-]{12}",
  ].join("|"),
  "i",
);

/** Bindings by which log lines are found. They are kept even when a value from the environment is the same text. */
const NAME_BINDINGS = new Set([
  "requestId",
  "operation",
  "method",
  "agentId",
  "workflowId",
  "executionId",
  "conversationId",
  "userId",
  "stepId",
  "tool",
  "traceId",
  "spanId",
]);

/** A longer line is cut before it is cleaned, so that the cost of a line is bounded. */
const MAX_LINE_CHARACTERS = 64 * 1024;
/** What is left of each text of such a line, and of names. */
const MAX_TEXT_CHARACTERS = 8 * 1024;
const MAX_NAME_CHARACTERS = 256;

/** Characters of the quotes and the comma around a value. */
const VALUE_OVERHEAD = 3;

/** How many characters may still be added to a line. */
interface Room {
  characters: number;
  /** Most characters of each text. */
  readonly text: number;
}

const UNLIMITED: Room = { characters: Number.POSITIVE_INFINITY, text: Number.POSITIVE_INFINITY };

const MAX_DEPTH = 32;

/** Cleans lines, which are JSON texts. The head with level and time is written by the log itself and needs no cleaning. */
export class LogText {
  #secrets: readonly string[] = [];
  #known: RegExp | null = null;
  #lookahead = lookaheadFor([]);

  /** @param secrets texts that are hidden from now on, such as values from the environment */
  hide(secrets: readonly string[]): void {
    this.#secrets = [...new Set([...this.#secrets, ...secrets])];
    this.#lookahead = lookaheadFor(this.#secrets);
    this.#known = secretPattern(this.#secrets);
  }

  /** Returns the line without secrets. Most have none: they cost one match and are returned unchanged. One that is cut gets `cut: true`. */
  clean(line: string): string {
    const long = line.length > MAX_LINE_CHARACTERS;
    if (!long && !SUSPICIOUS.test(line) && (this.#known === null || line.search(this.#known) < 0)) return line;
    const head = logLineHead(line);
    const room: Room = long ? { characters: MAX_LINE_CHARACTERS, text: MAX_TEXT_CHARACTERS } : { ...UNLIMITED };
    try {
      const { level: _level, time: _time, msg: given, ...rest } = JSON.parse(line);
      // The message comes last in a line, but is the most important part: it gets its room first.
      const msg = this.#cleanValue(given, 1, room);
      return `${joinLine(head, { ...(this.#cleanValue(rest, 0, room) as object), msg, ...(long && { cut: true }) })}\n`;
    } catch {
      return `${joinLine(head, { msg: "a line that could not be made safe to show" })}\n`;
    }
  }

  #cleanValue(value: unknown, depth: number, room: Room): unknown {
    room.characters -= VALUE_OVERHEAD;
    if (typeof value === "string") {
      const clean = cut(value, Math.max(0, Math.min(room.text, room.characters)), this.#cleanText, this.#lookahead);
      room.characters -= clean.length;
      return clean;
    }
    if (typeof value !== "object" || value === null) return value;
    if (depth > MAX_DEPTH) return MASK;
    if (Array.isArray(value)) return this.#cleanList(value, depth, room);
    const copy: Record<string, unknown> = Object.create(null);
    for (const [name, item] of Object.entries(value)) {
      if (room.characters <= 0) break;
      const key = name.length > room.text ? name.slice(0, MAX_NAME_CHARACTERS) : name;
      room.characters -= key.length;
      if (SECRET_KEY.test(key) || isSecretName(key)) copy[key] = MASK;
      else copy[key] = depth === 0 && isNameBinding(key, item) ? item : this.#cleanValue(item, depth + 1, room);
    }
    return copy;
  }

  #cleanList(values: readonly unknown[], depth: number, room: Room): unknown[] {
    const copy: unknown[] = [];
    for (const value of values) {
      if (room.characters <= 0) break;
      copy.push(this.#cleanValue(value, depth + 1, room));
    }
    return copy;
  }

  readonly #cleanText = (text: string): string => {
    const known = this.#known === null ? text : text.replace(this.#known, MASK);
    const clean = known.replace(IN_URL, `$1${MASK}`).replace(OF_USER, `$1${MASK}@`).replace(BEARER, `$1${MASK}`);
    return withoutCredentials(clean).replaceAll(BLANK, MASK);
  };
}

const isNameBinding = (key: string, value: unknown): boolean =>
  NAME_BINDINGS.has(key) && typeof value === "string" && value.length <= MAX_NAME_CHARACTERS;
