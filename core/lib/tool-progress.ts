/** The progress that a running tool reports. */
export interface ToolProgress {
  /** Increases with each report. */
  readonly progress: number;
  /** The final value of `progress`, if it is known. */
  readonly total?: number | undefined;
  readonly message?: string | undefined;
}

export type OnToolProgress = (report: ToolProgress) => void;
