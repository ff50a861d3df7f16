/** Whether other processes may use a store, and whether it outlives the process. */
import type { Store } from "./store.ts";

/** Stores that only one process can use. */
const UNSHARED_KINDS = new Set(["memory", "sqlite"]);

/** Whether other processes may use the store at the same time. If not, everything unfinished in it comes from a process that has ended. */
export const isShared = ({ kind }: Pick<Store, "kind">): boolean => !UNSHARED_KINDS.has(kind);

/** Whether the content of the store is lost when the process ends. */
export const isVolatile = ({ kind }: Pick<Store, "kind">): boolean => kind === "memory";
