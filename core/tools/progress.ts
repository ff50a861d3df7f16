/** Limits how often a tool reports progress: a tool, or a foreign server, may report as often as it likes. */
import type { OnToolProgress, ToolProgress } from "../lib/tool-progress.ts";

/** Shortest time between two reports of one call: of those in between the last one is told, before the next or at the end. */
const INTERVAL_MS = 1_000;
const MAX_MESSAGE_CHARACTERS = 1_000;

/** Passes on increasing reports, at most one per interval; invalid ones are ignored. Without a report: the one that is held back. */
export function boundedProgress(tell: OnToolProgress): (report?: ToolProgress) => void {
  let last = Number.NEGATIVE_INFINITY;
  let told = Number.NEGATIVE_INFINITY;
  let held: ToolProgress | undefined;
  return (report) => {
    const { progress, total, message } = (report ?? {}) as Partial<ToolProgress>;
    if (isNumber(progress) && progress > last) {
      last = progress;
      held = {
        progress,
        ...(isNumber(total) && { total }),
        ...(typeof message === "string" && { message: message.slice(0, MAX_MESSAGE_CHARACTERS) }),
      };
    }
    if (held === undefined || (report !== undefined && performance.now() - told < INTERVAL_MS)) return;
    told = performance.now();
    tell(held);
    held = undefined;
  };
}

const isNumber = (value: unknown): value is number => Number.isFinite(value);
