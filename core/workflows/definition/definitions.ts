/** Definitions by their hash: those of the manifest, and those that older executions are pinned to. */
import { CommitConflict, unavailable } from "../../lib/errors.ts";
import { definitionKey } from "../../storage/keys.ts";
import type { Store } from "../../storage/store.ts";
import type { Outline, WorkflowDefinition } from "./definition.ts";
import { outlineSteps } from "./outline.ts";
import { type PinnedDefinition, parsePinned } from "./pinned.ts";

/** A definition of the manifest. */
interface CurrentDefinition {
  readonly definition: WorkflowDefinition;
  /** JSON text of what is pinned. */
  readonly text: string;
}

/** Links a pinned definition with what the service has now; gives the names of what is gone when it cannot. */
type LinkDefinition = (pinned: PinnedDefinition, hash: string) => WorkflowDefinition | { missing: readonly string[] };

/** Definitions of the past kept in memory: as they are pinned, and linked. */
const KEPT = 100;

export class Definitions {
  readonly #store: Store;
  readonly #link: LinkDefinition;
  readonly #current: ReadonlyMap<string, CurrentDefinition>;
  readonly #past = new Map<string, Promise<{ pinned: PinnedDefinition; outline: Outline } | null>>();
  /** By hash: of the manifest, and of the past. */
  readonly #present = new Map<string, WorkflowDefinition>();
  readonly #linked = new Map<string, WorkflowDefinition>();

  /** @param current by the id of the workflow */
  constructor(store: Store, current: ReadonlyMap<string, CurrentDefinition>, link: LinkDefinition) {
    this.#store = store;
    this.#link = link;
    this.#current = current;
    for (const { definition } of current.values()) this.#present.set(definition.hash, definition);
  }

  /** Of the manifest. */
  current(workflowId: string): WorkflowDefinition | undefined {
    return this.#current.get(workflowId)?.definition;
  }

  /** Puts the definitions of the manifest on record, so that executions can be pinned to them. */
  async store(): Promise<void> {
    for (const { definition, text } of this.#current.values()) {
      const key = definitionKey(definition.hash);
      if ((await this.#store.get(key)) !== undefined) continue;
      try {
        await this.#store.commit({ put: [[key, text]], expect: [[key, null]] });
      } catch (error) {
        // Another process was first, with the same.
        if (!(error instanceof CommitConflict)) throw error;
      }
    }
  }

  /** @throws ServiceError `unavailable` that names what is gone */
  async pinned(hash: string): Promise<WorkflowDefinition> {
    const found = await this.find(hash);
    if (typeof found === "string") throw unavailable(found);
    return found;
  }

  /** A definition, or for people what it needs and is gone. */
  async find(hash: string): Promise<WorkflowDefinition | string> {
    const known = this.#present.get(hash) ?? this.#linked.get(hash);
    if (known !== undefined) return known;
    const past = await this.#read(hash);
    if (past === null) return "the definition of the execution is gone";
    const linked = this.#link(past.pinned, hash);
    if ("missing" in linked)
      return `the execution needs ${linked.missing.join(", ")}, which this service does not have`;
    keep(this.#linked, hash, linked);
    return linked;
  }

  /** What is known of a definition even when something that it needs is gone. */
  async outline(hash: string): Promise<Outline> {
    const known = this.#present.get(hash) ?? this.#linked.get(hash);
    return known?.outline ?? (await this.#read(hash))?.outline ?? new Map();
  }

  #read(hash: string): Promise<{ pinned: PinnedDefinition; outline: Outline } | null> {
    let reading = this.#past.get(hash);
    if (reading === undefined) {
      reading = this.#store.get(definitionKey(hash)).then((row) => {
        if (row === undefined) return null;
        const pinned = parsePinned(row.value);
        return { pinned, outline: outlineSteps(pinned) };
      });
      reading.catch(() => this.#past.delete(hash));
      keep(this.#past, hash, reading);
    }
    return reading;
  }
}

function keep<T>(known: Map<string, T>, hash: string, value: T): void {
  known.set(hash, value);
  const [oldest] = known.keys();
  if (known.size > KEPT && oldest !== undefined) known.delete(oldest);
}
