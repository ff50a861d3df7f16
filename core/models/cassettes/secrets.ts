/** Finds and hides what a cassette must not contain: keys, wherever they occur. */
import { isObject } from "../../lib/is-object.ts";
import { isSecret, MASK, secretPattern, withoutSecrets } from "../../lib/secrets.ts";

type Path = readonly (string | number)[];

/** Names of secrets in headers, queries and settings. Wider than what spans hide: hiding one value too many does no harm here. */
const SECRET_NAME = /auth|key|token|secret|password|signature|credential|cookie|^sig$/i;
/** Settings that say where a provider is, and not who calls it. */
const PLAIN_SETTINGS: ReadonlySet<unknown> = new Set(["use", "name", "baseURL"]);

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

/** Makes a function that replaces secrets in a text, in all their forms: these, and those that no error of this process says. */
export function hideSecrets(secrets: readonly string[]): (text: string) => string {
  const pattern = secretPattern(
    secrets
      // In `Bearer KEY` only the key is the secret.
      .map((secret) => secret.slice(secret.lastIndexOf(" ") + 1))
      .filter((secret) => isSecret(secret, false)),
  );
  return (text) => withoutSecrets(pattern === null ? text : text.replace(pattern, MASK));
}
