/** What no line of the log may hold: credentials, by the names and forms that they have, and values of the manifest's own. */
import { behindCut, cut } from "./content.ts";
import { headed, logLineHead } from "./log-line.ts";
import { BLANK, isSecretName, withoutCredentials } from "./redaction.ts";

/** Keys whose values are hidden, at any depth, in any case. */
const KEYS =
  "(?:proxy-)?authorization|(?:set-)?cookie|(?:x-)?api[-_]?key|x-console-access-key|(?:client[-_]?)?secret|secret[-_]?key|private[-_]?key|(?:access|refresh|id|session)?[-_]?token|password|passwd";
const SECRET_KEY = new RegExp(`^(?:${KEYS})$`, "i");

/** Credentials inside texts: in URLs, and in headers that a message repeats. */
const IN_QUERY =
  "[?&](?:(?:access|api|secret|private)?[-_]?key|(?:access|refresh|id|session|auth)?[-_]?token|(?:client[-_]?)?secret|password|passwd)=";
const IN_URL = new RegExp(`(${IN_QUERY})[^&\\s"']+`, "gi");
const BEFORE_AT = `:\\/\\/[^\\s/@:"'<>]{0,128}:`;
const PASSWORD = `[^\\s/@"'<>]{1,256}@`;
const OF_USER = new RegExp(`(${BEFORE_AT})${PASSWORD}`, "g");
const BEARER = /(\bBearer\s+)[\w.~+/=-]+/gi;

/** Of what has to be looked at more closely: names of secret values before a sign, and beginnings of credentials. */
const SUSPICIOUS = [
  "(?:authorization|cookie|passw(?:or)?d|passphrase|passcode|pwd|secrets?|token|key|key[-_]?id|credentials?|string|cvv|cvc|ssn|otp)[^\\w\\s]{0,16}[ \\t]{0,4}[:=]",
  "\\b(?:bearer|basic)\\s",
  "passw(?:or)?d is ",
  IN_QUERY,
  "\\beyJ[\\w-]{5}",
  `${BEFORE_AT}${PASSWORD}`,
  "-----BEGIN",
  "(?:sk|pk|rk|whsec|gh[opsur]|github_pat|glpat|xox[a-z]|xapp|hf|npm|gsk|xai|pplx|tvly|nvapi|shpat|dop_v1|r8)[-_][\\w-]{12}",
  "(?:AKIA|ASIA|AIza|ya29\\.)[\\w-]{12}",
].join("|");

/** Names of things are what a line is found by: a value from the environment that is one too is no secret there. */
const NAMES = new Set([
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

/** Characters of a line. A longer one is cut before anything looks at it, so that what a line costs has a bound. */
const MAX_LINE_CHARACTERS = 64 * 1024;
/** Characters that are left of each text of such a line, of the name of a value, and of a name that a line is found by. */
const MAX_TEXT_CHARACTERS = 8 * 1024;
const MAX_NAME_CHARACTERS = 256;

/** Characters around a value: quotes and a comma. */
const VALUE_OVERHEAD = 3;

/** What is left of the room for one line. */
interface Room {
  characters: number;
  /** Characters of each text. */
  readonly text: number;
}

const UNLIMITED: Room = { characters: Number.POSITIVE_INFINITY, text: Number.POSITIVE_INFINITY };

const MASK = "***";
/** Shorter ones are hidden only where they are a whole value: they are in half of all words. */
const MIN_SECRET_LENGTH = 4;
const MAX_DEPTH = 32;

/** A line is a text of JSON; its beginning, level and time, is what the log itself wrote. */
export class LogText {
  #secrets: readonly string[] = [];
  #suspicious = new RegExp(SUSPICIOUS, "i");
  #behind = behindCut([]);

  /** @param secrets texts that are hidden from now on, such as what the manifest took from the environment */
  hide(secrets: readonly string[]): void {
    // The longest first: one may be a part of another.
    this.#secrets = [...new Set([...this.#secrets, ...secrets])].filter(Boolean).sort((a, b) => b.length - a.length);
    this.#behind = behindCut(this.#secrets);
    // As a line has them.
    const forms = this.#secrets.map((secret) =>
      secret.length < MIN_SECRET_LENGTH ? JSON.stringify(secret) : JSON.stringify(secret).slice(1, -1),
    );
    this.#suspicious = new RegExp([SUSPICIOUS, ...forms.map(literal)].join("|"), "i");
  }

  /** A line of the log, itself where it has nothing to hide: most lines cost one look. One that is cut has `cut: true`. */
  clean(line: string): string {
    const long = line.length > MAX_LINE_CHARACTERS;
    if (!long && !this.#suspicious.test(line)) return line;
    const head = logLineHead(line);
    const room: Room = long ? { characters: MAX_LINE_CHARACTERS, text: MAX_TEXT_CHARACTERS } : { ...UNLIMITED };
    try {
      const { level: _level, time: _time, msg: given, ...rest } = JSON.parse(line);
      // What stands last in a line is what it says: it has its room first.
      const msg = this.#cleaned(given, 1, room);
      return `${headed(head, { ...(this.#cleaned(rest, 0, room) as object), msg, ...(long && { cut: true }) })}\n`;
    } catch {
      return `${headed(head, { msg: "a line that could not be made safe to show" })}\n`;
    }
  }

  #cleaned(value: unknown, depth: number, room: Room): unknown {
    room.characters -= VALUE_OVERHEAD;
    if (typeof value === "string") {
      const clean = cut(value, Math.max(0, Math.min(room.text, room.characters)), this.#text, this.#behind);
      room.characters -= clean.length;
      return clean;
    }
    if (typeof value !== "object" || value === null) return value;
    if (depth > MAX_DEPTH) return MASK;
    if (Array.isArray(value)) return this.#list(value, depth, room);
    const copy: Record<string, unknown> = Object.create(null);
    for (const [name, item] of Object.entries(value)) {
      if (room.characters <= 0) break;
      const key = name.length > room.text ? name.slice(0, MAX_NAME_CHARACTERS) : name;
      room.characters -= key.length;
      if (SECRET_KEY.test(key) || isSecretName(key)) copy[key] = MASK;
      else copy[key] = depth === 0 && isName(key, item) ? item : this.#cleaned(item, depth + 1, room);
    }
    return copy;
  }

  #list(values: readonly unknown[], depth: number, room: Room): unknown[] {
    const copy: unknown[] = [];
    for (const value of values) {
      if (room.characters <= 0) break;
      copy.push(this.#cleaned(value, depth + 1, room));
    }
    return copy;
  }

  readonly #text = (text: string): string => {
    let clean = text.replace(IN_URL, `$1${MASK}`).replace(OF_USER, `$1${MASK}@`).replace(BEARER, `$1${MASK}`);
    for (const secret of this.#secrets) {
      if (secret.length >= MIN_SECRET_LENGTH) clean = clean.replaceAll(secret, MASK);
      else if (clean === secret) clean = MASK;
      else clean = clean.replaceAll(`"${secret}"`, `"${MASK}"`);
    }
    return withoutCredentials(clean).replaceAll(BLANK, MASK);
  };
}

const isName = (key: string, value: unknown): boolean =>
  NAMES.has(key) && typeof value === "string" && value.length <= MAX_NAME_CHARACTERS;

const literal = (text: string): string => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
