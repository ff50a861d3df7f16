/**
 * Known secrets: which values of the environment and the manifest are secret, and how texts are freed of them, in every form in which
 * secrets travel. Errors, log lines, traces and cassettes all use this.
 */

export const MASK = "***";
/** A shorter value that nothing names as a secret may be a word: `demo`. */
const MIN_LENGTH = 8;
/** What a name says is secret may be short; hiding less than this would make holes in every text. */
const MIN_NAMED_LENGTH = 4;
/** A longer one is a document, which nobody encodes to send it. */
const MAX_ENCODED_LENGTH = 4 * 1024;
/** Shorter parts of base64 occur by chance. */
const MIN_BASE64_LENGTH = 5;

/** Endings of the names of secrets, in lower case with `_` between words. Counts of tokens are not secret. */
const SECRET_NAME =
  /(?:authorization|cookies?|passw(?:or)?ds?|passphrases?|passcode|pwd|secrets?|token|(?:access|refresh|auth|bearer|api|session)_?tokens|(?:api|access|private|signing|encryption|secret)_?keys?|access_?key_?id|credentials?|connection_?string|cvv|cvc|ssn|otp)$/;
const SEPARATORS = /[-\s.]/g;
/** Characters at the end of a name that are checked. */
const NAME_SUFFIX_LENGTH = 64;
/** Variables of shells that only look like passwords. */
const FOLDERS: ReadonlySet<string> = new Set(["PWD", "OLDPWD"]);
/** Switches, which may have the name of what they switch. */
const SWITCHES: ReadonlySet<string> = new Set(["true", "false", "none", "null", "auto", "disabled", "enabled"]);

export const isSecretName = (name: string): boolean =>
  !FOLDERS.has(name) && SECRET_NAME.test(name.slice(-NAME_SUFFIX_LENGTH).toLowerCase().replace(SEPARATORS, "_"));

/** Whether a value is to be hidden. @param named whether its name says that it is secret */
export const isSecret = (value: string, named: boolean): boolean =>
  value.length >= (named ? MIN_NAMED_LENGTH : MIN_LENGTH) && !SWITCHES.has(value);

/** The secrets among variables: what their names say is secret, and passwords in addresses. */
export function secretsOf(variables: Readonly<Record<string, string | undefined>>): string[] {
  return Object.entries(variables).flatMap(([name, value = ""]) => {
    const password = /^[a-z][\w+.-]*:\/\/[^\s/@:]*:([^\s/@]+)@/i.exec(value)?.[1] ?? "";
    const named = [isSecretName(name) ? value : "", password, decoded(password)].filter((text) => isSecret(text, true));
    return /key$/i.test(name) && isSecret(value, false) ? [value, ...named] : named;
  });
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return "";
  }
}

/** Finds secrets in all their forms, the longest first, because one may be part of another; null when there are none. */
export function secretPattern(secrets: readonly string[]): RegExp | null {
  const forms = [...new Set(secrets.flatMap(formsOf))].sort((a, b) => b.length - a.length);
  return forms.length === 0
    ? null
    : new RegExp(forms.map((text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|"), "g");
}

/** A secret as it is, in JSON, in URLs and forms, and within base64, such as the header of HTTP's basic authentication. */
function formsOf(secret: string): string[] {
  const forms = [secret, JSON.stringify(secret).slice(1, -1)];
  if (secret.length > MAX_ENCODED_LENGTH || !secret.isWellFormed()) return forms;
  const sent = [
    ...new Set([secret, encodeURIComponent(secret), new URLSearchParams({ "": secret }).toString().slice(1)]),
  ];
  return [...forms, ...sent, ...sent.flatMap(base64Forms)].filter(Boolean);
}

/** What base64 makes of a secret behind 0, 1 or 2 bytes of something else: the characters that depend on the secret alone. */
function base64Forms(secret: string): string[] {
  const bytes = Buffer.from(secret);
  return [0, 1, 2].flatMap((before) => {
    const text = Buffer.concat([Buffer.alloc(before), bytes]).toString("base64");
    const own = text.slice(Math.ceil((before * 8) / 6), Math.floor(((before + bytes.length) * 8) / 6));
    return own.length < MIN_BASE64_LENGTH ? [] : [own, own.replaceAll("+", "-").replaceAll("/", "_")];
  });
}

/** The environment is that of the process, and so is what its errors must not say. */
const known = { secrets: new Set<string>(), pattern: null as RegExp | null };

/** Texts that no error says from now on. */
export function hideFromErrors(secrets: readonly string[]): void {
  const { size } = known.secrets;
  for (const secret of secrets) known.secrets.add(secret);
  if (known.secrets.size > size) known.pattern = secretPattern([...known.secrets]);
}

/** The text of an error that a tool, a step or a server has made, without the secrets that it may repeat. */
export const withoutSecrets = (text: string): string =>
  known.pattern === null ? text : text.replace(known.pattern, MASK);
