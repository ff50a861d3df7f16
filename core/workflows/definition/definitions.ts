/** Workflow definitions by their hash: those of the manifest, and older ones to which executions in the store are pinned. */
import { unavailable } from "../../lib/errors.ts";
import { definitionKey } from "../../storage/keys.ts";
import { type Store, unlessConflict } from "../../storage/store.ts";
import type { Outline, PinnedDefinition, WorkflowDefinition } from "./definition.ts";
import { outlineSteps, parsePinned } from "./pinned.ts";

/** A workflow of the current manifest. */
interface CurrentDefinition {
  readonly definition: WorkflowDefinition;
  /** The pinned definition as JSON. */
  readonly text: string;
}

/** Compiles a pinned definition with the plugins, tools and agents of this process, or returns the names of those that are missing. */
type LinkDefinition = (pinned: PinnedDefinition, hash: string) => WorkflowDefinition | { missing: readonly string[] };

/** How many old definitions are kept in memory. */
const MAX_OLD_DEFINITIONS = 100;

export class Definitions {
  readonly #store: Store;
  readonly #link: LinkDefinition;
  readonly #current: ReadonlyMap<string, CurrentDefinition>;
  readonly #pinnedByHash = new Map<string, Promise<{ pinned: PinnedDefinition; outline: Outline } | null>>();
  /** Compiled definitions of the manifest by hash, and old ones. */
  readonly #currentByHash = new Map<string, WorkflowDefinition>();
  readonly #oldByHash = new Map<string, WorkflowDefinition>();

  /** @param current definitions of the manifest by workflow id */
  constructor(store: Store, current: ReadonlyMap<string, CurrentDefinition>, link: LinkDefinition) {
    this.#store = store;
    this.#link = link;
    this.#current = current;
    for (const { definition } of current.values()) this.#currentByHash.set(definition.hash, definition);
  }

  /** Adds a definition that is not a workflow of the manifest: executions find it only by its hash. */
  add(definition: WorkflowDefinition): void {
    this.#currentByHash.set(definition.hash, definition);
  }

  /** The definition that the manifest has now. */
  current(workflowId: string): WorkflowDefinition | undefined {
    return this.#current.get(workflowId)?.definition;
  }

  /** Writes the definitions of the manifest to the store, so that executions can be pinned to them. */
  async store(): Promise<void> {
    for (const { definition, text } of this.#current.values()) {
      const key = definitionKey(definition.hash);
      if ((await this.#store.get(key)) !== undefined) continue;
      // After a conflict, another process has written the same definition.
      await unlessConflict(this.#store.commit({ put: [[key, text]], expect: [[key, null]] }));
    }
  }

  /** @throws ServiceError `unavailable` that names what is missing */
  async pinned(hash: string): Promise<WorkflowDefinition> {
    const found = await this.find(hash);
    if (typeof found === "string") throw unavailable(found);
    return found;
  }

  /** A definition, or a message that says what is missing. */
  async find(hash: string): Promise<WorkflowDefinition | string> {
    const known = this.#currentByHash.get(hash) ?? this.#oldByHash.get(hash);
    if (known !== undefined) return known;
    const past = await this.#read(hash);
    if (past === null) return "the definition of the execution is gone";
    const linked = this.#link(past.pinned, hash);
    if ("missing" in linked)
      return `the execution needs ${linked.missing.join(", ")}, which this service does not have`;
    remember(this.#oldByHash, hash, linked);
    return linked;
  }

  /** The outline of a definition, which is available even when plugins are missing. */
  async outline(hash: string): Promise<Outline> {
    const known = this.#currentByHash.get(hash) ?? this.#oldByHash.get(hash);
    return known?.outline ?? (await this.#read(hash))?.outline ?? new Map();
  }

  #read(hash: string): Promise<{ pinned: PinnedDefinition; outline: Outline } | null> {
    let reading = this.#pinnedByHash.get(hash);
    if (reading === undefined) {
      reading = this.#store.get(definitionKey(hash)).then((row) => {
        if (row === undefined) return null;
        const pinned = parsePinned(row.value);
        return { pinned, outline: outlineSteps(pinned) };
      });
      reading.catch(() => this.#pinnedByHash.delete(hash));
      remember(this.#pinnedByHash, hash, reading);
    }
    return reading;
  }
}

function remember<T>(known: Map<string, T>, hash: string, value: T): void {
  known.set(hash, value);
  const [oldest] = known.keys();
  if (known.size > MAX_OLD_DEFINITIONS && oldest !== undefined) known.delete(oldest);
}
