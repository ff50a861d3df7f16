/** Finds executions for one principal: what is not its own does not exist. */

import { permittedUser } from "../../identity/ownership.ts";
import type { Principal } from "../../identity/principal.ts";
import { CommitConflict } from "../../lib/errors.ts";
import { MAX_ID_PLACES } from "../../storage/id-spaces.ts";
import type { Outline } from "../definition/definition.ts";
import type { Engine } from "../engine.ts";
import type { ExecutionStart } from "../journal/entries.ts";
import { noExecution, severalUsers } from "../journal/errors.ts";
import { executionOwner } from "../journal/ids.ts";
import { type FoundExecution, findExecution, type Loaded, loadWhole, type Meant, startsOf } from "../journal/load.ts";
import type { JournalState } from "../journal/state.ts";
import type { Execution } from "../run/execution.ts";

export interface OnRecord {
  readonly found: FoundExecution;
  readonly loaded: Loaded;
}

/** Looks at an execution that runs, but not here, in a store of our own: it could not go on. */
const TRIES = 3;

/** Every method throws ServiceError `not_found` for an unknown workflow, and where it finds nothing. */
export class ExecutionLookup {
  readonly #engine: Engine;
  readonly #principal: Principal;

  constructor(engine: Engine, principal: Principal) {
    this.#engine = engine;
    this.#principal = principal;
  }

  /**
   * What runs here, or else how it stands in the store. What begins or comes to rest here meanwhile is waited for: how it came out
   * is told once it is on record.
   *
   * @param userId whose is meant where several users have one of that id
   */
  async find(workflowId: string, id: string, userId?: string): Promise<Execution | OnRecord> {
    this.#engine.declared(workflowId);
    const whose = this.#owner(workflowId, id, userId);
    const meant = this.#meant(workflowId, whose instanceof Promise ? await whose : whose);
    const { around } = this.#engine;
    for (let tries = 1; ; tries++) {
      const execution = this.#live(id, meant);
      if (execution === undefined) {
        const record = await this.#onRecord(id, meant);
        // Between the two looks it may have begun here, or have ended.
        if (record.found.open === null || tries > TRIES) return record;
        if (around.shared && this.#live(id, meant) === undefined) return record;
      } else if (!execution.recorded) await Promise.race([execution.more(), execution.settled]).catch(() => {});
      else if (execution.state.status === "running") return execution;
      else await restOf(execution);
    }
  }

  /** All that is known of an execution, wherever it runs. */
  async look(workflowId: string, id: string, userId?: string): Promise<{ state: JournalState; outline: Outline }> {
    const execution = await this.find(workflowId, id, userId);
    if (!("loaded" in execution)) return { state: execution.state, outline: execution.definition.outline };
    const { found, loaded } = execution;
    return { state: loaded.state, outline: await this.#engine.definitions.outline(found.start.definition) };
  }

  #live(id: string, meant: Meant): Execution | undefined {
    const execution = this.#engine.liveOf(id, meant.owner);
    return execution !== undefined && meant.is(execution.state.start) ? execution : undefined;
  }

  async #onRecord(id: string, meant: Meant): Promise<OnRecord> {
    const { store } = this.#engine;
    const record = await loadWhole(store, () => findExecution(store, id, meant));
    if (record === null) throw noExecution(id);
    return record;
  }

  #meant(workflowId: string, owner: string | undefined): Meant {
    const is = (start: ExecutionStart) =>
      start.workflowId === workflowId && (owner === undefined || executionOwner(start) === owner);
    return { spaces: this.#engine.spaces, owner, is };
  }

  /** Whose execution of that id is meant. Who sees everything and names nobody means the only one there is. */
  #owner(workflowId: string, id: string, userId: string | undefined): string | undefined | Promise<string> {
    const acting = permittedUser(this.#principal, userId);
    return acting !== undefined || !this.#engine.spaces.owned ? acting : this.#onlyOwner(workflowId, id);
  }

  async #onlyOwner(workflowId: string, id: string): Promise<string> {
    const { store, spaces, live } = this.#engine;
    const stored = await startsOf(store, spaces, id);
    const running = [...live.values()].map(({ state }) => state.start);
    const owners = new Map<number, string>();
    for (const start of [...stored, ...running])
      if (start.id === id && start.workflowId === workflowId) owners.set(start.number, executionOwner(start));
    const [only] = owners.values();
    if (only === undefined) throw noExecution(id);
    // There may be more than were looked at.
    if (owners.size > 1 || stored.length >= MAX_ID_PLACES) throw severalUsers(id);
    return only;
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
