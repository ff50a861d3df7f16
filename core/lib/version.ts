/** The version of Penstock from package.json, and the folder of that file. */
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

export const VERSION: string = createRequire(import.meta.url)("../../package.json").version;

/** The folder of package.json. */
export const PROJECT: string = fileURLToPath(new URL("../..", import.meta.url));

/** Whether one version comes after another. One without a suffix comes after those of its release that have one. */
export function isNewer(version: string, than: string): boolean {
  const [fresh, old] = [version, than].map((each) => (each.includes("-") ? each : `${each}-zz`));
  return fresh!.localeCompare(old!, "en", { numeric: true }) > 0;
}
