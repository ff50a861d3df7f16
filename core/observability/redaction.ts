/**
 * Blanks credentials and personal numbers in the content of spans: by the name of a value (`password`), and by its form. Every
 * pattern takes time in proportion to the text, whatever the text is: repetitions are bounded, or can start only once in a run.
 */

export const BLANK = "[redacted]";

interface Rule {
  /** A text that every match contains: a cheap test, which most texts fail, before the pattern is tried. */
  readonly sign: string;
  readonly pattern: RegExp;
  readonly blank: string | ((match: string) => string);
}

/** The rules in order: values with a scheme or a name first, because such a value may look like something else. */
const RULES: readonly Rule[] = [
  {
    sign: "-----BEGIN",
    pattern: /-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|$)/g,
    blank: BLANK,
  },
  { sign: "://", pattern: /:\/\/[^\s/@:"'<>]{0,128}:(?!\*\*\*@)[^\s/@"'<>]{1,256}@/g, blank: `://${BLANK}@` },
  { sign: "earer", pattern: /\b([Bb]earer\s{1,8})[\w.~+/=:-]{6,}/g, blank: `$1${BLANK}` },
  { sign: "EARER", pattern: /\b(BEARER\s{1,8})[\w.~+/=:-]{6,}/g, blank: `$1${BLANK}` },
  // An English word has no capital, digit or special character after its first letter.
  {
    sign: "asic",
    pattern: /\b([Bb]asic\s{1,8})[A-Za-z0-9+/](?=[a-z]{0,40}[A-Z0-9+/=])[A-Za-z0-9+/]{5,}={0,2}/g,
    blank: `$1${BLANK}`,
  },
  // JSON Web Tokens: their header in base64url begins like this.
  { sign: "eyJ", pattern: /eyJ[\w-]{8,}(?:\.[\w-]*){0,4}/g, blank: BLANK },
  ...named(":"),
  ...named("="),
  { sign: " is ", pattern: /\b(passw(?:or)?d is )\S+/gi, blank: `$1${BLANK}` },
  // Keys of well-known services. They contain digits; names of packages with the same prefix do not.
  ...["-", "_"].map((sign) => ({
    sign,
    pattern:
      /(?<![A-Za-z0-9])(?:sk|pk|rk|whsec|gh[opsur]|github_pat|glpat|xox[a-z]|xapp|hf|npm|gsk|xai|pplx|tvly|nvapi|shpat|dop_v1|r8)[-_](?=[\w-]{0,80}\d)[\w-]{12,}/g,
    blank: BLANK,
  })),
  ...["AKIA", "ASIA"].map((sign) => ({ sign, pattern: new RegExp(`${sign}[A-Z0-9]{12,}`, "g"), blank: BLANK })),
  { sign: "AIza", pattern: /AIza[\w-]{20,}/g, blank: BLANK },
  { sign: "ya29.", pattern: /ya29\.[\w-]{12,}/g, blank: BLANK },
];
const ADDRESS = /(?<![\w.+%-])[\w.+%-]+@[\w-]+(?:\.[\w-]+)+/g;

/** Rules for `password: value`, `"apiKey":"value"` or `?token=value`, with quotes escaped any number of times, and for header lines. */
function named(sign: ":" | "="): Rule[] {
  const quotes = `\\\\{0,15}["']?`;
  const between = `(${quotes}[ \\t]{0,4}${sign}[ \\t]{0,4}`;
  const names =
    "passw(?:or)?d|passphrase|passcode|pwd|secrets?|token|(?:api|access|private|signing|encryption|secret)[-_ ]?key|credentials?";
  const value = `(?:\\\\{0,15}"[^"\\n]{0,1000}"?|'[^'\\n]{0,1000}'?|[^\\s"',;&}\\]]+)`;
  return [
    {
      sign,
      pattern: new RegExp(`(authorization|cookie)${between}${quotes})[^\\r\\n"']+`, "gi"),
      blank: `$1$2${BLANK}`,
    },
    // What is blanked already stays as it is: replayed texts are redacted again.
    {
      sign,
      pattern: new RegExp(`(${names}|[?&]key)${between})(?!\\[redacted\\])${value}`, "gi"),
      blank: `$1$2${BLANK}`,
    },
  ];
}

/** Candidates for card numbers: 14 to 19 digits, perhaps in groups, with a valid first digit. */
const CARD = /(?<![\d.])[2-6]\d{0,18}(?:[ -]\d{1,19}){0,18}(?!\d)/g;
const FIGURES = /[2-6][\d -]{12}/;

/** Credentials, card numbers and addresses contain one of these, or a word that names them. Most short texts contain none. */
const SUSPECT = new Set([..."@:=_-0123456789"].map((sign) => sign.charCodeAt(0)));
const SIGNS = Uint8Array.from({ length: 128 }, (_, code) => (SUSPECT.has(code) ? 1 : 0));

function isPlain(text: string): boolean {
  for (let index = 0; index < text.length; index++) if (SIGNS[text.charCodeAt(index)] === 1) return false;
  return !text.includes("assw");
}

/** @returns the text without what has the form of credentials, or follows their name */
export function withoutCredentials(text: string): string {
  let clean = text;
  for (const { sign, pattern, blank } of RULES)
    if (clean.includes(sign)) clean = clean.replace(pattern, blank as string);
  return clean;
}

/** @returns the text without credentials, card numbers and e-mail addresses. It may be longer than it was. */
export function redact(text: string): string {
  if (isPlain(text)) return text;
  let clean = withoutCredentials(text);
  if (clean.includes("@")) clean = clean.replace(ADDRESS, BLANK);
  return FIGURES.test(clean) ? clean.replace(CARD, withoutCard) : clean;
}

/** Blanks consecutive groups of digits that form a card number. */
function withoutCard(match: string): string {
  const groups = match.split(/[ -]/);
  for (let from = 0; from < groups.length; from++) {
    let digits = "";
    for (let to = from; to < groups.length && digits.length < 19; to++) {
      digits += groups[to];
      if (digits.length >= 14 && digits.length <= 19 && isCard(digits)) return BLANK;
    }
  }
  return match;
}

/** Whether digits pass the Luhn check of card numbers: the sum of all digits, every second one doubled, ends in 0. */
export function isCard(digits: string): boolean {
  if (!/^[2-6]/.test(digits)) return false;
  let sum = 0;
  for (let index = 0; index < digits.length; index++) {
    const digit = digits.charCodeAt(digits.length - 1 - index) - 48;
    const doubled = index % 2 === 1 ? digit * 2 : digit;
    sum += doubled > 9 ? doubled - 9 : doubled;
  }
  return sum % 10 === 0;
}
