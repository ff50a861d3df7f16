/** Finds executions for one principal: what is not its own does not exist. */
import { CommitConflict } from "../errors.ts";
import type { Principal } from "../memory/memory.ts";
import { ownerOf } from "../memory/ownership.ts";
import type { Outline } from "./definition.ts";
import type { Engine } from "./engine.ts";
import type { Execution } from "./execution.ts";
import type { Fold } from "./fold.ts";
import type { Start } from "./journal.ts";
import { type Found, findExecution, type Loaded, loadWhole } from "./load.ts";
import { noExecution } from "./refusals.ts";

export interface OnRecord {
  readonly found: Found;
  readonly loaded: Loaded;
}

/** Looks at an execution that runs, but not here, in a store of our own: it could not go on. */
const TRIES = 3;

/** Every method throws ServiceError `not_found` for an unknown workflow, and where it finds nothing. */
export class Lookup {
  readonly #engine: Engine;
  readonly #principal: Principal;

  constructor(engine: Engine, principal: Principal) {
    this.#engine = engine;
    this.#principal = principal;
  }

  /** What runs in this process; undefined when it does not run here, whether or not it exists. */
  here(workflowId: string, id: string): Execution | undefined {
    this.#engine.declared(workflowId);
    const execution = this.#engine.live.get(id);
    if (execution === undefined || !execution.recorded) return undefined;
    if (!this.#mine(workflowId, execution.fold.start)) throw noExecution(id);
    return execution;
  }

  /**
   * What runs here, or else how it stands in the store. What begins or comes to rest here meanwhile is waited for: how it came out
   * is told once it is on record.
   */
  async find(workflowId: string, id: string): Promise<Execution | OnRecord> {
    const { live, around } = this.#engine;
    for (let tries = 1; ; tries++) {
      const execution = this.here(workflowId, id);
      if (execution?.fold.status === "running") return execution;
      if (execution !== undefined) {
        await restOf(execution);
        continue;
      }
      const beginning = live.get(id);
      if (beginning !== undefined) {
        await Promise.race([beginning.more(), beginning.settled]).catch(() => {});
        continue;
      }
      const record = await this.onRecord(workflowId, id);
      // Between the two looks it may have begun here, or have ended.
      if (record.found.open === null || (around.shared && !live.has(id)) || tries > TRIES) return record;
    }
  }

  async onRecord(workflowId: string, id: string): Promise<OnRecord> {
    this.#engine.declared(workflowId);
    const { store } = this.#engine;
    const record = await loadWhole(store, async () => {
      const found = await findExecution(store, id);
      return found !== null && this.#mine(workflowId, found.start) ? found : null;
    });
    if (record === null) throw noExecution(id);
    return record;
  }

  /** All that is known of an execution, wherever it runs. */
  async look(workflowId: string, id: string): Promise<{ fold: Fold; outline: Outline }> {
    const execution = await this.find(workflowId, id);
    if (!("loaded" in execution)) return { fold: execution.fold, outline: execution.definition.outline };
    const { found, loaded } = execution;
    return { fold: loaded.fold, outline: await this.#engine.definitions.outline(found.start.definition) };
  }

  #mine(workflowId: string, start: Start): boolean {
    if (start.workflowId !== workflowId) return false;
    return !this.#principal.isolated || (start.userId ?? "") === ownerOf(this.#principal);
  }
}

/** @throws ServiceError `unavailable` while that cannot be recorded */
async function restOf(execution: Execution): Promise<void> {
  try {
    await Promise.race([execution.settled, execution.troubled()]);
  } catch (error) {
    // Another process has it by now.
    if (!(error instanceof CommitConflict)) throw error;
  }
}
