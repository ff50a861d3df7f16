/** What a tool says of itself while it runs. */
export interface ToolProgress {
  /** Grows with each report. */
  readonly progress: number;
  /** What `progress` is on its way to, where that is known. */
  readonly total?: number | undefined;
  readonly message?: string | undefined;
}

export type OnToolProgress = (report: ToolProgress) => void;
