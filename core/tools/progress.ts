/** Limits how often a tool reports progress: a tool, or a foreign server, may report as often as it likes. */
import type { OnToolProgress, ToolProgress } from "../lib/tool-progress.ts";

/** Shortest time between two reports of one call; reports in between are dropped. */
const INTERVAL_MS = 1_000;
const MAX_MESSAGE_CHARACTERS = 1_000;

/** Passes on increasing reports, at most one per interval; invalid ones are ignored. */
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
