/** Finds executions for one principal. To a user, executions of other users do not exist. */
import type { Charge } from "../../http/exchange.ts";
import { type Principal, permittedUser } from "../../identity/principal.ts";
import { MAX_ID_PLACES, unlessConflict } from "../../storage/store.ts";
import type { Outline } from "../definition/definition.ts";
import type { Engine } from "../engine.ts";
import { executionOwner } from "../journal/entries.ts";
import {
  type ExecutionSelector,
  type FoundExecution,
  findExecution,
  type Loaded,
  loadWhole,
  noExecution,
  severalUsers,
  startsWithId,
} from "../journal/load.ts";
import type { JournalState } from "../journal/state.ts";
import type { Execution } from "../run/execution.ts";

export interface StoredExecution {
  readonly found: FoundExecution;
  readonly loaded: Loaded;
}

export const bytesOf = ({ found: { openRow, recordRow }, loaded }: StoredExecution): number =>
  loaded.journalBytes + (openRow?.value.length ?? 0) + (recordRow?.value.length ?? 0);

/** How often to read an execution that the store lists as running but that does not run here, when no other process uses the store. */
const MAX_READS = 3;

/** Every method throws ServiceError `not_found` for an unknown workflow or execution. */
export class ExecutionLookup {
  readonly #engine: Engine;
  readonly #principal: Principal;
  readonly declared: (workflowId: string) => unknown;
  readonly #charge: Charge | undefined;

  /**
   * @param declared throws for unknown ids; default: knows the workflows of the manifest
   * @param charge of the request that holds what is found
   */
  constructor(
    engine: Engine,
    principal: Principal,
    declared: (id: string) => unknown = (id) => engine.declared(id),
    charge?: Charge,
  ) {
    this.#engine = engine;
    this.#principal = principal;
    this.declared = declared;
    this.#charge = charge;
  }

  /**
   * The execution when it runs here, else what the store has of it. Waits while its start or its end is being committed here.
   *
   * @param userId the owner, needed when several users have an execution with this id
   */
  async find(workflowId: string, id: string, userId?: string): Promise<Execution | StoredExecution> {
    this.declared(workflowId);
    const owner = this.#owner(workflowId, id, userId);
    const selector = this.#selector(workflowId, owner instanceof Promise ? await owner : owner);
    const { environment } = this.#engine;
    for (let tries = 1; ; tries++) {
      const execution = this.#live(id, selector);
      if (execution === undefined) {
        const record = await this.#readStored(id, selector);
        // Since the first check the execution may have started here, or have settled.
        if (record.found.openRow === null || tries > MAX_READS) return record;
        if (environment.shared && this.#live(id, selector) === undefined) return record;
      } else if (!execution.isRecorded) await Promise.race([execution.progress(), execution.settled]).catch(() => {});
      else if (execution.state.status === "running") return execution;
      else await waitForRest(execution);
    }
  }

  /** The state of an execution, whichever process runs it. */
  async readState(workflowId: string, id: string, userId?: string): Promise<{ state: JournalState; outline: Outline }> {
    const execution = await this.find(workflowId, id, userId);
    if (!("loaded" in execution)) return { state: execution.state, outline: execution.definition.outline };
    const { found, loaded } = execution;
    return { state: loaded.state, outline: await this.#engine.definitions.outline(found.start.definition) };
  }

  #live(id: string, selector: ExecutionSelector): Execution | undefined {
    const execution = this.#engine.liveExecution(id, selector.owner);
    if (execution === undefined || !selector.matches(execution.state.start)) return undefined;
    return execution.mayBeElsewhere ? undefined : execution;
  }

  async #readStored(id: string, selector: ExecutionSelector): Promise<StoredExecution> {
    const { store } = this.#engine;
    const record = await loadWhole(store, () => findExecution(store, id, selector));
    if (record === null) throw noExecution(id);
    this.#charge?.copies(bytesOf(record));
    return record;
  }

  #selector(workflowId: string, owner: string | undefined): ExecutionSelector {
    return {
      spaces: this.#engine.spaces,
      owner,
      matches(start) {
        return start.workflowId === workflowId && (owner === undefined || executionOwner(start) === owner);
      },
    };
  }

  /** The owner of the execution that is meant. A caller who sees everything and names no user means the only one there is. */
  #owner(workflowId: string, id: string, userId: string | undefined): string | undefined | Promise<string> {
    const acting = permittedUser(this.#principal, userId);
    return acting !== undefined || !this.#engine.spaces.owned ? acting : this.#onlyOwner(workflowId, id);
  }

  async #onlyOwner(workflowId: string, id: string): Promise<string> {
    const { store, spaces, live } = this.#engine;
    const stored = await startsWithId(store, spaces, id);
    const running = [...live.values()].map(({ state }) => state.start);
    const owners = new Map<number, string>();
    for (const start of [...stored, ...running])
      if (start.id === id && start.workflowId === workflowId) owners.set(start.number, executionOwner(start));
    const [only] = owners.values();
    if (only === undefined) throw noExecution(id);
    // There may be more owners than were read.
    if (owners.size > 1 || stored.length >= MAX_ID_PLACES) throw severalUsers(id);
    return only;
  }
}

/** Waits until the execution has settled. @throws ServiceError `unavailable` while that cannot be recorded */
export async function waitForRest(execution: Execution): Promise<void> {
  // After a conflict, another process has recovered it.
  await unlessConflict(execution.outcome());
}
