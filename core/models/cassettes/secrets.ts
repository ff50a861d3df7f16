/** What a cassette must not hold: keys, wherever they stand. */
import { isObject } from "../../lib/is-object.ts";

type Path = readonly (string | number)[];

/** Of headers, of the query, and of settings. Wider than what spans hide: a value too many that is blanked does no harm here. */
const SECRET_NAME = /auth|key|token|secret|password|signature|credential|cookie|^sig$/i;
/** Settings that tell where a provider is, and not who asks. */
const PLAIN_SETTINGS: ReadonlySet<unknown> = new Set(["use", "name", "baseURL"]);
/** Shorter texts may be anywhere by chance. */
const MIN_LENGTH = 8;
export const HIDDEN = "***";

export const mayBeSecret = (name: string): boolean => SECRET_NAME.test(name);

/** The texts in settings that have the name of a secret, or come from outside the manifest. */
export function secretSettings(settings: unknown, path: Path, isFromOutside: (path: Path) => boolean): string[] {
  const name = path.at(-1);
  if (PLAIN_SETTINGS.has(name)) return [];
  if (typeof settings === "string") return mayBeSecret(String(name)) || isFromOutside(path) ? [settings] : [];
  const members: [string | number, unknown][] = Array.isArray(settings)
    ? settings.map((member: unknown, index) => [index, member])
    : Object.entries(isObject(settings) ? settings : {});
  return members.flatMap(([key, member]) => secretSettings(member, [...path, key], isFromOutside));
}

/** Replaces secrets in a text, in the forms that they have in URLs and in JSON too. */
export function hideSecrets(secrets: readonly string[]): (text: string) => string {
  const forms = secrets
    // `Bearer KEY`: the key is the secret.
    .map((secret) => secret.slice(secret.lastIndexOf(" ") + 1))
    .filter((secret) => secret.length >= MIN_LENGTH)
    .flatMap((secret) => [secret, encodeURIComponent(secret), JSON.stringify(secret).slice(1, -1)])
    .sort((left, right) => right.length - left.length);
  return (text) => forms.reduce((hidden, form) => hidden.replaceAll(form, HIDDEN), text);
}
