/** The version of Penstock from package.json, and the folder of that file. */
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";

export const VERSION: string = createRequire(import.meta.url)("../../package.json").version;

/** The folder of package.json. */
export const PROJECT: string = fileURLToPath(new URL("../..", import.meta.url));
