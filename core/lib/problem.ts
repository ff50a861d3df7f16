/** A problem at one place of the manifest, in the form in which all checks report it. */

/** Keys and indexes from the root of the manifest: `["agents", "assistant", "tools", 0]`. */
export type Path = readonly (string | number)[];

/** A problem without a position in the file: `LoadedManifest.issueAt` adds that. */
export interface Problem {
  readonly path: Path;
  readonly message: string;
  /** Default: error. */
  readonly severity?: "error" | "warning";
}
