/** The events of an execution for a reader, wherever the execution runs. */
import type { EventProducer } from "../lib/event-sink.ts";
import { followRemoteExecution } from "./cluster/follow-remote.ts";
import type { Engine } from "./engine.ts";
import { stillRunning } from "./journal/errors.ts";
import { readExecution } from "./journal/load.ts";
import type { StoredExecution } from "./list/lookup.ts";
import type { Execution } from "./run/execution.ts";
import { followLive, followLoaded } from "./run/follow.ts";

/** The events after the one numbered `after`, then new ones until the execution settles. */
export async function executionEvents(
  engine: Engine,
  execution: Execution | StoredExecution,
  after: number,
): Promise<EventProducer> {
  if (!("loaded" in execution)) return liveEvents(engine, execution, after);
  const { store, environment, definitions } = engine;
  const { loaded, found } = execution;
  const outline = await definitions.outline(found.start.definition);
  const follows = found.openRow !== null && environment.shared;
  return follows ? followRemoteExecution(store, found, outline, after) : followLoaded(loaded, outline, after);
}

/** The events of an execution that runs here. When another process recovers it, they continue from its journal. */
export function liveEvents(engine: Engine, execution: Execution, after: number): EventProducer {
  const { store, environment, definitions, abandoned } = engine;
  const { start } = execution.state;
  return followLive(execution, after, store, async (last) => {
    const isInterrupted = execution.lifetime.stopped?.kind === "closing" || abandoned.has(start.number);
    const found = environment.shared && !isInterrupted ? await readExecution(store, start.number, start.id) : null;
    const ours = found?.open != null && found.open.process === environment.process;
    if (found === null || ours) throw stillRunning(start.id);
    return followRemoteExecution(store, found, await definitions.outline(start.definition), last);
  });
}
