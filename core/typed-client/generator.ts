/** Loads `openapi-typescript` from the client's project: Penstock does not include it, because it needs the TypeScript compiler. */
import { createRequire } from "node:module";
import { join } from "node:path";
import { messageOf } from "../lib/errors.ts";

/** The functions of version 7 that are used. */
export interface TypeGenerator {
  default(document: object, options: object): Promise<unknown>;
  astToString(tree: unknown): string;
}

const PACKAGE = "openapi-typescript";
const INSTALL = "npm install --save-dev openapi-typescript@7 typescript@5";

/** @throws Error that says what to install, and where */
export function loadGenerator(folders: readonly string[]): TypeGenerator {
  const places = [...new Set(folders)];
  const wanted = `the command client needs the package ${PACKAGE}`;
  for (const folder of places) {
    const require = createRequire(join(folder, "package.json"));
    const path = resolve(require);
    if (path === null) continue;
    let loaded: Partial<TypeGenerator>;
    try {
      loaded = require(path) as Partial<TypeGenerator>;
    } catch (error) {
      throw new Error(
        `${wanted}; that of ${folder} cannot be loaded: ${messageOf(error).split("\n", 1)[0]}: ${INSTALL}`,
      );
    }
    if (typeof loaded.default === "function" && typeof loaded.astToString === "function")
      return loaded as TypeGenerator;
    throw new Error(`${wanted} in version 7; ${folder} has another one: ${INSTALL}`);
  }
  throw new Error(`${wanted}, which is not installed in ${places.join(" or ")}: ${INSTALL}`);
}

function resolve(require: NodeJS.Require): string | null {
  try {
    return require.resolve(PACKAGE);
  } catch {
    return null;
  }
}
