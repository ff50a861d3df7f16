/** Bounds what a tool reports while it runs: a tool, or a foreign server, may report as often as it likes. */
import type { OnToolProgress, ToolProgress } from "../lib/tool-progress.ts";

/** Between two reports of one call that are passed on; what comes in between is left out. */
const INTERVAL_MS = 1_000;
const MAX_MESSAGE_CHARACTERS = 1_000;

/** Passes on reports that grow, at most one in each interval; those that are not reports are ignored. */
export function boundedProgress(tell: OnToolProgress): OnToolProgress {
  let last = Number.NEGATIVE_INFINITY;
  let told = Number.NEGATIVE_INFINITY;
  return (report) => {
    const { progress, total, message } = (report ?? {}) as Partial<ToolProgress>;
    if (!isNumber(progress) || progress <= last || performance.now() - told < INTERVAL_MS) return;
    last = progress;
    told = performance.now();
    tell({
      progress,
      ...(isNumber(total) && { total }),
      ...(typeof message === "string" && { message: message.slice(0, MAX_MESSAGE_CHARACTERS) }),
    });
  };
}

const isNumber = (value: unknown): value is number => Number.isFinite(value);
