/** The values of the manifest that is in force, with what each comes from, for people who run the service. No secret is among them. */
import type { ManifestValue } from "../../generated/types.ts";
import { describeValue } from "../manifest/describe.ts";
import type { Path } from "../manifest/issues.ts";
import type { LoadedManifest } from "../manifest/load.ts";
import { BLANK, isSecretName, withoutCredentials } from "../observability/redaction.ts";

/** Names of keys of all kinds: `key`, `publicKey`, `x-api-key`. */
const KEY = /keys?$/i;

/** `loaded` must be valid. */
export function manifestValues({ manifest, explain }: Pick<LoadedManifest, "manifest" | "explain">): ManifestValue[] {
  return explain("").entries.map(({ path, keys, value, source, origin }) => {
    const { text, unit } = describeValue(manifest!, keys);
    const shown = withoutSecrets(keys, value);
    return {
      path,
      value: shown,
      source,
      origin,
      ...(text !== "" && { description: text }),
      ...(unit !== undefined && typeof shown === "number" && { unit }),
    };
  });
}

/** Values from the environment are masked already. What is written into the file is judged by its name and by its form. */
function withoutSecrets(keys: Path, value: unknown): unknown {
  if (typeof value !== "string" || value === "") return value;
  if (areInstructions(keys)) return BLANK;
  const isSecret = keys.some((key) => typeof key === "string" && (isSecretName(key) || KEY.test(key)));
  return isSecret ? BLANK : withoutCredentials(value);
}

/** Of an agent: the schema promises that they are shown to nobody. */
const areInstructions = ([section, , key]: Path) => section === "agents" && key === "instructions";
