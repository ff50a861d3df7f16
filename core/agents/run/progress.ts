/** Tells the reader of a run how far its tool calls are. */
import type { OnToolProgress } from "../../lib/tool-progress.ts";
import type { PartSink } from "./parts.ts";

/** While the reader is behind, reports are left out: nothing waits for them. */
export function progressTo(sink: PartSink, toolCallId: string, toolName: string): OnToolProgress {
  let isBehind = false;
  return (report) => {
    if (isBehind) return;
    const wait = sink.part({ type: "tool-progress", toolCallId, toolName, ...report });
    if (wait === undefined) return;
    isBehind = true;
    wait.then(
      () => {
        isBehind = false;
      },
      // Whoever sends the next part hears of it.
      () => {},
    );
  };
}
