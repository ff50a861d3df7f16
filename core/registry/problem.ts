/** A plugin that does not work: which file, at what stage, and why. Boot reports all of them at once. */
import { relative } from "node:path";

/**
 * `import`: finding and loading the file. `shape`: what it exports. `config`: its schema, or the configuration that the
 * manifest gives it. `create`: making the instance.
 */
export type PluginPhase = "import" | "shape" | "config" | "create";

export interface PluginProblem {
  /** Absolute path of the file, or of the folder where there is no file. */
  readonly file: string;
  readonly phase: PluginPhase;
  /** What went wrong, for a person to act on; never a stack. */
  readonly cause: string;
}

/** Relative to `base` where it lies below it. */
export function shortPath(file: string, base = process.cwd()): string {
  const path = relative(base, file);
  return path === "" || path.startsWith("..") ? file : path;
}
