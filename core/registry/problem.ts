/** A problem of a plugin: its file, the phase of loading, and the cause. Boot reports all of them at once. */
import { relative } from "node:path";

/**
 * `import`: finding and loading the file. `shape`: what it exports. `config`: its schema, or its configuration in the
 * manifest. `create`: creating the instance.
 */
export type PluginPhase = "import" | "shape" | "config" | "create";

export interface PluginProblem {
  /** Absolute path of the file, or of the folder when there is no file. */
  readonly file: string;
  readonly phase: PluginPhase;
  /** The cause, with advice for people; never a stack. */
  readonly cause: string;
}

/** The path relative to `base` if it is below it. */
export function shortPath(file: string, base = process.cwd()): string {
  const path = relative(base, file);
  return path === "" || path.startsWith("..") ? file : path;
}
