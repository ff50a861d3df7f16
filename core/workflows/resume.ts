/** Resumes an execution for a request: a suspended one, a running one with a waiting step, or one that another process runs. */
import type { ResumeExecutionRequest } from "../../generated/types.ts";
import { lendToken } from "../identity/user-token.ts";
import { CommitConflict } from "../lib/errors.ts";
import { resumeRemoteExecution } from "./cluster/resume-requests.ts";
import type { Outline } from "./definition/definition.ts";
import type { Engine } from "./engine.ts";
import { notSuspended } from "./journal/errors.ts";
import { liveKey } from "./journal/ids.ts";
import type { JournalState } from "./journal/state.ts";
import { type StoredExecution, waitForRest } from "./list/lookup.ts";
import type { Execution } from "./run/execution.ts";
import { planResume, planResumeBeside } from "./run/resume.ts";
import { resumeBeside, takesResume } from "./run/resume-beside.ts";
import type { WorkflowCall } from "./workflows.ts";

/** An execution that has settled in another process. */
interface Rested {
  readonly state: JournalState;
  readonly outline: Outline;
}

/** The execution that was resumed and runs here, or how it settled elsewhere. Null when it has changed meanwhile: look again. */
type Resumed = Execution | Rested | null;

/** @param find looks for the execution, and is called again when it has changed meanwhile */
export async function resumeExecution(
  engine: Engine,
  find: () => Promise<Execution | StoredExecution>,
  body: ResumeExecutionRequest,
  call: WorkflowCall,
): Promise<Execution | Rested> {
  for (;;) {
    const found = await find();
    const resumed =
      "loaded" in found ? await resumeStored(engine, found, body, call) : await resumeRunning(found, body, call);
    if (resumed !== null) return resumed;
  }
}

async function resumeRunning(
  execution: Execution,
  body: ResumeExecutionRequest,
  { keyed }: WorkflowCall,
): Promise<Execution | null> {
  const entry = planResumeBeside(execution.state, execution.definition, body);
  if (takesResume(execution)) {
    // A failed write is reported by the execution itself.
    resumeBeside(execution, entry, keyed?.runId).catch(() => {});
    return execution;
  }
  await waitForRest(execution);
  return null;
}

async function resumeStored(
  engine: Engine,
  stored: StoredExecution,
  body: ResumeExecutionRequest,
  call: WorkflowCall,
): Promise<Resumed> {
  const { found, loaded } = stored;
  const { start, status } = loaded.state;
  const isOpen = found.openRow !== null;
  if (isOpen ? !engine.environment.shared : status !== "suspended") throw notSuspended(start.id, status);
  const definition = await engine.definitions.pinned(start.definition);
  if (isOpen) {
    const [, path, , data] = planResumeBeside(loaded.state, definition, body);
    const state = await resumeRemoteExecution(engine.store, found, path, data, call.keyed?.runId);
    return state === null ? null : { state, outline: definition.outline };
  }
  const entry = planResume(loaded.state, definition, body);
  const namesStep = body.options?.stepId !== undefined;
  if (engine.live.has(liveKey(start))) return lostTo(start.id, namesStep);
  engine.capacity.requireFree(start.user);
  lendToken(call.user, start.user);
  const execution = engine.restore(stored, definition, call);
  engine.beginTrace(execution, "resume");
  execution.append(entry);
  if (call.keyed !== undefined) execution.append(["answer", entry[1], entry[2], call.keyed.runId]);
  engine.run(execution);
  return (await isFirst(engine, execution)) ? execution : lostTo(start.id, namesStep);
}

/** Another resume was first. Only a resume that names its step may be tried again: without a step both mean the same. */
function lostTo(id: string, namesStep: boolean): null {
  if (namesStep) return null;
  throw notSuspended(id, "running");
}

/** False when another process has resumed it before: nothing has had an effect then. */
async function isFirst({ environment }: Engine, execution: Execution): Promise<boolean> {
  if (!environment.shared) return true;
  try {
    while (!execution.isRecorded) await Promise.race([execution.progress(), execution.settled]);
    return true;
  } catch (error) {
    if (error instanceof CommitConflict && !execution.isRecorded) return false;
    throw error;
  }
}
