/** What is wrong at one place of the manifest, as every part that checks some of it reports it. */

/** Keys and indexes from the root of the manifest: `["agents", "assistant", "tools", 0]`. */
export type Path = readonly (string | number)[];

/** It has no place in a file yet: `LoadedManifest.issueAt` finds that. */
export interface Problem {
  readonly path: Path;
  readonly message: string;
  /** Left out: an error. */
  readonly severity?: "error" | "warning";
}
